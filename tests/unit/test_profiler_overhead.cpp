// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/profiler_overhead.h"

#include <cmath>
#include <initializer_list>
#include <random>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

SampleStats stats_of(std::initializer_list<std::uint64_t> values) {
  SampleStats stats;
  for (const std::uint64_t value : values) stats.add(value);
  return stats;
}

/// Skewed, as step times are: most are alike, and some are much longer.
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
    // 2.5 % at most, and what chance adds to that.
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
    const auto overhead = profiler_overhead(median_interval(outside), median_interval(inside));
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
  const auto overhead = profiler_overhead(median_interval(outside), median_interval(inside));
  REQUIRE(overhead.has_value());
  CHECK(overhead->seen());
  CHECK(overhead->share == Approx(0.2));
  CHECK(overhead->outside == 1'000'000);
  // Steps in the window that are the shorter ones are none of our doing.
  const auto reverse = profiler_overhead(median_interval(inside), median_interval(outside));
  REQUIRE(reverse.has_value());
  CHECK(reverse->share == Approx(-0.25));
  CHECK_FALSE(reverse->seen());
}

TEST_CASE("An overhead is not known from too few steps", "[overhead]") {
  const SampleStats few = stats_of({1, 2, 3});
  const SampleStats enough = stats_of({1, 2, 3, 4, 5, 6, 7, 8});
  CHECK_FALSE(profiler_overhead(median_interval(few), median_interval(enough)).has_value());
  CHECK_FALSE(profiler_overhead(median_interval(enough), median_interval(few)).has_value());
}
