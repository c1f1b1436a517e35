// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "libinject/analysis/energy.h"
#include "libinject/session/energy_schedule.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr Nanoseconds kScheduleMs = kMillisecond;
// Three fifths of a thousandth of the time, beyond the allowance.
constexpr double kRate = 0.0006;
constexpr Nanoseconds kAllowance = 18 * kScheduleMs;
constexpr std::uint64_t kPaceLimit = 700'000;  // mW
constexpr double kWatts = 500;

struct Outcome {
  std::vector<bool> precise;         // for each window, whether its energy is known
  std::vector<std::size_t> at_once;  // for each, how many edges were read within a few milliseconds
  std::vector<Nanoseconds> read_at;
  EnergyReadings readings;
  Nanoseconds spent = 0;
  Nanoseconds dearest = 0;
};

/// Windows on a GPU whose counter updates every `step`, with readings that take the time that `cost` returns.
template <typename Cost>
Outcome follow(const std::vector<RangeTracker::Span>& windows, Nanoseconds step, Cost cost) {
  Outcome outcome;
  EnergySchedule schedule;
  Nanoseconds now = windows.front().begin - 500 * kScheduleMs;  // first expected
  const Nanoseconds until = windows.back().end + kNearEdge;
  while (now < until) {
    RangeTracker::Span latest;
    Nanoseconds next_edge = until;
    for (const RangeTracker::Span& window : windows) {
      if (window.begin <= now) latest = {window.begin, window.end <= now ? window.end : 0};
      for (const Nanoseconds edge : {window.begin, window.end})
        if (edge > now) next_edge = std::min(next_edge, edge);
    }
    if (latest.end != 0 && now >= latest.end + kNearEdge) {
      outcome.readings.pause();
      now = next_edge;
      continue;
    }
    const std::vector<EnergyPoint>& points = outcome.readings.points();
    const Nanoseconds due = schedule.next(now, latest, points.empty() ? 0 : points.back().after);
    REQUIRE(due >= now);
    if (due > now) {
      now = std::min(due, next_edge);
      continue;
    }
    const Nanoseconds took = cost();
    outcome.read_at.push_back(now);
    outcome.readings.add(now, now + took,
                         static_cast<std::uint64_t>(kWatts) * (now / step * step / 1'000'000), kPaceLimit);
    schedule.note(now, took);
    outcome.spent += took;
    outcome.dearest = std::max(outcome.dearest, took);
    // The strict bound at any time: the share of the time so far, the allowance, and the call that began
    // before the budget was used up.
    const auto earned = static_cast<Nanoseconds>(kRate * static_cast<double>(now - outcome.read_at.front()));
    REQUIRE(outcome.spent <= earned + kAllowance + outcome.dearest);
    now += took;
  }
  const EnergyCounter counter(outcome.readings.points(), kPaceLimit);
  for (const RangeTracker::Span& window : windows) {
    const auto amount = counter.between(window.begin, window.end);
    const double truth = kWatts * static_cast<double>(window.end - window.begin) * 1e-9;
    if (amount) {
      INFO(amount->joules << " ± " << amount->error << ", truly " << truth);
      CHECK(std::abs(amount->joules - truth) <= amount->error + 0.01);
    }
    outcome.precise.push_back(amount && amount->is_precise());
    outcome.at_once.push_back(0);
    for (const Nanoseconds edge : {window.begin, window.end})
      outcome.at_once.back() +=
          std::any_of(outcome.read_at.begin(), outcome.read_at.end(),
                      [edge](Nanoseconds at) { return at >= edge && at < edge + 10 * kScheduleMs; })
              ? 1
              : 0;
  }
  return outcome;
}

std::vector<RangeTracker::Span> windows_of(std::size_t count, Nanoseconds length, Nanoseconds between) {
  std::vector<RangeTracker::Span> windows;
  for (std::size_t i = 0; i < count; ++i) {
    const Nanoseconds begin = 1000 * kSecond + 37 * kScheduleMs + i * (length + between);
    windows.push_back({begin, begin + length});
  }
  return windows;
}

std::ptrdiff_t precise(const Outcome& outcome) {
  return std::count(outcome.precise.begin(), outcome.precise.end(), true);
}

}  // namespace

TEST_CASE("a processor budget allows its part, and the allowance once", "[energy]") {
  for (const Nanoseconds cost : {40 * kMicrosecond, 3 * kScheduleMs, 21 * kScheduleMs}) {
    ProcessorBudget budget(1000, 10 * kScheduleMs);
    Nanoseconds now = kSecond;
    Nanoseconds spent = 0;
    while ((now = budget.next(now)) < 1001 * kSecond) {
      budget.spend(cost);
      spent += cost;
    }
    // A thousandth of the time is one second, and no debt is forgiven.
    CHECK(spent <= kSecond + 10 * kScheduleMs + cost);
    CHECK(spent >= kSecond + 10 * kScheduleMs - cost);
  }
}

