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

/// Passes hardware samples on to the statistics and the timelines, each with the window in which it began.
/// One thread at a time; the caller provides the time.
class MetricRouter {
 public:
  static constexpr std::size_t kMaxPending = 16'384;
  /// How often samples are joined to their kernels, if there are many.
  static constexpr Nanoseconds kJoinInterval = 250 * kMillisecond;

  MetricRouter(const WindowLog& windows, Statistics& statistics, MetricTimeline& timeline,
               ChromeTrace& chrome)
      : windows_(windows), statistics_(statistics), timeline_(timeline), chrome_(chrome) {}

  /// The columns that are sampled, as soon as they are known: the kernels that the samples are joined to come
  /// later. Once.
  void set_columns(std::vector<MetricInfo> columns);
  bool has_columns() const { return !columns_.empty(); }

  /// The samples wait until their window is known.
  void add(std::span<const MetricSample> samples);
  bool pending() const { return !pending_.empty(); }

  /// Passes on samples that began no later than `until`: whoever opens or closes a window takes the time
  /// first and enters it afterwards, and may be preempted in between. Later samples wait, up to kMaxPending.
  void route(Nanoseconds until);
  /// If many samples are waiting for their windows' ends, joins those whose kernels are all known, up to
  /// `told_until`.
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
