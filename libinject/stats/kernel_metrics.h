// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/stats/block_means.h"
#include "libinject/stats/key_index.h"
#include "libinject/stats/metric_history.h"
#include "libinject/stats/metric_samples.h"
#include "libinject/stats/sample_mixture.h"

namespace inject {

/// Whether a metric's values lie between 0 and 100: its title says so.
bool is_percentage(const MetricInfo& metric);

/// Whether a metric is one per cycle in which multiprocessors were active: means over time are weighted with
/// these, and what kernels do one beside the other in a sample adds up only once it is multiplied with them.
bool is_per_active_cycle(const MetricInfo& metric);

/// Whether a metric is of a link to other devices or the host: copies and others fill it, and a kernel's own
/// share is lost in theirs.
bool is_of_link(const MetricInfo& metric);

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

/// A device in a window.
struct WindowMetrics {
  std::uint32_t window = 0;
  std::uint32_t device = 0;
  std::uint64_t samples = 0;
  std::uint64_t sampled_time = 0;
  /// By metric: over the samples that began in the window, weighted with their length, figures per active
  /// cycle with the part of it in which the device was active; without value where it was not measured.
  std::vector<WeightedMean> means;
  /// By metric, once the window is settled: the sum over the window's kernels of value times duration, with
  /// the values that are known by now. By the window's time it is the utilization that the kernels' own
  /// figures add up to. Nothing where too many kernels have no value (kMinKnown).
  std::vector<std::optional<double>> kernel_sums;
  std::uint64_t kernel_time = 0;  ///< of the kernels that it is of
};

/// Joins samples of a device's counters to the kernels that ran meanwhile, by time: docs/metrics.md has the
/// formulas. Samples and kernels may come in any order and are held until their window is settled, or until
/// their time is known to be all told. Where there are too many, neighbouring samples become one: records of
/// kernels are long in coming only where kernels are long. Kernels and samples that come for a time that is
/// joined are left out and counted.
///
/// A sample tells of the window's kernels only if all that ran in it is known: it is joined to none where a
/// kernel ran in it that no window launched, or where it began after a window's end and none of that window's
/// kernels ends later, since activity may not have been recorded then. One thread at a time; may throw
/// std::bad_alloc.
class KernelMetrics {
 public:
  static constexpr std::size_t kMaxSamples = 65'536;
  static constexpr std::size_t kMaxKernels = 262'144;
  static constexpr std::size_t kMaxDevices = 64;
  static constexpr std::uint32_t kMaxRows = 10'000;  ///< and one more, of any other number
  static constexpr std::uint32_t kMaxWindows = 10'000;
  /// Kernels of a window whose values are still looked for when its sum is asked for, windows times rows.
  static constexpr std::size_t kMaxWindowRows = 131'072;

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
  /// Of a window's kernel time, what has to have values for their sum to mean anything.
  static constexpr double kMinKnown = 0.9;

  /// What is sampled, at most kMaxMetrics; from now on kernels are wanted. Another list than before drops
  /// all that is known.
  void metrics(std::vector<MetricInfo> list);
  const std::vector<MetricInfo>& metrics() const { return metrics_; }
  bool active() const { return !metrics_.empty(); }

  /// An execution, by the number of its row in the table of kernels by launch shape.
  void kernel(std::uint32_t window, std::uint32_t device, std::uint32_t row, Nanoseconds start,
              Nanoseconds end);
  /// One that was launched outside of all windows.
  void other_kernel(std::uint32_t device, Nanoseconds start, Nanoseconds end);
  void sample(const MetricSample& sample);
  /// All kernels that start before that time have been told of, as far as anybody knows.
  void join_until(Nanoseconds time);
  /// Nothing more comes for this window, nor for any before it. A device's last sample is joined with those
  /// of the next window.
  void settle_window(std::uint32_t window);

  /// By row; what is not joined yet has no part in the values.
  std::vector<KernelMetricEntry> rows() const;
  /// By window and device.
  std::vector<WindowMetrics> windows() const;
  /// Mean of a metric over a time in windows that are not settled.
  WeightedMean mean_between(std::uint32_t device, std::size_t metric, Nanoseconds from, Nanoseconds to) const;

