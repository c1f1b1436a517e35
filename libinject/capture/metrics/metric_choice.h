// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Which hardware metrics are sampled on a chip: those that it can measure in one pass. Pure;
// metrics/metric_host makes the calls to CUPTI.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "libinject/model/metric_samples.h"

namespace inject {

/// What has to be known about a chip.
struct ChipMetrics {
  std::vector<std::string> base_names;  ///< of all metrics, without rollups
  /// Number of passes that these metrics (names with rollups) need together; 0 if at least one of them is
  /// unknown.
  std::function<std::size_t(const std::vector<std::string>& names)> passes;
  /// Why the latest passes() returned 0, if not because a metric is unknown. May be empty.
  std::function<std::string()> problem = nullptr;
};

struct MetricChoice {
  std::vector<MetricInfo> metrics;    ///< in the order of MetricSample::values
  std::vector<std::string> measured;  ///< what is requested from CUPTI
  std::vector<std::string> left_out;  ///< titles of what this chip lacks or can't measure in the same pass
  bool temporary = false;             ///< the next attempt may have another result
  std::string error;                  ///< why nothing can be sampled; empty if there is no error

  /// Converts what CUPTI measured, in the order of `measured`, to a sample's values.
  std::array<float, kMaxMetrics> values(std::span<const double> of_measured) const;

  /// True if a sample's values can't all be right: more warps, or more work of a pipe, than the SMs were
  /// active for.
  bool contradictory(std::span<const float> values) const;

  /// How each of `metrics` is computed from `measured`.
  struct Source {
    std::size_t measured = 0;
    double scale = 1;
    /// If not kNone: the value is a percentage of this one. Occupancy is warps active divided by cycles in
    /// which the SM was active.
    std::size_t share_of = kNone;
  };
  static constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<Source> sources;
};

/// INJECT_METRICS=auto: the quantities of Quantity that fit into one pass, the most important first.
MetricChoice choose_metrics(const ChipMetrics& chip);

/// INJECT_METRICS=NAME,…: exactly these.
MetricChoice check_metrics(const ChipMetrics& chip, const std::vector<std::string>& names);

/// Leaves out the least important of the measured metrics, NVLink first, for a device some of whose units
/// report nothing. The columns remain, without values. Returns their titles; empty if everything left is
/// needed, or chosen by the user.
std::vector<std::string> leave_out_least_important(MetricChoice& choice);

/// For a second chip beside one whose metrics have been chosen: its own `choice` with the columns of `first`.
/// Columns that it lacks remain without values.
MetricChoice with_columns_of(const MetricChoice& first, const MetricChoice& choice);

}  // namespace inject
