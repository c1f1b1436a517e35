// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/sample_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

SampleStats of(const std::vector<std::uint64_t>& values) {
  SampleStats stats;
  for (const std::uint64_t value : values) stats.add(value);
  return stats;
}

double exact_median(std::vector<std::uint64_t> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (static_cast<double>(values[(n - 1) / 2]) + static_cast<double>(values[n / 2])) / 2;
}

}  // namespace

TEST_CASE("No sample, one sample", "[stats]") {
  const SampleStats none;
  CHECK(none.count() == 0);
  CHECK(none.sum() == 0);
  CHECK(none.min() == 0);
  CHECK(none.max() == 0);
  CHECK(none.mean() == 0);
  CHECK(none.median() == 0);
  CHECK(none.stddev() == 0);
  const SampleStats one = of({42});
  CHECK(one.sum() == 42);
  CHECK(one.min() == 42);
  CHECK(one.max() == 42);
  CHECK(one.median() == 42);
  CHECK(one.stddev() == 0);
}

TEST_CASE("The figures of a published Nsight Systems report", "[stats]") {
  // Three copies whose report shows 3,681 1,227.0 1,313.0 1,024 1,344 176.5.
  const SampleStats stats = of({1024, 1313, 1344});
  CHECK(stats.sum() == 3681);
  CHECK(stats.mean() == Approx(1227.0));
  CHECK(stats.median() == 1313);
  CHECK(stats.stddev() == Approx(176.4851).epsilon(1e-6));
  CHECK(stats.median_error() == 0);
}

TEST_CASE("The median of an even number of values lies between the middle two", "[stats]") {
  CHECK(of({4, 1, 3, 2}).median() == 2.5);
  CHECK(of({10, 20}).median() == 15);
  CHECK(of({std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::uint64_t>::max()}).median() ==
        Approx(1.8446744073709552e19));
}

TEST_CASE("The deviation of large values with a small spread is exact", "[stats]") {
  const std::uint64_t base = std::uint64_t{1} << 50;
  CHECK(of({base, base + 1, base + 2}).stddev() == Approx(1.0).epsilon(1e-12));
  SampleStats many;
  for (int i = 0; i < 1'000'000; ++i) many.add(1'000'000'000'000u + static_cast<std::uint64_t>(i % 2));
  CHECK(many.stddev() == Approx(0.5).epsilon(1e-5));
}

TEST_CASE("Nothing overflows", "[stats]") {
  const std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  const SampleStats stats = of({largest, largest, largest, 0});
  CHECK(stats.sum() == largest);
  CHECK(stats.mean() == Approx(0.75 * 1.8446744073709552e19));
  CHECK(std::isfinite(stats.stddev()));
}

TEST_CASE("A percentile is a value that the share of the values does not exceed", "[stats]") {
  CHECK(of({}).percentile(0.95) == 0);
  CHECK(of({7}).percentile(0.95) == 7);
  const SampleStats ten = of({10, 1, 9, 2, 8, 3, 7, 4, 6, 5});
  CHECK(ten.percentile(0) == 1);
  CHECK(ten.percentile(0.1) == 1);
  CHECK(ten.percentile(0.11) == 2);
  CHECK(ten.percentile(0.5) == 5);
  CHECK(ten.percentile(0.95) == 10);
  CHECK(ten.percentile(1) == 10);
  SampleStats many;
  for (std::uint64_t value = 1; value <= 100'000; ++value) many.add(value * 7919 % 100'003);
  CHECK(static_cast<double>(many.percentile(0.95)) == Approx(95'000).epsilon(many.median_error() + 1e-4));
  CHECK(many.percentile(1) == many.max());
}

TEST_CASE("The median is exact up to kExactSamples and near beyond", "[stats]") {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> values;
  SampleStats stats;
  std::lognormal_distribution<double> times(8.0, 0.3);  // about 3 us
  for (std::size_t i = 0; i < SampleStats::kExactSamples; ++i) {
    values.push_back(static_cast<std::uint64_t>(times(random)));
    stats.add(values.back());
  }
  CHECK(stats.median_error() == 0);
  CHECK(stats.median() == exact_median(values));
  for (int i = 0; i < 100'000; ++i) {
    values.push_back(static_cast<std::uint64_t>(times(random)));
    stats.add(values.back());
  }
  CHECK(stats.median_error() == 1.0 / 128);
  CHECK(std::abs(stats.median() / exact_median(values) - 1) <= 1.0 / 128);
  CHECK(stats.sum() == std::accumulate(values.begin(), values.end(), std::uint64_t{0}));
}

TEST_CASE("The median's error stays within its stated bound for any distribution", "[stats]") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 60; ++round) {
    // From one octave to the whole range, log-uniform.
    const double octaves = 1.0 + round;
    std::uniform_real_distribution<double> exponent(0.0, std::min(octaves, 63.9));
    std::vector<std::uint64_t> values;
    SampleStats stats;
    for (int i = 0; i < 12'000; ++i) {
      values.push_back(static_cast<std::uint64_t>(std::exp2(exponent(random))));
      stats.add(values.back());
    }
    const double exact = exact_median(values);
    INFO(octaves << " octaves: " << stats.median() << " for " << exact << ", bound " << stats.median_error());
    CHECK(std::abs(stats.median() - exact) <= stats.median_error() * exact);
    // As docs/limits.md states.
    CHECK(stats.median_error() <= 1.0 / 16);
    if (octaves <= 7) CHECK(stats.median_error() == 1.0 / 128);
    if (octaves <= 15) CHECK(stats.median_error() <= 1.0 / 64);
    if (octaves <= 31) CHECK(stats.median_error() <= 1.0 / 32);
  }
}

