// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Which hardware metrics are sampled on a chip: what it can measure in one pass. Pure; who asks CUPTI is
// metrics/metric_host.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "libinject/model/metric_samples.h"

namespace inject {

/// What is asked of a chip.
struct ChipMetrics {
  std::vector<std::string> base_names;  ///< of all metrics, without rollups
  /// Passes that these metrics (names with rollups) need together; 0: at least one of them is not known.
  std::function<std::size_t(const std::vector<std::string>& names)> passes;
  /// Why the latest passes() came to 0, if it is not that a metric is unknown. May be empty.
  std::function<std::string()> problem = nullptr;
};

struct MetricChoice {
  std::vector<MetricInfo> metrics;    ///< in the order of MetricSample::values
  std::vector<std::string> measured;  ///< what CUPTI is asked for
  std::vector<std::string> left_out;  ///< titles of what this chip lacks or can't measure in the same pass
  bool temporary = false;             ///< … the next time it may be otherwise
  std::string error;                  ///< why nothing can be sampled; empty if all is well

  /// A sample's values from what CUPTI measured, in the order of `measured`.
  std::array<float, kMaxMetrics> values(std::span<const double> of_measured) const;

  /// Whether a sample's values can't all be right: more warps, or more work of a pipe, than the SMs were
  /// active for.
  bool contradictory(std::span<const float> values) const;

  /// How each of `metrics` comes out of `measured`.
  struct Source {
    std::size_t measured = 0;
    double scale = 1;
    /// Not kNone: the share of another, in percent. Occupancy is warps active by cycles in which the SM was.
    std::size_t share_of = kNone;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<Source> sources;
};

/// INJECT_METRICS=auto: the quantities of Quantity that fit into one pass, the most important first.
MetricChoice choose_metrics(const ChipMetrics& chip);

/// INJECT_METRICS=NAME,…: these, all of them.
MetricChoice check_metrics(const ChipMetrics& chip, const std::vector<std::string>& names);

/// Leaves out what matters the least of what is measured, NVLink first, for a device some of whose units tell
/// nothing. The columns stay, without a value. Their titles; none: all that is left is needed, or the user's.
std::vector<std::string> leave_out_least_important(MetricChoice& choice);

/// For a second chip beside one whose metrics have been chosen: its own `choice` with the columns of `first`.
/// What it lacks stays without a value.
MetricChoice with_columns_of(const MetricChoice& first, const MetricChoice& choice);

}  // namespace inject
