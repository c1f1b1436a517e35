// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the profiler takes of a step: docs/diagnosis.md#the-profilers-own-share.
#pragma once

#include <optional>

#include "libinject/analysis/sample_stats.h"

namespace inject {

/// A median, and an interval that holds that of all steps in at least 97.5 of 100 cases, whatever the steps'
/// distribution.
struct MedianInterval {
  double median = 0;
  double low = 0;
  double high = 0;
};

/// From the order of the values alone; nothing for fewer than seven, which can't tell.
std::optional<MedianInterval> median_interval(const SampleStats& values);

/// 1 - median outside windows / median inside, and an interval that holds it in at least 95 of 100 cases.
struct OverheadEstimate {
  double share = 0;
  double low = 0;
  double high = 0;
  double outside = 0;  ///< the median, in nanoseconds

  /// False: it can't be told from nothing, or steps inside were the shorter ones. Those that run ahead of an
  /// idle device as a window opens are.
  bool seen() const { return low > 0; }
};

/// Nothing where one of the medians has no interval.
std::optional<OverheadEstimate> profiler_overhead(const std::optional<MedianInterval>& outside,
                                                  const std::optional<MedianInterval>& inside);

}  // namespace inject
