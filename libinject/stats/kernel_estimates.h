// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "libinject/analysis/block_means.h"
#include "libinject/stats/metric_kinds.h"
#include "libinject/stats/sample_join.h"
#include "libinject/stats/sample_mixture.h"

namespace inject {

/// Estimate of a metric of a kernel, or of anything else with few samples.
struct MetricEstimate {
  double value = 0;
  /// The value to use in sums over kernels: the unclamped estimate from all samples, possibly below 0.
  /// Clamping can only make the values of kernels that do next to nothing too large, and therefore their sum
  /// as well.
  double summand = 0;
  double error = 0;       ///< half the width of the 95 % confidence interval
  bool measured = false;  ///< a value exists
  bool bounded = false;   ///< only bounds are known: `value` is the middle between them
  bool reliable = false;  ///< fit to be shown: enough samples, and the error within limits
  bool of_link = false;
};

struct KernelMetricEntry {
  std::uint32_t row = 0;            ///< as passed to KernelMetrics::kernel()
  std::uint64_t instances = 0;      ///< executions
  std::uint64_t time = 0;           ///< of all executions
  std::uint64_t samples = 0;        ///< in which it ran
  std::uint64_t whole_samples = 0;  ///< of those, the ones that it filled
  std::uint64_t sampled_time = 0;   ///< part of `time` covered by samples …
  std::uint64_t shared_time = 0;    ///< … and the part of that in which a kernel of another row also ran
  std::vector<MetricEstimate> metrics;

  /// Whether every measured metric is reliable, except those of links.
  bool reliable() const;
};

/// Estimates each kernel's (row's) metrics from the samples in which it ran; docs/metrics.md has the
/// formulas. Samples that a kernel fills are its own; the others are separated (SampleMixture), or give
/// bounds for its value.
class KernelEstimates {
 public:
  /// A percentage up to this is a rounded 100; above, it is a ratio of counters that do not belong together.
  static constexpr double kMaxRounded = 101;
  /// A sample filled to at least this share by a kernel is that kernel's alone.
  static constexpr double kWhole = 0.99;
  static constexpr std::uint64_t kMinWhole = 10;
  /// The share of a row's sampled time that must lie in whole samples for these alone to determine its value:
  /// the other samples contain its beginning and end.
  static constexpr double kMostlyWhole = 0.75;
  /// With fewer samples, nothing is estimated.
  static constexpr std::uint64_t kMinSamples = 10;
  /// Additional error of a kernel that shares its samples, beyond what the samples themselves show: a share
  /// of its value, for what caches carry over from one kernel to the next, and this much time per execution,
  /// since the recorded beginning and end are not exactly when units begin and end. Measured with kernels of
  /// 18 to 120 us, in random order and each by itself (tests/gpu/metrics_collection.py).
  static constexpr double kCarriedOver = 0.01;
  static constexpr double kEdges = 250;  // ns
  /// The largest error at which a value is shown: in percentage points for percentages, otherwise as a share
  /// of the value.
  static constexpr double kMaxPoints = 10;
  static constexpr double kMaxRelative = 0.25;

  KernelEstimates() = default;
  explicit KernelEstimates(std::vector<MetricInfo> metrics) : kinds_(std::move(metrics)) {}

  const MetricKinds& kinds() const { return kinds_; }
  /// Numbers the states of a device.
  SampleMixture& mixture(std::uint32_t device) { return samples_of(device).mixture; }

  /// An execution.
  void add(std::uint32_t row, std::uint32_t device, std::uint64_t time);
  /// A sample of the device. Values per active cycle are already multiplied by the share of active cycles.
  void add(std::uint32_t device, const JoinedSample& sample);

  /// The rows that ran, ascending. Recomputed only after something was added, since it takes long.
  const std::vector<KernelMetricEntry>& entries() const;
  /// The entry of a row that ran.
  const KernelMetricEntry& entry(std::uint32_t row) const;
  /// Samples with too many kernels to tell apart.
  std::uint64_t crowded() const;

 private:
  /// The samples of a device.
  struct DeviceSamples {
    explicit DeviceSamples(std::size_t metrics) : mixture(metrics) {}
    SampleMixture mixture;
    std::uint64_t samples = 0;
  };
  /// Per metric, over the samples in which a row ran: each bounds the row's own value, since the rest of the
  /// sample cannot have been below the minimum or above the maximum.
  struct Bounds {
    double time = 0;
    double low = 0;
    double high = 0;
  };
  struct Row {
    std::uint64_t instances = 0;
    std::uint64_t time = 0;
    std::uint64_t samples = 0;
    std::uint64_t whole_samples = 0;
    std::uint64_t sampled_time = 0;
    std::uint64_t shared_time = 0;
    std::uint64_t whole_time = 0;
    double whole_share = 0;  // sum over whole_samples
    std::uint32_t device = 0;
    bool several_devices = false;
    std::vector<Bounds> bounds;
    std::vector<BlockMeans> whole;
  };

  DeviceSamples& samples_of(std::uint32_t device);
  Row& row(std::uint32_t number);
  void add_to_row(Row& row, const JoinedSample::RowPart& part, const JoinedSample& sample) const;
  std::vector<std::vector<Estimate>> solve() const;
  Estimate shared_estimate(const Row& row, std::span<const Estimate> solved, std::size_t metric) const;
  MetricEstimate estimate(const Row& row, std::size_t metric, std::span<const Estimate> solved) const;

  MetricKinds kinds_;
  std::map<std::uint32_t, DeviceSamples> devices_;
  std::vector<Row> rows_;
  mutable std::optional<std::vector<KernelMetricEntry>> entries_;  // empty: to be computed
};

}  // namespace inject
