// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The profiler's share of a step: docs/diagnosis.md#the-profilers-own-share.
#pragma once

#include <cstdint>
#include <optional>

#include "libinject/analysis/device_times.h"
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

/// What the profiler added to the time of a window's steps: their sum less that of as many without it, of
/// their sum, with a 95 % confidence interval. By means, as a device's busy time is of all steps, the slow
/// ones as well. Steps of more than kOtherKind medians are of another kind (an evaluation, a checkpoint):
/// those outside don't count, and those in the window stay as they are.
struct AddedTime {
  double share = 0;
  double low = 0;
  double high = 0;
};
inline constexpr double kOtherKind = 10;

/// How much longer a typical step is: 1 - median outside windows / median inside, with a confidence interval
/// of at least 95 %.
struct OverheadEstimate {
  double share = 0;
  double low = 0;
  double high = 0;
  double outside = 0;  ///< the median, in nanoseconds
  AddedTime added;

  /// False if the overhead is not significant, or steps inside windows were shorter, as those are that run
  /// ahead of an idle device when a window opens.
  bool seen() const { return low > 0; }
};

/// By how much longer steps are of which the profiler has that share: 0.25 is a quarter longer.
constexpr double longer_by(double share) {
  return share / (1 - share);
}

/// From this on a window's steps are so much longer that its idle time says more of the profiler than of the
/// program.
inline constexpr double kMuchLonger = 0.05;

/// A figure as it would be without the profiler, with bounds; all are shares of the time, 0 … 1.
struct CorrectedShare {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// How a device's time would be spent without the profiler, which keeps the host busy and so lengthens the
/// device's idle time: kernels run as long as before, in less time. What the steps took longer is taken out
/// of the idle time that the host's launches, other calls and computing caused, and out of the rest only
/// where that is not enough.
struct WithoutProfiler {
  DeviceTimes times;
  CorrectedShare utilization;
  CorrectedShare launch_bound;
};

/// Empty if it can't be: the steps are longer by more than all idle time.
std::optional<WithoutProfiler> without_profiler(const DeviceTimes& times, const AddedTime& added);

/// What a verdict is about: the times without the profiler where these are known.
DeviceTimes judged_times(const DeviceTimes& times, const std::optional<OverheadEstimate>& overhead);

/// From the steps' times; empty if one of the medians has no interval.
std::optional<OverheadEstimate> profiler_overhead(const SampleStats& outside, const SampleStats& inside);

}  // namespace inject
