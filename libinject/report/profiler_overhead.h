// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The profiler's share of a step: docs/diagnosis.md#the-profilers-own-share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "libinject/analysis/device_times.h"
#include "libinject/analysis/diagnosis.h"
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

/// The time that the profiler added to a window's steps: their sum minus that of as many steps without it,
/// divided by their sum, with a 95 % confidence interval. Based on means, because a device's busy time
/// includes all steps, slow ones as well. Steps of more than kOtherKind medians are of another kind (an
/// evaluation, a checkpoint): those outside don't count, and those in the window are left unchanged.
struct AddedTime {
  double share = 0;
  double low = 0;
  double high = 0;
  double steps = 0;  ///< the sum, in nanoseconds
};
inline constexpr double kOtherKind = 10;

/// How much longer a typical step is: 1 - median outside windows / median inside, with a confidence interval
/// of at least 95 %.
struct OverheadEstimate {
  double share = 0;
  double low = 0;
  double high = 0;
  double outside = 0;  ///< the median outside, in nanoseconds
  AddedTime added;

  /// False if the overhead is not significant, or steps inside windows were shorter, like those that run
  /// ahead of an idle device when a window opens.
  bool seen() const { return low > 0; }
};

/// How much longer steps are if the profiler has this share of them: 0.25 is a quarter longer.
constexpr double longer_by(double share) {
  return share / (1 - share);
}

/// From this share on, a window's steps are so much longer that its idle time says more about the profiler
/// than about the program.
inline constexpr double kMuchLonger = 0.05;

/// A figure as it would be without the profiler, with bounds; all are shares of the time, 0 … 1.
struct CorrectedShare {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// How a device's time would be spent without the profiler, which keeps the host busy and so lengthens the
/// device's idle time: kernels run as long as before, in less time. The steps' added time is subtracted from
/// the idle time caused by the host's launches, other calls and computing, and from the rest only if that is
/// not enough. Time outside complete iterations, such as a validation between two of them, stays as it is.
struct WithoutProfiler {
  DeviceTimes times;
  CorrectedShare utilization;
  CorrectedShare launch_bound;
};

/// `times`: the sum over this many devices. Empty if the steps are longer by more than all idle time, or by
/// more than kMuchLonger of the time without being significantly longer.
std::optional<WithoutProfiler> without_profiler(const DeviceTimes& times, const AddedTime& added,
                                                std::size_t devices = 1);

/// The times on which a verdict is based: those without the profiler if known.
DeviceTimes judged_times(const DeviceTimes& times, const std::optional<OverheadEstimate>& overhead,
                         std::size_t devices = 1);

/// What limits the device, based on these times. The profiler's share may also be in the host's own work and
/// waits, as a stall that other iterations do not have: if the verdict would then be another one, it is
/// mixed, or undetermined where the kernels would be the limit.
Diagnosis judge(const DeviceTimes& times, const std::optional<OverheadEstimate>& overhead,
                std::size_t devices, const KernelLimits& limits, int multiprocessors);

/// Computed from the steps' times; empty if one of the medians has no interval.
std::optional<OverheadEstimate> profiler_overhead(const SampleStats& outside, const SampleStats& inside);

}  // namespace inject
