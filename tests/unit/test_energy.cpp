// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "libinject/analysis/energy.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr std::uint64_t kLimit = 700'000;  // mW
constexpr Nanoseconds kEnergyMs = kMillisecond;

/// A GPU whose power changes at random moments, with a counter that updates at random moments.
class Gpu {
 public:
  Gpu(std::mt19937_64& random, Nanoseconds until, std::size_t resets = 0) : random_(random) {
    const auto longest = 1 + random() % 500;
    double joules = 1e6 * static_cast<double>(1 + random() % 100);
    for (Nanoseconds time = 0; time < until; time += (1 + random() % longest) * kEnergyMs) {
      // Up to twice the limit for a moment.
      const double watts =
          random() % 8 == 0 ? static_cast<double>(random() % 1400) : static_cast<double>(random() % 700);
      if (!parts_.empty()) joules += parts_.back().watts * seconds(time - parts_.back().begin);
      parts_.push_back({time, joules, watts});
    }
    const auto step = (10 + random() % 110) * kEnergyMs;
    const auto jitter = 1 + random() % (step / 2);
    for (Nanoseconds time = 0; time < until; time += step - jitter / 2 + random() % jitter)
      moves_.push_back(time);
    for (std::size_t i = 0; i < resets; ++i) {
      resets_.push_back(random() % until);
      moves_.push_back(resets_.back());
    }
    std::sort(resets_.begin(), resets_.end());
    std::sort(moves_.begin(), moves_.end());
  }

  double energy(Nanoseconds time) const {
    const auto after = std::upper_bound(parts_.begin(), parts_.end(), time,
                                        [](Nanoseconds at, const Part& part) { return at < part.begin; });
    const Part& part = *std::prev(after);
    return part.joules + part.watts * seconds(time - part.begin);
  }
  /// In millijoules.
  std::uint64_t counter(Nanoseconds time) const {
    const Nanoseconds moved = *std::prev(std::upper_bound(moves_.begin(), moves_.end(), time));
    const auto reset = std::upper_bound(resets_.begin(), resets_.end(), moved);
    return static_cast<std::uint64_t>(
        1e3 * (energy(moved) - (reset == resets_.begin() ? 0 : energy(*std::prev(reset)))));
  }
  EnergyReadings readings(Nanoseconds begin, Nanoseconds until) const {
    EnergyReadings readings;
    const auto pace = (1 + random_() % 60) * kEnergyMs;
    for (Nanoseconds time = begin; time < until; time += 1 + random_() % (2 * pace)) {
      const Nanoseconds end = time + random_() % (2 * kEnergyMs);
      readings.add(time, end, counter(time + random_() % (end - time + 1)), kLimit);
      time = end;
    }
    return readings;
  }

 private:
  struct Part {
    Nanoseconds begin = 0;
    double joules = 0;  // up to that moment
    double watts = 0;
  };
  static double seconds(Nanoseconds time) { return static_cast<double>(time) * 1e-9; }

  std::mt19937_64& random_;
  std::vector<Part> parts_;
  std::vector<Nanoseconds> moves_;
  std::vector<Nanoseconds> resets_;  // each is an update
};

EnergyPoint point(Nanoseconds after_ms, Nanoseconds by_ms, std::uint64_t joules, std::uint32_t epoch = 0) {
  return {after_ms * kEnergyMs, by_ms * kEnergyMs, joules * 1000, epoch};
}

}  // namespace

