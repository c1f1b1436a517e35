// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The profiler's share of a step: docs/diagnosis.md#the-profilers-own-share.
#pragma once

#include <optional>

#include "libinject/analysis/sample_stats.h"

namespace inject {

/// A median with a confidence interval of at least 97.5 %, whatever the steps' distribution.
struct MedianInterval {
  double median = 0;
  double low = 0;
  double high = 0;
};

/// From order statistics alone; empty for fewer than seven values, which are too few.
std::optional<MedianInterval> median_interval(const SampleStats& values);

/// 1 - median outside windows / median inside, with a confidence interval of at least 95 %.
struct OverheadEstimate {
  double share = 0;
  double low = 0;
  double high = 0;
  double outside = 0;  ///< the median, in nanoseconds

  /// False if the overhead is not significant, or steps inside windows were shorter, as those are that run
  /// ahead of an idle device when a window opens.
  bool seen() const { return low > 0; }
};

/// Empty if one of the medians has no interval.
std::optional<OverheadEstimate> profiler_overhead(const std::optional<MedianInterval>& outside,
                                                  const std::optional<MedianInterval>& inside);

}  // namespace inject
