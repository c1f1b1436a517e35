// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/metric_router.h"

#include <utility>

namespace inject {

void MetricRouter::set_columns(std::vector<MetricInfo> columns) {
  if (has_columns() || columns.empty()) return;
  columns_ = std::move(columns);
  statistics_.set_metrics(columns_);
}

void MetricRouter::add(std::span<const MetricSample> samples) {
  pending_.insert(pending_.end(), samples.begin(), samples.end());
}

void MetricRouter::route(Nanoseconds until) {
  const bool timeline = timeline_.is_open();
  const bool chrome = chrome_.is_open();
  // Samples after a window, while its work is still running, belong to no window but are shown beside it.
  const bool collecting = !windows_.closing().empty();
  while (!pending_.empty()) {
    MetricSample sample = pending_.front();
    if (sample.start > until && pending_.size() <= kMaxPending) break;
    pending_.pop_front();
    sample.window = windows_.at(sample.start);
    sample.after = windows_.opened_by(sample.start);
    statistics_.add(sample);
    if (sample.window == 0 && !collecting) continue;
    if (timeline) timeline_.add(sample, columns_);
    if (chrome) chrome_.add(sample, columns_);
  }
}

// Samples wait for the window's end, so that order does not matter; for a long window, not all of them do.
void MetricRouter::join(Nanoseconds time, Nanoseconds told_until) {
  if (statistics_.metrics().held_samples() < KernelMetrics::kMaxSamples / 4 || time - joined_ < kJoinInterval)
    return;
  joined_ = time;
  statistics_.join_samples_until(told_until);
}

}  // namespace inject