  /// Values of samples that can't be: percentages beyond kMaxRounded. They count as not measured.
  std::uint64_t impossible() const { return impossible_; }
  /// Kernels and samples that came when their time was joined already, or found no room.
  std::uint64_t late() const { return late_; }
  /// Samples whose kernels were too many to be told apart.
  std::uint64_t crowded() const;
  std::size_t held_samples() const { return held_samples_; }
  std::size_t held_kernels() const { return held_kernels_; }
  std::size_t window_rows() const { return window_rows_; }

 private:
  struct Execution {
    Nanoseconds start;
    Nanoseconds end;
    std::uint32_t row;
    std::uint32_t window;
  };
  struct Held {
    Nanoseconds start;
    Nanoseconds end;
    std::uint32_t window;
    std::uint32_t after;
  };
  struct Device {
    explicit Device(std::size_t metrics) : mixture(metrics), history(metrics) {}
    std::vector<Execution> kernels;
    std::vector<Held> samples;  // by start
    std::vector<float> values;  // theirs; those per active cycle times the share of these
    Nanoseconds joined_until = 0;
    std::uint64_t serial = 0;  // of the next sample to join
    SampleMixture mixture;
    MetricHistory history;
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
  /// Of a window's kernels together.
  struct KernelSum {
    std::uint64_t time = 0;
    std::vector<WeightedMean> metrics;  // of those that have a value
  };
  struct Window {
    std::uint64_t samples = 0;
    std::uint64_t time = 0;
    std::vector<WeightedMean> means;
    KernelSum kernels;  // those that are no longer in window_kernels_
  };
  using RowTimes = std::unordered_map<std::uint64_t, std::uint64_t>;  // by device and row
  /// What ran in the sample that is being joined.
  struct Scratch {
    std::vector<SampleMixture::Part> parts;
    std::vector<std::uint32_t> part_of_state;
    struct RowPart {
      std::uint32_t row;
      std::uint64_t time;
      std::uint64_t shared;
    };
    std::vector<RowPart> rows;
    std::vector<std::uint32_t> part_of_row;
    std::vector<std::uint32_t> active;  // rows that run, ascending
    std::uint32_t state = SampleMixture::kIdle;
    bool others = false;  // a kernel that no window launched was among them
  };
  // A row beside those of the table: of all kernels that no window launched.
  static constexpr std::uint32_t kOthers = ~std::uint32_t{0};

  Device* device(std::uint32_t number);
  Row& row(std::uint32_t number);
  Window* window(std::uint32_t number, std::uint32_t device);
  std::array<float, kMaxMetrics> possible(std::array<float, kMaxMetrics> values);
  void bound_samples();
  void hold(Device& device, const Execution& execution);
  void bound_kernels();
  void coarsen(Device& device);
  void join(Device& device, std::size_t count);
  std::vector<std::pair<std::uint32_t, Nanoseconds>> last_ends(const Device& device) const;
  Nanoseconds look(Device& device, std::span<const Execution> running, Nanoseconds now,
                   std::uint64_t sample_length);
  void spend(std::uint64_t time);
  void account(Device& device, std::span<const float> values, std::uint64_t length);
  void clear_scratch();
  void forget_joined(Device& device, std::size_t count);
  bool per_active_cycle(std::size_t metric) const;
  Estimate apart_of(std::span<const Estimate> estimates, std::size_t metric) const;
  MetricEstimate estimate(const Row& row, std::size_t metric, std::span<const Estimate> apart) const;
  const std::vector<KernelMetricEntry>& entries() const;
  void add_kernels(KernelSum& sum, std::uint32_t device, const RowTimes& times) const;
  void bound_window_kernels();

  std::vector<MetricInfo> metrics_;
  std::vector<bool> percentage_;
  std::optional<std::size_t> sm_active_;  // the metric that says how active multiprocessors were, in percent
  std::map<std::uint32_t, Device> devices_;
  std::vector<Row> rows_;
  KeyIndex<2> window_keys_{kMaxWindows};  // window, device
  std::vector<Window> windows_;
  std::map<std::uint32_t, RowTimes> window_kernels_;
  std::size_t window_rows_ = 0;  // theirs together
  std::uint32_t settled_through_ = 0;
  mutable std::optional<std::vector<KernelMetricEntry>> entries_;  // solving takes long; none: to be solved
  Scratch scratch_;
  std::size_t held_samples_ = 0;
  std::size_t held_kernels_ = 0;
  std::uint64_t late_ = 0;
  std::uint64_t impossible_ = 0;
};

}  // namespace inject
