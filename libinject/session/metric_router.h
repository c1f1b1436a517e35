// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "libinject/model/metric_samples.h"
#include "libinject/output/chrome_trace.h"
#include "libinject/output/metric_timeline.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Hands hardware samples on to the statistics and the timelines, each with the window in which it began. One
/// thread at a time; the clock is the caller's.
class MetricRouter {
 public:
  static constexpr std::size_t kMaxPending = 16'384;
  /// Samples are joined to their kernels so often, where there are many.
  static constexpr Nanoseconds kJoinInterval = 250 * kMillisecond;

  MetricRouter(const WindowLog& windows, Statistics& statistics, MetricTimeline& timeline,
               ChromeTrace& chrome)
      : windows_(windows), statistics_(statistics), timeline_(timeline), chrome_(chrome) {}

  /// What is sampled, as soon as that is known: the kernels that the samples are joined to come after it.
  /// Once.
  void set_columns(std::vector<MetricInfo> columns);
  bool has_columns() const { return !columns_.empty(); }

  /// They wait until their window is known.
  void add(std::span<const MetricSample> samples);
  bool pending() const { return !pending_.empty(); }

  /// Samples that began no later than `until` are handed on: whoever opens or closes a window takes the time
  /// first and enters it afterwards, and may lose its processor in between. Those that began later wait, up
  /// to kMaxPending.
  void route(Nanoseconds until);
  /// Where many samples wait for their windows' ends, joins those that all kernels up to `told_until` are
  /// known for.
  void join(Nanoseconds time, Nanoseconds told_until);

 private:
  const WindowLog& windows_;
  Statistics& statistics_;
  MetricTimeline& timeline_;
  ChromeTrace& chrome_;
  std::vector<MetricInfo> columns_;
  std::deque<MetricSample> pending_;
  Nanoseconds joined_ = 0;
};

}  // namespace inject