TEST_CASE("a processor budget saves up to its allowance", "[energy]") {
  ProcessorBudget budget(1000, 10 * kScheduleMs);
  CHECK(budget.next(kSecond, 10 * kScheduleMs) == kSecond);
  budget.spend(14 * kScheduleMs);
  CHECK(budget.next(kSecond) == 5 * kSecond);
  CHECK(budget.next(kSecond, 3 * kScheduleMs) == 8 * kSecond);
  // If asked for more than it can hold, it returns when it will be full.
  CHECK(budget.next(kSecond, kSecond) == 15 * kSecond);
  CHECK(budget.next(3600 * kSecond, 10 * kScheduleMs) == 3600 * kSecond);
  budget.spend(11 * kScheduleMs);
  CHECK(budget.next(3600 * kSecond) == 3601 * kSecond);
  // Frequent calls lose nothing to rounding.
  for (Nanoseconds now = 3600 * kSecond; now < 3601 * kSecond; now += 999'999) budget.next(now);
  CHECK(budget.next(3601 * kSecond) == 3601 * kSecond);
}

TEST_CASE("what readings of the energy counter take is bounded at any time, and what is shown is true",
          "[energy]") {
  std::mt19937_64 random(28);
  for (int run = 0; run < 300; ++run) {
    std::vector<RangeTracker::Span> windows;
    Nanoseconds time = 100 * kSecond;
    for (std::size_t i = 0; i < 1 + random() % 30; ++i) {
      time += random() % (20 * kSecond);
      windows.push_back({time, time + 1 + random() % (random() % 2 == 0 ? 30 * kSecond : kSecond)});
      time = windows.back().end;
    }
    const Nanoseconds usual = (10 + random() % 5000) * kMicrosecond;
    const Nanoseconds step = (20 + random() % 81) * kScheduleMs;
    follow(windows, step,
           [&] { return usual / 2 + random() % usual + (random() % 50 == 0 ? 5 * usual : 0); });
  }
}

TEST_CASE("cheap readings come often and find the counter's step", "[energy]") {
  for (const Nanoseconds step : {20 * kScheduleMs, 50 * kScheduleMs, 100 * kScheduleMs}) {
    const Outcome outcome =
        follow(windows_of(3, 4 * kSecond, 3 * kSecond), step, [] { return 40 * kMicrosecond; });
    CHECK(precise(outcome) == 3);
    CHECK(outcome.readings.count() > 150);
    CHECK(outcome.readings.step() >= step / 2);
    CHECK(outcome.readings.step() <= step * 2);
  }
}

TEST_CASE("where a reading takes milliseconds, what there is goes to the windows' edges", "[energy]") {
  SECTION("the first windows live on the allowance") {
    const Outcome outcome = follow({{100 * kSecond, 114 * kSecond}, {116 * kSecond, 120 * kSecond}},
                                   100 * kScheduleMs, [] { return 3 * kScheduleMs; });
    CHECK(outcome.at_once == std::vector<std::size_t>{2, 2});
    CHECK(precise(outcome) == 2);
  }
  SECTION("of a second and a half, a few seconds apart") {
    for (const Nanoseconds cost : {3 * kScheduleMs, 5 * kScheduleMs}) {
      const Outcome outcome =
          follow(windows_of(2, 1500 * kScheduleMs, 4 * kSecond), 100 * kScheduleMs, [&] { return cost; });
      CHECK(precise(outcome) >= (cost == 3 * kScheduleMs ? 2 : 1));
    }
  }
  SECTION("then they come as what is earned allows") {
    const Outcome outcome = follow(windows_of(60, 5 * kSecond, 5 * kSecond), 100 * kScheduleMs,
                                   [] { return 2900 * kMicrosecond; });
    CHECK(precise(outcome) == 60);
    const Outcome dearer =
        follow(windows_of(60, 5 * kSecond, 5 * kSecond), 100 * kScheduleMs, [] { return 5 * kScheduleMs; });
    CHECK(precise(dearer) >= 25);
  }
  SECTION("a long window leaves enough for its end and the next one") {
    const Outcome outcome =
        follow(windows_of(2, 300 * kSecond, 2 * kSecond), 100 * kScheduleMs, [] { return 3 * kScheduleMs; });
    CHECK(outcome.at_once == std::vector<std::size_t>{2, 2});
    // In between, no more than the budget earns.
    CHECK(outcome.readings.count() > 50);
    CHECK(outcome.readings.count() < 130);
  }
  SECTION("a first call that takes a tenth of a second is paid off") {
    bool first = true;
    const Outcome outcome = follow(windows_of(20, 5 * kSecond, 15 * kSecond), 100 * kScheduleMs, [&] {
      return std::exchange(first, false) ? 100 * kScheduleMs : 2 * kScheduleMs;
    });
    CHECK_FALSE(outcome.precise.front());
    CHECK(outcome.precise.back());
  }
}

TEST_CASE("an edge is read until the counter has moved, and the reading after it waits for that",
          "[energy]") {
  const RangeTracker::Span window{100 * kSecond, 0};
  EnergySchedule schedule;
  CHECK(schedule.next(window.begin, window, 0) == window.begin);
  schedule.note(window.begin, 4 * kScheduleMs);
  CHECK(schedule.next(window.begin + kScheduleMs, window, window.begin - kScheduleMs) ==
        window.begin + 80 * kScheduleMs);
  schedule.note(window.begin + 80 * kScheduleMs, 4 * kScheduleMs);
  CHECK(schedule.next(window.begin + 90 * kScheduleMs, window, window.begin - kScheduleMs) ==
        window.begin + 80 * kScheduleMs + kLongestStep);
  // From then on only the surplus is spent.
  CHECK(schedule.next(window.begin + 90 * kScheduleMs, window, window.begin + 1) >
        window.begin + 10 * kSecond);
  // The window's end comes first.
  const RangeTracker::Span over{window.begin, 101 * kSecond};
  CHECK(schedule.next(over.end, over, window.begin + 1) == over.end);
}
