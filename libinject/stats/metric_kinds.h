// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "libinject/model/metric_samples.h"

namespace inject {

/// Whether a metric's values lie between 0 and 100: its title says so.
bool is_percentage(const MetricInfo& metric);

/// Whether a metric is one per cycle in which multiprocessors were active: means over time are weighted with
/// these, and what kernels do one beside the other in a sample adds up only once it is multiplied with them.
bool is_per_active_cycle(const MetricInfo& metric);

/// Whether a metric is of a link to other devices or the host: copies and others fill it, and a kernel's own
/// share is lost in theirs.
bool is_of_link(const MetricInfo& metric);

/// What is sampled, kMaxMetrics at most, and of what kind each of it is.
class MetricKinds {
 public:
  MetricKinds() = default;
  explicit MetricKinds(std::vector<MetricInfo> list);

  const std::vector<MetricInfo>& list() const { return list_; }
  std::size_t size() const { return list_.size(); }
  bool percentage(std::size_t metric) const { return percentage_[metric]; }
  /// Where it is known how active multiprocessors were: otherwise it is taken as a figure like others.
  bool per_active_cycle(std::size_t metric) const { return sm_active_ && is_per_active_cycle(list_[metric]); }
  bool of_link(std::size_t metric) const { return is_of_link(list_[metric]); }
  /// The metric that says how active multiprocessors were, in percent. There is one where any metric is
  /// per_active_cycle().
  std::size_t sm_active() const { return *sm_active_; }

 private:
  std::vector<MetricInfo> list_;
  std::vector<bool> percentage_;
  std::optional<std::size_t> sm_active_;
};

}  // namespace inject
