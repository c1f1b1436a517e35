// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/profiler_overhead.h"

#include <cstdint>

namespace inject {

namespace {

// Two intervals with 97.5 % confidence each hold both medians with 95 %.
constexpr double kMissProbability = 0.025;

/// How many of `count` values may lie on either side of the interval: the largest number such that, with a
/// probability of at most kMissProbability / 2, fewer than that many values lie below the true median.
std::uint64_t left_out(std::uint64_t count) {
  // P(X = k) of a binomial distribution with p = 1/2, from the middle down, because 2^-count soon underflows
  // a double. The weights are normalised by the sum over both halves.
  const std::uint64_t middle = count / 2;
  const auto below = [](std::uint64_t of, std::uint64_t k) {  // P(k - 1) / P(k)
    return static_cast<double>(k) / static_cast<double>(of - k + 1);
  };
  double weight = 1;
  double all = 0;
  for (std::uint64_t k = middle;; --k) {
    all += weight;
    if (k == 0 || weight < 1e-12) break;
    weight *= below(count, k);
  }
  const bool even = count % 2 == 0;
  all = even ? 2 * all - 1 : 2 * all;
  // Down from the middle again, until the remaining tail is small enough.
  double tail = even ? (all - 1) / 2 + 1 : all / 2;  // P(X <= middle), as a weight
  weight = 1;
  for (std::uint64_t k = middle;; --k) {
    if (tail <= kMissProbability / 2 * all) return k + 1;
    if (k == 0) return 0;
    tail -= weight;
    weight *= below(count, k);
  }
}

}  // namespace

std::optional<MedianInterval> median_interval(const SampleStats& values) {
  const std::uint64_t count = values.count();
  const std::uint64_t out = left_out(count);
  if (out == 0 || 2 * out > count) return std::nullopt;
  // Once values are no longer kept individually, quantiles have an error of their own.
  const double error = values.median_error();
  return MedianInterval{values.median(), static_cast<double>(values.value_at(out - 1)) * (1 - error),
                        static_cast<double>(values.value_at(count - out)) * (1 + error)};
}

std::optional<OverheadEstimate> profiler_overhead(const std::optional<MedianInterval>& outside,
                                                  const std::optional<MedianInterval>& inside) {
  if (!outside || !inside || inside->low <= 0) return std::nullopt;
  return OverheadEstimate{1 - outside->median / inside->median, 1 - outside->high / inside->low,
                          1 - outside->low / inside->high, outside->median};
}

}  // namespace inject
