// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/profiler_overhead.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

SampleStats stats_of(std::initializer_list<std::uint64_t> values) {
  SampleStats stats;
  for (const std::uint64_t value : values) stats.add(value);
  return stats;
}

/// Skewed, as step times are: most are similar, some much longer.
std::uint64_t step(std::mt19937_64& random, double slower) {
  std::lognormal_distribution<double> noise(0, 0.2);
  return static_cast<std::uint64_t>(1e6 * slower * noise(random));
}

}  // namespace

TEST_CASE("A median has an interval from seven values on", "[overhead]") {
  CHECK_FALSE(median_interval(SampleStats()).has_value());
  CHECK_FALSE(median_interval(stats_of({1, 2, 3, 4, 5, 6})).has_value());
  const auto seven = median_interval(stats_of({7, 1, 6, 2, 5, 3, 4}));
  REQUIRE(seven.has_value());
  CHECK(seven->median == 4);
  CHECK(seven->low == 1);
  CHECK(seven->high == 7);
  // P(X <= 1) of ten is 11/1024, P(X <= 2) is 56/1024.
  const auto ten = median_interval(stats_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  REQUIRE(ten.has_value());
  CHECK(ten->low == 2);
  CHECK(ten->high == 9);
}

TEST_CASE("The interval of a median holds it as often as it says, whatever the distribution", "[overhead]") {
  std::mt19937_64 random(17);
  for (const unsigned count : {7u, 10u, 33u, 200u, 5000u}) {
    const int runs = count > 1000 ? 300 : 3000;
    int outside = 0;
    for (int run = 0; run < runs; ++run) {
      SampleStats stats;
      for (unsigned i = 0; i < count; ++i) stats.add(step(random, 1));
      const auto interval = median_interval(stats);
      REQUIRE(interval.has_value());
      REQUIRE(interval->low <= interval->median);
      REQUIRE(interval->median <= interval->high);
      if (interval->low > 1e6 || interval->high < 1e6) ++outside;
    }
    INFO(count);
    // 2.5 % at most, plus random variation.
    CHECK(outside <= runs * 0.025 + 4 * std::sqrt(runs * 0.025));
  }
}

TEST_CASE("An overhead is seen where its interval lies above nothing", "[overhead]") {
  std::mt19937_64 random(4711);
  int false_alarms = 0;
  constexpr int kRuns = 1000;
  for (int run = 0; run < kRuns; ++run) {
    SampleStats outside;
    SampleStats inside;
    for (int i = 0; i < 40; ++i) outside.add(step(random, 1));
    for (int i = 0; i < 10; ++i) inside.add(step(random, 1));
    const auto overhead = profiler_overhead(outside, inside);
    REQUIRE(overhead.has_value());
    REQUIRE(overhead->low <= overhead->share);
    REQUIRE(overhead->share <= overhead->high);
    if (overhead->seen()) ++false_alarms;
  }
  CHECK(false_alarms <= kRuns * 0.05);

  SampleStats outside;
  SampleStats inside;
  for (int i = 0; i < 40; ++i) outside.add(1'000'000);
  for (int i = 0; i < 10; ++i) inside.add(1'250'000);
  const auto overhead = profiler_overhead(outside, inside);
  REQUIRE(overhead.has_value());
  CHECK(overhead->seen());
  CHECK(overhead->share == Approx(0.2));
  CHECK(overhead->outside == 1'000'000);
  // If the window's steps are the shorter ones, the profiler is not the cause.
  const auto reverse = profiler_overhead(inside, outside);
  REQUIRE(reverse.has_value());
  CHECK(reverse->share == Approx(-0.25));
  CHECK_FALSE(reverse->seen());
}

TEST_CASE("An overhead is not known from too few steps", "[overhead]") {
  const SampleStats few = stats_of({1, 2, 3});
  const SampleStats enough = stats_of({1, 2, 3, 4, 5, 6, 7, 8});
  CHECK_FALSE(profiler_overhead(few, enough).has_value());
  CHECK_FALSE(profiler_overhead(enough, few).has_value());
}

TEST_CASE("What is added to the window's time is told by means", "[overhead]") {
  SampleStats outside;
  for (const std::uint64_t time : {1000u, 1000u, 1000u, 1000u, 1000u, 1000u, 1200u, 1200u}) outside.add(time);
  SampleStats inside;
  for (int i = 0; i < 8; ++i) inside.add(1000);
  // Typical steps are alike, two of ten are slow.
  inside.add(2500);
  inside.add(2000);
  const auto overhead = profiler_overhead(outside, inside);
  REQUIRE(overhead.has_value());
  CHECK(overhead->share == 0);
  CHECK(overhead->added.share == Approx((12'500.0 - 10 * 1050) / 12'500));
  CHECK(overhead->added.low < overhead->added.share);
  CHECK(overhead->added.high > overhead->added.share);

  SECTION("but for steps of another kind") {
    outside.add(90'000);
    CHECK(profiler_overhead(outside, inside)->added.share == Approx(overhead->added.share));
    // The window's time stays as it is: 50 ms of it are not due to the profiler.
    inside.add(50'000);
    CHECK(profiler_overhead(outside, inside)->added.share == Approx((12'500.0 - 10 * 1050) / 62'500));
  }
  SECTION("as well from thousands of steps, which are not kept one by one") {
    for (int i = 0; i < 5000; ++i) outside.add(i % 4 == 0 ? 1200 : 1000);
    const auto found = profiler_overhead(outside, inside);
    CHECK(found->added.share == Approx((12'500.0 - 10 * 1050) / 12'500).margin(0.01));
    CHECK(found->added.high - found->added.low < overhead->added.high - overhead->added.low);
  }
}

TEST_CASE("The interval of what is added holds it as often as it says", "[overhead]") {
  struct Kind {
    const char* name;
    double spread;
    double slow;  // the share of steps that take four times as long
  };
  std::mt19937_64 random(99);
  for (const Kind& kind :
       {Kind{"alike", 0.03, 0}, Kind{"scattered", 0.2, 0}, Kind{"a few slow", 0.02, 0.05}}) {
    std::lognormal_distribution<double> noise(0, kind.spread);
    std::bernoulli_distribution slow(kind.slow);
    for (const auto& [without, with] : {std::pair{30, 10}, {200, 10}, {30, 40}}) {
      for (const double overhead : {0.0, 0.1}) {
        constexpr int kRuns = 500;
        int missed = 0;
        int claimed = 0;
        int wrong = 0;
        for (int run = 0; run < kRuns; ++run) {
          SampleStats outside;
          SampleStats inside;
          const auto time = [&](double longer) {
            return static_cast<std::uint64_t>(1e6 * longer * noise(random) * (slow(random) ? 4 : 1));
          };
          for (int i = 0; i < without; ++i) outside.add(time(1));
          for (int i = 0; i < with; ++i) inside.add(time(1 + overhead));
          const auto found = profiler_overhead(outside, inside);
          REQUIRE(found.has_value());
          const AddedTime& added = found->added;
          const double share = overhead / (1 + overhead);
          if (added.low > share || added.high < share) ++missed;
          if (longer_by(added.low) > kMuchLonger) ++claimed;
          DeviceTimes times;
          times.span = inside.sum();
          times.kernel_busy = times.span / 4;
          times.idle_by_cause[static_cast<std::size_t>(IdleCause::kLaunchCall)].time =
              times.span - times.kernel_busy;
          const auto figures = without_profiler(times, added);
          if (!figures) continue;
          const double taken = 1 - static_cast<double>(figures->times.span) / static_cast<double>(times.span);
          if (std::abs(taken - share) > 0.1) ++wrong;
        }
        INFO(kind.name << ' ' << without << ' ' << with << ' ' << overhead);
        const auto at_most = [](double part) { return kRuns * part + 4 * std::sqrt(kRuns * part); };
        CHECK(missed <= at_most(0.05));
        if (overhead > 0) continue;
        CHECK(claimed <= at_most(0.003));
        CHECK(wrong <= at_most(0.02));
      }
    }
  }
}

TEST_CASE("A single slow step in a window does not pass for overhead", "[overhead]") {
  SampleStats outside;
  SampleStats inside;
  for (int i = 0; i < 59; ++i) outside.add(5'000'000 + static_cast<std::uint64_t>(i) * 1000);
  outside.add(30'000'000);
  for (int i = 0; i < 9; ++i) inside.add(5'030'000 + static_cast<std::uint64_t>(i) * 1000);
  inside.add(30'000'000);
  const auto overhead = profiler_overhead(outside, inside);
  REQUIRE(overhead.has_value());
  CHECK(overhead->share < 0.01);
  DeviceTimes times;
  times.span = inside.sum();
  times.kernel_busy = times.span / 4;
  times.idle_by_cause[static_cast<std::size_t>(IdleCause::kHostCompute)].time =
      times.span - times.kernel_busy;
  CHECK_FALSE(without_profiler(times, overhead->added).has_value());
}

TEST_CASE("The profiler's time is taken out of the host's, and leaves the kernels alone", "[overhead]") {
  DeviceTimes times;
  times.kernel_busy = 400'000;
  const auto idle = [&](IdleCause cause) -> std::uint64_t& {
    return times.idle_by_cause[static_cast<std::size_t>(cause)].time;
  };
  idle(IdleCause::kLaunchCall) = 300'000;
  idle(IdleCause::kOtherCall) = 50'000;
  idle(IdleCause::kHostCompute) = 180'000;
  times.own_work = 30'000;
  idle(IdleCause::kHostWait) = 60'000;
  idle(IdleCause::kQueue) = 10'000;
  times.span = 1'000'000;
  AddedTime added{0.2, 0.1, 0.25, 1'000'000};
  // 800 us remain, in which kernels run for 400. The profiler has 200 of the host's 500 us, two fifths.
  const auto without = without_profiler(times, added);
  REQUIRE(without.has_value());
  CHECK(without->times.span == 800'000);
  CHECK(without->times.kernel_busy == 400'000);
  CHECK(without->times.idle(IdleCause::kLaunchCall) == 180'000);
  CHECK(without->times.idle(IdleCause::kOtherCall) == 30'000);
  CHECK(without->times.idle(IdleCause::kHostCompute) == 120'000);
  CHECK(without->times.own_work == 30'000);
  CHECK(without->times.idle(IdleCause::kHostWait) == 60'000);
  CHECK(without->times.idle(IdleCause::kQueue) == 10'000);
  CHECK(without->utilization.value == Approx(0.5));
  CHECK(without->utilization.low == Approx(400.0 / 900));
  CHECK(without->utilization.high == Approx(400.0 / 750));
  CHECK(without->launch_bound.value == Approx(310.0 / 800));
  CHECK(without->launch_bound.low == Approx(260.0 / 750));
  CHECK(without->launch_bound.high == Approx(410.0 / 900));

  SECTION("where the window's steps are the shorter ones the figures stay") {
    added = {-0.02, -0.05, 0.1, 1'000'000};
    const auto unchanged = without_profiler(times, added);
    REQUIRE(unchanged.has_value());
    CHECK(unchanged->times.span == times.span);
    CHECK(unchanged->utilization.value == Approx(0.4));
    CHECK(unchanged->utilization.low == Approx(0.4));
    CHECK(unchanged->utilization.high == Approx(400.0 / 900));
    CHECK(unchanged->launch_bound.value == Approx(0.51));
  }
  SECTION("what is much, but may be due to chance, is not subtracted") {
    added = {0.1, -0.01, 0.21, 1'000'000};
    CHECK_FALSE(without_profiler(times, added).has_value());
    CHECK(judged_times(times, OverheadEstimate{.added = added}).span == times.span);
    added.steps = 400'000;  // 4 % of the time
    CHECK(without_profiler(times, added).has_value());
  }
  SECTION("what the host has not got comes from the rest of the idle time") {
    added = {0.55, 0.1, 0.55, 1'000'000};
    const auto most = without_profiler(times, added);
    REQUIRE(most.has_value());
    CHECK(most->times.idle(IdleCause::kLaunchCall) == 0);
    CHECK(most->times.idle(IdleCause::kHostCompute) == 15'000);
    CHECK(most->times.own_work == 15'000);
    CHECK(most->times.idle(IdleCause::kHostWait) == 30'000);
    CHECK(most->utilization.value == Approx(400.0 / 450));
    CHECK(most->launch_bound.value == Approx(5.0 / 450));
  }
  SECTION("kernels do not take more than all the time") {
    added = {0.7, 0.1, 0.7, 1'000'000};
    CHECK_FALSE(without_profiler(times, added).has_value());
    CHECK(judged_times(times, OverheadEstimate{.added = added}).span == times.span);
  }
  SECTION("a validation between the steps was not lengthened") {
    added.steps = 600'000;
    const auto part = without_profiler(times, added);
    REQUIRE(part.has_value());
    CHECK(part->times.span == 1'000'000 - 120'000);
    CHECK(part->utilization.value == Approx(400.0 / 880));
    CHECK(part->utilization.low == Approx(400.0 / 940));
    CHECK(part->utilization.high == Approx(400.0 / 850));
    CHECK(judged_times(times, OverheadEstimate{.added = added}).span == 880'000);
  }
  SECTION("each device has the same steps") {
    added.steps = 300'000;
    CHECK(without_profiler(times, added, 2)->times.span == 1'000'000 - 120'000);
    CHECK(judged_times(times, OverheadEstimate{.added = added}, 2).span == 880'000);
  }
  SECTION("steps that took longer than the device's time") {
    added.steps = 1'500'000;
    CHECK(without_profiler(times, added)->times.span == 800'000);
  }
  SECTION("nothing ran") {
    CHECK_FALSE(without_profiler(DeviceTimes{}, added).has_value());
  }
}

TEST_CASE("A verdict on the host's own work holds wherever the profiler's share is", "[overhead]") {
  // Milliseconds of a window of ten iterations.
  struct Window {
    std::uint64_t kernels, launching, own_work, waiting, in_graphs = 0;
  };
  const auto times_of = [](const Window& window) {
    DeviceTimes times;
    times.kernel_busy = times.compute_busy = window.kernels * 1'000'000;
    times.own_work = window.own_work * 1'000'000;
    times.idle_by_cause[static_cast<std::size_t>(IdleCause::kHostCompute)].time =
        (window.launching + window.own_work) * 1'000'000;
    times.idle_by_cause[static_cast<std::size_t>(IdleCause::kHostWait)].time = window.waiting * 1'000'000;
    times.idle_by_cause[static_cast<std::size_t>(IdleCause::kGraph)].time = window.in_graphs * 1'000'000;
    times.span = times.kernel_busy + times.idle();
    return times;
  };
  const auto judged = [&](const Window& window, double longer_by_ms) {
    const DeviceTimes times = times_of(window);
    const auto span = static_cast<double>(times.span);
    const double share = longer_by_ms * 1e6 / span;
    KernelLimits limits;
    limits.compute = times.kernel_busy;
    return judge(times, OverheadEstimate{.added = {share, share / 2, share * 1.5, span}}, 1, limits, 0);
  };
  const auto kinds = [](const Diagnosis& diagnosis) {
    std::vector<Bottleneck> leading;
    for (std::size_t i = 0; i < diagnosis.leading; ++i) leading.push_back(diagnosis.parts[i].kind);
    return leading;
  };
  using Kinds = std::vector<Bottleneck>;
  // Stalls of 54 ms in steps that are 57 ms longer than others: the program may wait for launches alone.
  const Diagnosis stalls = judged({42, 74, 36, 18}, 57);
  CHECK(stalls.verdict == Bottleneck::kMixed);
  CHECK(kinds(stalls) == Kinds{Bottleneck::kLaunch, Bottleneck::kInput});
  REQUIRE(stalls.gain.has_value());
  // Launching is 17 ms, or all of the idle time.
  CHECK(static_cast<double>(stalls.parts[0].gain) == Approx(71e6).epsilon(1e-3));
  CHECK(static_cast<double>(*stalls.gain) == Approx((54 + 74 - 57) * 1e6).epsilon(1e-3));
  // All launching was due to the profiler, or none.
  const Diagnosis either = judged({550, 150, 300, 0}, 150);
  CHECK(either.verdict == Bottleneck::kMixed);
  CHECK(kinds(either) == Kinds{Bottleneck::kInput, Bottleneck::kLaunch});
  CHECK(static_cast<double>(either.parts[1].gain) == Approx(150e6).epsilon(1e-3));
  // Or for neither.
  const Diagnosis busy = judged({700, 70, 60, 50, 150}, 70);
  CHECK(busy.verdict == Bottleneck::kUndetermined);
  CHECK(busy.leading == 0);
  CHECK_FALSE(busy.gain.has_value());
  // Steps that are hardly longer, or much shorter than the host's work, leave no doubt.
  for (const double longer : {0.0, 5.0, 20.0}) {
    CAPTURE(longer);
    const Diagnosis sure = judged({42, 74, 136, 118}, longer);
    CHECK(sure.verdict == Bottleneck::kInput);
    CHECK(kinds(sure) == Kinds{Bottleneck::kInput});
    CHECK(sure.gain == 254'000'000);
  }
  CHECK(judged({42, 174, 10, 0}, 57).verdict == Bottleneck::kLaunch);
}

TEST_CASE("Times without the profiler add up, whatever they are made of", "[overhead]") {
  std::mt19937_64 random(5);
  const auto time = [&random] { return random() % 3 == 0 ? 0 : random() % 1000; };
  for (int run = 0; run < 20'000; ++run) {
    DeviceTimes times;
    times.kernel_busy = times.compute_busy = time();
    times.copy_only = time();
    for (auto& cause : times.idle_by_cause) cause.time = time();
    const std::uint64_t compute = times.idle(IdleCause::kHostCompute);
    times.own_work = compute == 0 ? 0 : random() % (compute + 1);
    times.span = times.kernel_busy + times.copy_only + times.idle();
    AddedTime added;
    added.low = static_cast<double>(random() % 100) / 100 - 0.2;
    added.share = added.low + static_cast<double>(random() % 50) / 100;
    added.high = added.share + static_cast<double>(random() % 50) / 100;
    added.steps = static_cast<double>(random() % 12) / 10 * static_cast<double>(times.span);
    const auto without = without_profiler(times, added);
    if (!without) continue;
    const DeviceTimes& left = without->times;
    REQUIRE(left.span == left.kernel_busy + left.copy_only + left.idle());
    REQUIRE(left.kernel_busy == times.kernel_busy);
    REQUIRE(left.own_work <= left.idle(IdleCause::kHostCompute));
    for (std::size_t i = 0; i < kIdleCauses; ++i)
      REQUIRE(left.idle_by_cause[i].time <= times.idle_by_cause[i].time);
    // Each cause is rounded separately.
    const double taken = std::max(0.0, added.share) * std::min(added.steps, static_cast<double>(times.span));
    REQUIRE(std::abs(static_cast<double>(times.span - left.span) - taken) <= kIdleCauses);
    REQUIRE(without->utilization.low <= without->utilization.value);
    REQUIRE(without->utilization.value <= without->utilization.high);
    REQUIRE(without->launch_bound.low <= without->launch_bound.value);
    REQUIRE(without->launch_bound.value <= without->launch_bound.high);
  }
}
