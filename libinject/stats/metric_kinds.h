// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "libinject/model/metric_samples.h"

namespace inject {

/// Whether a metric's values lie between 0 and 100, judging by its title.
bool is_percentage(const MetricInfo& metric);

/// Whether a metric is per cycle in which multiprocessors were active. Means over time are weighted by these
/// cycles, and the values of kernels that share a sample must be multiplied by them before they add up.
bool is_per_active_cycle(const MetricInfo& metric);

/// Whether a metric describes a link to other devices or the host: copies and other traffic use the link too,
/// and a kernel's own share cannot be separated.
bool is_of_link(const MetricInfo& metric);

/// The sampled metrics, at most kMaxMetrics, and the kind of each.
class MetricKinds {
 public:
  MetricKinds() = default;
  explicit MetricKinds(std::vector<MetricInfo> list);

  const std::vector<MetricInfo>& list() const { return list_; }
  std::size_t size() const { return list_.size(); }
  bool percentage(std::size_t metric) const { return percentage_[metric]; }
  /// Only if the activity of multiprocessors is also sampled; otherwise the metric is treated like any other.
  bool per_active_cycle(std::size_t metric) const { return sm_active_ && is_per_active_cycle(list_[metric]); }
  bool of_link(std::size_t metric) const { return is_of_link(list_[metric]); }
  /// The metric of multiprocessor activity, in percent. Exists if any metric is per_active_cycle().
  std::size_t sm_active() const { return *sm_active_; }

 private:
  std::vector<MetricInfo> list_;
  std::vector<bool> percentage_;
  std::optional<std::size_t> sm_active_;
};

}  // namespace inject
