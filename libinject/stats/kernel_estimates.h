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

/// A metric of a kernel, or of anything that there are few samples of.
struct MetricEstimate {
  double value = 0;
  /// What is to be added up over kernels: as it came out of all samples, below 0 as well. Kept to what can
  /// be, those of kernels that do next to nothing are only ever too large, and so is their sum.
  double summand = 0;
  double error = 0;       ///< half the width of the interval that holds the true value in 95 of 100 cases
  bool measured = false;  ///< there is a value at all
  bool bounded = false;   ///< all that is known are bounds: it is the middle between them
  bool reliable = false;  ///< it is one to be shown: of enough samples, its error within limits
  bool of_link = false;
};

struct KernelMetricEntry {
  std::uint32_t row = 0;            ///< as it was told to KernelMetrics::kernel()
  std::uint64_t instances = 0;      ///< executions
  std::uint64_t time = 0;           ///< theirs together
  std::uint64_t samples = 0;        ///< in which it ran
  std::uint64_t whole_samples = 0;  ///< of those, in all of which it ran
  std::uint64_t sampled_time = 0;   ///< in which it ran and there was a sample …
  std::uint64_t shared_time = 0;    ///< … and, of that, in which a kernel of another row ran as well
  std::vector<MetricEstimate> metrics;

  /// Every metric that was measured has a value to be shown, but for those of links.
  bool reliable() const;
};

/// What the samples in which kernels ran tell of each kernel (row): docs/metrics.md has the formulas. Those
/// that a kernel fills are its own; the others are taken apart (SampleMixture), or bound its value.
class KernelEstimates {
 public:
  /// A percentage up to here is 100, rounded; beyond, it is a ratio of things that do not go together.
  static constexpr double kMaxRounded = 101;
  /// A sample that a kernel fills to this part is the kernel's alone.
  static constexpr double kWhole = 0.99;
  static constexpr std::uint64_t kMinWhole = 10;
  /// Of a row's time in samples, that in whole ones, for these alone to tell what it does: the others have
  /// its beginning and its end in them.
  static constexpr double kMostlyWhole = 0.75;
  /// Fewer tell nothing.
  static constexpr std::uint64_t kMinSamples = 10;
  /// Of a kernel that is taken apart from others in its samples, what its figure may be off by beyond what
  /// samples can tell: a share, for what caches carry from one kernel to the next, and this time of each
  /// execution, since what a record says of beginning and end is not when units begin and end. Measured with
  /// kernels of 18 to 120 us, in a random order and each by itself (tests/gpu/metrics_collection.py).
  static constexpr double kCarriedOver = 0.01;
  static constexpr double kEdges = 250;  // ns
  /// The largest error of what is shown: points of a percentage, or of anything else a share of the value.
  static constexpr double kMaxPoints = 10;
  static constexpr double kMaxRelative = 0.25;

  KernelEstimates() = default;
  explicit KernelEstimates(std::vector<MetricInfo> metrics) : kinds_(std::move(metrics)) {}

  const MetricKinds& kinds() const { return kinds_; }
  /// What numbers a device's states.
  SampleMixture& mixture(std::uint32_t device) { return taken_apart(device).mixture; }

  /// An execution.
  void add(std::uint32_t row, std::uint32_t device, std::uint64_t time);
  /// A sample of the device. Values per active cycle are times the share of these.
  void add(std::uint32_t device, const JoinedSample& sample);

  /// By row, ascending: those that ran. Worked out anew only after something was added, as it takes long.
  const std::vector<KernelMetricEntry>& entries() const;
  /// The entry of a row that ran.
  const KernelMetricEntry& entry(std::uint32_t row) const;
  /// Samples whose kernels were too many to be told apart.
  std::uint64_t crowded() const;

 private:
  /// A device's samples.
  struct TakenApart {
    explicit TakenApart(std::size_t metrics) : mixture(metrics) {}
    SampleMixture mixture;
    std::uint64_t samples = 0;
  };
  /// Of the samples in which a row ran, per metric: each bounds the row's own value, as the rest of the
  /// sample can't have been below nothing, or above all.
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

  TakenApart& taken_apart(std::uint32_t device);
  Row& row(std::uint32_t number);
  void add_to_row(Row& row, const JoinedSample::RowPart& part, const JoinedSample& sample) const;
  std::vector<std::vector<Estimate>> solve() const;
  Estimate apart_of(const Row& row, std::span<const Estimate> solved, std::size_t metric) const;
  MetricEstimate estimate(const Row& row, std::size_t metric, std::span<const Estimate> solved) const;

  MetricKinds kinds_;
  std::map<std::uint32_t, TakenApart> devices_;
  std::vector<Row> rows_;
  mutable std::optional<std::vector<KernelMetricEntry>> entries_;  // none: to be worked out
};

}  // namespace inject