TEST_CASE("The median's bound holds for samples made to break it", "[stats]") {
  // Includes zero and every quarter of each power of two, so that buckets are as wide as possible; half of
  // the values lie at one end of a bucket, where its middle is farthest away.
  std::mt19937_64 random(5);
  for (unsigned octave = 0; octave < 64; ++octave) {
    const std::uint64_t low = std::uint64_t{1} << octave;
    for (const std::uint64_t value :
         {low, low + low / 16 - (octave >= 4 ? 1 : 0), low + (low - 1), low + random() % low}) {
      SampleStats stats;
      std::vector<std::uint64_t> values;
      const auto add = [&](std::uint64_t sample) {
        values.push_back(sample);
        stats.add(sample);
      };
      for (unsigned i = 0; i < 64; ++i) {
        const std::uint64_t power = std::uint64_t{1} << i;
        for (unsigned quarter = 0; quarter < 4; ++quarter) add(power + power / 4 * quarter);
      }
      add(0);
      for (int i = 0; i < 3000; ++i) add(value);
      const double exact = exact_median(values);
      INFO(value << ": " << stats.median() << ", bound " << stats.median_error());
      CHECK(exact == static_cast<double>(value));
      CHECK(std::abs(stats.median() - exact) <= stats.median_error() * exact);
      CHECK(stats.median_error() == 1.0 / 16);
    }
  }
}

TEST_CASE("Small values and zeros in the histogram are exact", "[stats]") {
  SampleStats stats;
  for (int i = 0; i < 9001; ++i) stats.add(static_cast<std::uint64_t>(i % 61));
  CHECK(stats.median_error() > 0);
  CHECK(stats.median() == 30);
  SampleStats zeros;
  for (int i = 0; i < 9001; ++i) zeros.add(0);
  CHECK(zeros.median() == 0);
}

TEST_CASE("Equal values are exact in the histogram", "[stats]") {
  SampleStats stats;
  for (int i = 0; i < 100'000; ++i) stats.add(123'457);
  CHECK(stats.median() == 123'457);
  CHECK(stats.stddev() == 0);
}

TEST_CASE("Merging is the same as adding", "[stats]") {
  std::mt19937_64 random(3);
  for (const std::size_t size : {0u, 1u, 7u, 3000u, 9000u}) {
    for (const std::size_t other_size : {0u, 1u, 5u, 2000u, 9000u}) {
      SampleStats a;
      SampleStats b;
      SampleStats all;
      std::vector<std::uint64_t> values;
      for (std::size_t i = 0; i < size + other_size; ++i) {
        const std::uint64_t value = 1000 + random() % 100'000;
        values.push_back(value);
        (i < size ? a : b).add(value);
        all.add(value);
      }
      a.merge(b);
      INFO(size << " + " << other_size);
      CHECK(a.count() == all.count());
      CHECK(a.sum() == all.sum());
      CHECK(a.min() == all.min());
      CHECK(a.max() == all.max());
      CHECK(a.stddev() == all.stddev());
      CHECK(a.median() == Approx(all.median()).epsilon(1.0 / 64));
      if (!values.empty() && values.size() <= SampleStats::kExactSamples)
        CHECK(a.median() == exact_median(values));
    }
  }
}

TEST_CASE("Merging histograms of different widths", "[stats]") {
  SampleStats narrow;
  SampleStats wide;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    narrow.add(5000);
    wide.add(std::uint64_t{1} << (i % 50));
  }
  narrow.merge(wide);
  CHECK(narrow.count() == 20'000);
  // 2,600 powers of two are below 5,000, so both middle values are 5,000.
  CHECK(narrow.median() == Approx(5000).epsilon(narrow.median_error()));
  narrow.merge(narrow);
  CHECK(narrow.count() == 40'000);
}

TEST_CASE("The budget for exact medians is shared and given back", "[stats]") {
  SampleBudget budget;
  budget.limit = 1024;
  {
    SampleStats first(&budget);
    for (int i = 0; i < 100; ++i) first.add(7);
    CHECK(first.median_error() == 0);
    CHECK(budget.used == 1024);
    SampleStats second(&budget);
    second.add(1000);
    second.add(3000);
    CHECK(second.median_error() > 0);
    CHECK(second.median() == Approx(2000).epsilon(0.01));
    CHECK(second.stddev() == Approx(1414.2136));
    // A row that moves, as in a growing table, takes its samples along.
    SampleStats moved = std::move(first);
    CHECK(moved.median() == 7);
    CHECK(budget.used == 1024);
    for (int i = 0; i < 100; ++i) moved.add(7);
    CHECK(moved.median_error() > 0);
    CHECK(budget.used == 0);
  }
  CHECK(budget.used == 0);
}

TEST_CASE("Counters of the histogram do not overflow", "[stats]") {
  LogHistogram histogram;
  for (int i = 0; i < 5; ++i) histogram.add(100, std::numeric_limits<std::uint32_t>::max() / 2);
  histogram.add(1000, std::numeric_limits<std::uint32_t>::max() / 2);
  CHECK(histogram.value_at(0) == 100);
  CHECK(histogram.value_at(histogram.total() / 2) == 100);
  CHECK(histogram.value_at(histogram.total() - 1) == Approx(1000).epsilon(1.0 / 128));
}

TEST_CASE("Totals", "[stats]") {
  Totals totals;
  CHECK(totals.smallest() == 0);
  CHECK(totals.mean() == 0);
  totals.add(10);
  totals.add(4);
  Totals more;
  more.add(1);
  totals.merge(more);
  totals.merge(Totals{});
  CHECK(totals.count == 3);
  CHECK(totals.sum == 15);
  CHECK(totals.smallest() == 1);
  CHECK(totals.max == 10);
  CHECK(totals.mean() == 5);
}