TEST_CASE("the energy of a stretch of time is within its error, whatever power, counter and readings do",
          "[energy]") {
  std::mt19937_64 random(26);
  std::size_t judged = 0;
  std::size_t precise = 0;
  for (int run = 0; run < 2000; ++run) {
    constexpr Nanoseconds kEnd = 20 * kSecond;
    const Gpu gpu(random, kEnd);
    // Readings may begin after the interval does, and end before it ends.
    const Nanoseconds from = kSecond + random() % (4 * kSecond);
    const Nanoseconds until = from + 2 * kSecond + random() % (10 * kSecond);
    EnergyReadings readings = gpu.readings(from, until);
    const bool thin = run % 4 == 0;
    REQUIRE(readings.resets() == 0);
    for (int i = 0; i < 20; ++i) {
      const Nanoseconds begin = from - 100 * kEnergyMs + random() % (until - from);
      const Nanoseconds end = begin + 1 + random() % (until + 100 * kEnergyMs - begin);
      if (thin && i == 10) {
        const Nanoseconds edges[] = {begin, end};
        readings.thin_out(edges);
      }
      const auto amount = EnergyCounter(readings.points(), kLimit).between(begin, end);
      if (readings.points().size() < 2) continue;
      REQUIRE(amount);
      const double truth = gpu.energy(end) - gpu.energy(begin);
      INFO("run " << run << ", " << begin << " to " << end << ": " << amount->joules << " ± "
                  << amount->error);
      REQUIRE(std::abs(amount->joules - truth) <= amount->error + 1e-6 * truth + 1e-6);
      ++judged;
      precise += amount->is_precise() ? 1 : 0;
    }
  }
  // Most intervals take seconds.
  CHECK(judged > 30'000);
  CHECK(precise > judged / 2);
}

TEST_CASE("where the counter was reset, energy is within its error or not known", "[energy]") {
  std::mt19937_64 random(27);
  std::size_t judged = 0;
  std::size_t unknown = 0;
  for (int run = 0; run < 1000; ++run) {
    constexpr Nanoseconds kEnd = 12 * kSecond;
    const Gpu gpu(random, kEnd, 1 + random() % 4);
    EnergyReadings readings = gpu.readings(kSecond, 5 * kSecond);
    if (run % 3 == 0) readings.thin_out({});
    const EnergyCounter counter(readings.points(), kLimit);
    for (int i = 0; i < 20; ++i) {
      const Nanoseconds begin = 900 * kEnergyMs + random() % (4 * kSecond);
      const Nanoseconds end = begin + 1 + random() % (3 * kSecond);
      const auto amount = counter.between(begin, end);
      if (!amount) {
        ++unknown;
        continue;
      }
      const double truth = gpu.energy(end) - gpu.energy(begin);
      INFO("run " << run << ", " << begin << " to " << end << ": " << amount->joules << " ± "
                  << amount->error);
      REQUIRE(std::abs(amount->joules - truth) <= amount->error + 1e-6 * truth + 1e-6);
      ++judged;
    }
  }
  CHECK(judged > 5000);
  CHECK(unknown > 2000);
}

TEST_CASE("parts of a stretch add up to it", "[energy]") {
  std::mt19937_64 random(7);
  const Gpu gpu(random, 20 * kSecond);
  const EnergyReadings readings = gpu.readings(kSecond, 15 * kSecond);
  const EnergyCounter counter(readings.points(), kLimit);
  double sum = 0;
  for (Nanoseconds time = 2 * kSecond; time < 12 * kSecond; time += 100 * kEnergyMs)
    sum += counter.between(time, time + 100 * kEnergyMs)->joules;
  const auto all = counter.between(2 * kSecond, 12 * kSecond);
  CHECK(std::abs(sum - all->joules) <= 1e-6 * all->joules + all->error);
}

TEST_CASE("what is shorter than the counter's steps is not precise", "[energy]") {
  // 500 W; the counter updates every 100 ms.
  std::vector<EnergyPoint> points{point(0, 100, 1000)};
  for (Nanoseconds i = 1; i < 50; ++i) points.push_back(point(95 + 100 * i, 100 + 100 * i, 1000 + 50 * i));
  const EnergyCounter counter(points, kLimit);
  for (const Nanoseconds length : {1u, 10u, 50u, 100u}) {
    const auto amount = counter.between(1030 * kEnergyMs, (1030 + length) * kEnergyMs);
    REQUIRE(amount);
    CHECK_FALSE(amount->is_precise());
  }
  const auto amount = counter.between(1030 * kEnergyMs, 3030 * kEnergyMs);
  CHECK(std::abs(amount->joules - 1000) < 10);
  CHECK(amount->is_precise());
  CHECK(amount->error < 100);
}

TEST_CASE("the error grows with the time to the nearest reading", "[energy]") {
  std::vector<EnergyPoint> points{point(0, 1000, 10)};
  for (Nanoseconds i = 1; i < 100; ++i) points.push_back(point(980 + 20 * i, 1000 + 20 * i, 10 + 10 * i));
  const EnergyCounter counter(points, kLimit);
  double before = 0;
  for (const Nanoseconds ahead : {0u, 10u, 100u, 400u}) {
    const auto amount = counter.between((1000 - ahead) * kEnergyMs, 2500 * kEnergyMs);
    REQUIRE(amount);
    CHECK(amount->error >= before);
    before = amount->error;
  }
  // Anything from nothing to twice 700 W for 400 ms is possible.
  CHECK(before > 250);
}

TEST_CASE("a counter that was reset tells nothing across it", "[energy]") {
  EnergyReadings readings;
  std::uint64_t energy = 5'000'000;
  for (Nanoseconds time = kSecond; time < 10 * kSecond; time += 20 * kEnergyMs) {
    energy += 10'000;
    if (time == 5 * kSecond) energy = 100;
    readings.add(time, time + 1000, energy, kLimit);
  }
  CHECK(readings.resets() == 1);
  const EnergyCounter counter(readings.points(), kLimit);
  CHECK_FALSE(counter.between(4 * kSecond, 6 * kSecond));
  CHECK_FALSE(counter.between(4 * kSecond, 9 * kSecond));
  CHECK(counter.between(2 * kSecond, 4 * kSecond)->is_precise());
  CHECK(counter.between(6 * kSecond, 8 * kSecond)->is_precise());

  SECTION("nor one that jumps ahead by more than a GPU can use") {
    readings.add(10 * kSecond, 10 * kSecond + 1000, energy + 1'000'000, kLimit);
    CHECK(readings.resets() == 2);
  }
  SECTION("making room leaves that so") {
    readings.thin_out({});
    readings.thin_out({});
    const EnergyCounter after(readings.points(), kLimit);
    CHECK_FALSE(after.between(4 * kSecond, 6 * kSecond));
    CHECK(readings.left_out() > 100);
  }
}

TEST_CASE("readings that pause do not take what is used meanwhile for a jump", "[energy]") {
  EnergyReadings readings;
  for (const Nanoseconds at : {1u, 1000u}) {
    for (Nanoseconds time = at * kSecond; time < at * kSecond + 500 * kEnergyMs; time += 5 * kEnergyMs)
      readings.add(time, time + 1000, 500 * (time / (20 * kEnergyMs) * 20), kLimit);
    readings.pause();
  }
  CHECK(readings.resets() == 0);
  CHECK(readings.step() == 20 * kEnergyMs);
}

TEST_CASE("one reading at each end bounds what was used, unless the counter is slow", "[energy]") {
  // 500 W; the counter updates every 100 ms.
  const auto read = [](EnergyReadings& readings, Nanoseconds time, Nanoseconds step) {
    readings.add(time, time + kEnergyMs, 500 * (time / step * step) / 1'000'000, kLimit);
  };
  EnergyReadings readings;
  const Nanoseconds begin = 10 * kSecond + 60 * kEnergyMs;
  const Nanoseconds end = 15 * kSecond + 30 * kEnergyMs;
  read(readings, begin, 100 * kEnergyMs);
  read(readings, end, 100 * kEnergyMs);
  const auto amount = EnergyCounter(readings.points(), kLimit).between(begin, end);
  REQUIRE(amount);
  CHECK(std::abs(amount->joules - 2485) <= amount->error);
  // Twice 700 W for 120 ms, and one call.
  CHECK(amount->error <= 172);

  SECTION("a reading that repeats the value says that it is, of what was read before as well") {
    read(readings, 20 * kSecond, kSecond);
    read(readings, 20 * kSecond + kLongestStep, kSecond);
    CHECK(EnergyCounter(readings.points(), kLimit).between(begin, end)->error <= 172);
    read(readings, 20 * kSecond + 130 * kEnergyMs, kSecond);
    CHECK_FALSE(
        EnergyCounter(readings.points(), kLimit).between(begin, end).value_or(EnergyAmount{}).is_precise());
    read(readings, 30 * kSecond, kSecond);
    CHECK(readings.points().back().after == 20 * kSecond + 130 * kEnergyMs);
  }
}

TEST_CASE("a point next to a window's edge stays when room is made", "[energy]") {
  EnergyReadings readings;
  for (Nanoseconds time = kSecond; time < 100 * kSecond; time += 20 * kEnergyMs)
    readings.add(time, time + 1000, 500 * time / 1'000'000, kLimit);
  const Nanoseconds edges[] = {10 * kSecond + 7 * kEnergyMs, 11 * kSecond + 7 * kEnergyMs};
  const auto before = EnergyCounter(readings.points(), kLimit).between(edges[0], edges[1]);
  const auto inside = [&] {
    return EnergyCounter(readings.points(), kLimit)
        .between(edges[0] + 400 * kEnergyMs, edges[0] + 600 * kEnergyMs);
  };
  const double inside_before = inside()->error;
  for (int i = 0; i < 4; ++i) readings.thin_out(edges);
  const auto after = EnergyCounter(readings.points(), kLimit).between(edges[0], edges[1]);
  CHECK(std::abs(after->joules - before->joules) < 1e-6);
  CHECK(std::abs(after->error - before->error) < 1e-6);
  CHECK(inside()->error > inside_before);
}

TEST_CASE("the counter's step is found where readings are close enough together", "[energy]") {
  const auto step_of = [](Nanoseconds step, Nanoseconds pace) {
    EnergyReadings readings;
    for (Nanoseconds time = kSecond; time < 5 * kSecond; time += pace)
      readings.add(time, time + 1000, 500 * (time / step * step) / 1'000'000, kLimit);
    return readings.step();
  };
  for (const Nanoseconds step : {20 * kEnergyMs, 50 * kEnergyMs, 100 * kEnergyMs}) {
    const Nanoseconds found = step_of(step, 7 * kEnergyMs);
    CHECK(found >= step - 7 * kEnergyMs);
    CHECK(found <= step + 7 * kEnergyMs);
  }
  CHECK(step_of(20 * kEnergyMs, 50 * kEnergyMs) == 0);
}

TEST_CASE("energy while no kernel ran", "[energy]") {
  // 500 W, but 100 W from 10 s to 14 s; the counter updates every 20 ms.
  const auto energy = [](Nanoseconds time) {
    const auto idle = std::min(std::max(time, 10 * kSecond), 14 * kSecond) - 10 * kSecond;
    return 500 * time / 1'000'000 - 400 * idle / 1'000'000;
  };
  EnergyReadings readings;
  for (Nanoseconds time = kSecond; time < 25 * kSecond; time += 5 * kEnergyMs)
    readings.add(time, time + 1000, energy(time / (20 * kEnergyMs) * (20 * kEnergyMs)), kLimit);
  const EnergyCounter counter(readings.points(), kLimit);
  KernelPauses pauses;
  pauses.add(10 * kSecond, 14 * kSecond);
  pauses.add(3 * kSecond, 3 * kSecond + 2 * kEnergyMs);
  CHECK(pauses.rest == 2 * kEnergyMs);
  const auto idle = energy_in_pauses(counter, kLimit, pauses, 5 * kSecond, 20 * kSecond);
  REQUIRE(idle);
  CHECK(idle->is_precise());
  CHECK(std::abs(idle->joules - 400) <= idle->error);

  SECTION("clipped to the window") {
    const auto part = energy_in_pauses(counter, kLimit, pauses, 12 * kSecond, 20 * kSecond);
    CHECK(std::abs(part->joules - 200) <= part->error);
    CHECK(part->is_precise());
  }
  SECTION("many short pauses are no measurement") {
    for (Nanoseconds i = 0; i < 1000; ++i) pauses.add(i * 4 * kEnergyMs, (i * 4 + 3) * kEnergyMs);
    CHECK_FALSE(energy_in_pauses(counter, kLimit, pauses, 5 * kSecond, 20 * kSecond)->is_precise());
  }
  SECTION("in doubt until the device is known to be idle") {
    pauses.doubt(11 * kSecond);
    const auto part = energy_in_pauses(counter, kLimit, pauses, 5 * kSecond, 20 * kSecond);
    CHECK(part->joules - part->error <= 300);
    CHECK(part->joules + part->error >= 400);
    pauses.doubt(15 * kSecond);
    CHECK(pauses.longer.empty());
    CHECK(pauses.rest == 4 * kSecond + 2 * kEnergyMs);
    CHECK_FALSE(energy_in_pauses(counter, kLimit, pauses, 5 * kSecond, 20 * kSecond)->is_precise());
  }
  SECTION("too many to keep") {
    for (std::size_t i = 0; i <= KernelPauses::kMax; ++i)
      pauses.add(i * 10 * kEnergyMs, (i * 10 + 6) * kEnergyMs);
    CHECK_FALSE(energy_in_pauses(counter, kLimit, pauses, 5 * kSecond, 20 * kSecond));
  }
}

TEST_CASE("clocks by their readings", "[energy]") {
  std::vector<ClockReading> readings;
  for (Nanoseconds i = 0; i < 10; ++i) {
    ClockReading reading;
    reading.time = i * kSecond;
    reading.sm_mhz = i < 5 ? 1980 : 990;
    reading.temperature = static_cast<std::uint32_t>(40 + i);
    reading.throttle_reasons = static_cast<std::uint8_t>(i < 5   ? 0
                                                         : i < 8 ? kThrottlePower
                                                                 : kThrottlePower | kThrottleHeat);
    readings.push_back(reading);
  }
  const auto use_of = [&](Nanoseconds begin, Nanoseconds end) {
    ClockSums sums(1980);
    sums.add(readings, begin, end);
    return sums.use();
  };
  const ClockUse use = use_of(0, 9 * kSecond);
  CHECK(use.readings == 10);
  CHECK(use.sm_mhz == 1485.0);
  CHECK(use.sm_min_mhz == 990);
  CHECK(use.temperature == 49);
  CHECK(use.throttled == 0.5);
  CHECK(use.throttled_by_power == 0.5);
  CHECK(use.throttled_by_heat == 1.5 / 9);
  CHECK(use.throttled_by_hardware == 0.0);
  CHECK(use.throttled_sm_mhz == 990.0);
  CHECK(use.throttle_cost == 0.25);
  // The driver does not report it.
  CHECK_FALSE(use.memory_mhz);
  CHECK_FALSE(use.watts);
  // Too few readings for a value.
  CHECK(use_of(0, kSecond).readings == 2);
  CHECK_FALSE(use_of(0, kSecond).sm_mhz);
  CHECK_FALSE(use_of(0, kSecond).throttled);

  SECTION("each counts by the time it stands for, since the pace changes") {
    // Held down for three quarters of the time, in which readings come more and more rarely.
    readings.clear();
    for (Nanoseconds time = 0; time < 20 * kSecond; time += time < 6 * kSecond ? kSecond / 20 : kSecond) {
      const bool throttled = time >= 5 * kSecond;
      ClockReading reading;
      reading.time = time;
      reading.sm_mhz = throttled ? 990 : 1980;
      reading.milliwatts = throttled ? 700'000 : 300'000;
      reading.throttle_reasons = static_cast<std::uint8_t>(throttled ? kThrottlePower : 0);
      readings.push_back(reading);
    }
    const auto check = [&] {
      const ClockUse part = use_of(0, 20 * kSecond);
      CHECK(std::abs(*part.throttled - 0.75) < 0.01);
      CHECK(std::abs(*part.throttled_by_power - 0.75) < 0.01);
      CHECK(std::abs(*part.sm_mhz - 1237.5) < 10);
      CHECK(std::abs(*part.watts - 600) < 4);
      CHECK(std::abs(*part.throttle_cost - 0.375) < 0.005);
      CHECK(part.throttled_sm_mhz == 990.0);
      // The time of a row is all its readings'.
      CHECK(use_of(6 * kSecond, 20 * kSecond).throttled == 1.0);
    };
    check();
    // As when room is made.
    std::size_t kept = 0;
    for (std::size_t i = 0; i < readings.size(); ++i)
      if (i >= readings.size() / 2 || i % 2 == 0) readings[kept++] = readings[i];
    readings.resize(kept);
    check();
  }
  SECTION("a part of the time does not stand for all of it") {
    constexpr Nanoseconds kPace = 50 * kEnergyMs;
    constexpr Nanoseconds kStart = 10 * kSecond;
    const auto read = [&](Nanoseconds begin, Nanoseconds end, bool with_reasons = true) {
      for (Nanoseconds time = begin; time < end; time += kPace) {
        ClockReading reading;
        reading.time = kStart + time;
        reading.sm_mhz = 1755;
        reading.temperature = 40;
        if (with_reasons) reading.throttle_reasons = kThrottlePower;
        readings.push_back(reading);
      }
    };
    const auto known = [&](Nanoseconds begin, Nanoseconds end) {
      const ClockUse part = use_of(kStart + begin, kStart + end);
      CHECK(part.sm_mhz.has_value() == part.sm_min_mhz.has_value());
      CHECK(part.sm_mhz.has_value() == part.temperature.has_value());
      CHECK(part.throttled.has_value() == part.throttled_by_heat.has_value());
      CHECK(part.throttled.has_value() == part.throttle_cost.has_value());
      CHECK(part.throttled.has_value() == part.throttled_sm_mhz.has_value());
      return std::make_pair(part.sm_mhz.has_value(), part.throttled.has_value());
    };
    using Known = std::pair<bool, bool>;
    readings.clear();
    SECTION("one value ceases to come") {
      read(0, kSecond);
      read(kSecond, 5 * kSecond, false);
      CHECK(known(0, 4700 * kEnergyMs) == Known{true, false});
      CHECK(known(0, kSecond) == Known{true, true});
      // No second is without one, but more than a tenth of the time.
      CHECK(known(500 * kEnergyMs, 1400 * kEnergyMs) == Known{true, false});
      CHECK(known(0, 1050 * kEnergyMs) == Known{true, true});
    }
    SECTION("readings begin late, end early or pause") {
      read(2 * kSecond, 4 * kSecond);
      read(6 * kSecond, 8 * kSecond);
      CHECK(known(500 * kEnergyMs, 4 * kSecond) == Known{});
      CHECK(known(1500 * kEnergyMs, 4 * kSecond) == Known{true, true});
      CHECK(known(2 * kSecond, 5500 * kEnergyMs) == Known{});
      CHECK(known(2 * kSecond, 4500 * kEnergyMs) == Known{true, true});
      CHECK(known(2 * kSecond, 8 * kSecond) == Known{});
      // Less than a tenth of the time.
      read(8 * kSecond, 25 * kSecond);
      CHECK(known(2 * kSecond, 25 * kSecond) == Known{true, true});
    }
    SECTION("many windows") {
      read(0, 5 * kSecond);
      const auto sum_of_windows = [&](Nanoseconds until) {
        ClockSums sums(1980);
        for (Nanoseconds time = 0; time < until; time += 60 * kEnergyMs)
          sums.add(readings, kStart + time + kEnergyMs, kStart + time + 31 * kEnergyMs);
        return sums.use();
      };
      // Most have none of their own.
      CHECK(sum_of_windows(5 * kSecond).throttled == 1.0);
      CHECK(sum_of_windows(6 * kSecond).throttled == 1.0);
      CHECK_FALSE(sum_of_windows(8 * kSecond).throttled);
    }
  }
  SECTION("without the highest clock there is no bound on the cost") {
    ClockSums sums(0);
    sums.add(readings, 0, 9 * kSecond);
    CHECK_FALSE(sums.use().throttle_cost);
    CHECK(sums.use().throttled == 0.5);
  }
}
