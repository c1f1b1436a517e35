// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

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
#include "libinject/stats/metric_samples.h"
#include "libinject/stats/sample_mixture.h"

namespace inject {

/// Whether a metric's values lie between 0 and 100: its title says so.
bool is_percentage(const MetricInfo& metric);

/// A metric of a kernel, or of anything that there are few samples of.
struct MetricEstimate {
  double value = 0;
  double error = 0;       ///< half the width of the interval that holds the true value in 95 of 100 cases
  bool measured = false;  ///< there is a value at all
  bool bounded = false;   ///< all that is known are bounds: it is the middle between them
  bool reliable = false;  ///< it is one to be shown: of enough samples, its error within limits
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

  /// Every metric that was measured has a value to be shown.
  bool reliable() const;
};

/// A device in a window.
struct WindowMetrics {
  std::uint32_t window = 0;
  std::uint32_t device = 0;
  std::uint64_t samples = 0;
  std::uint64_t sampled_time = 0;
  /// By metric: mean over the samples that began in the window, weighted with their length; nothing where it
  /// was not measured.
  std::vector<std::optional<double>> means;
  /// By metric, once the window is settled: the sum over the window's kernels of value times duration. By the
  /// window's time it is the utilization that the kernels' own figures add up to. Nothing where too many
  /// kernels have no value (kLeastKnown).
  std::vector<std::optional<double>> kernel_sums;
};

/// Joins samples of a device's counters to the kernels that ran meanwhile, by time: docs/metrics.md has the
/// formulas. Samples and kernels may come in any order and are held until their window is settled, or until
/// there are too many: then the older half is joined as it is, and kernels and samples that come later for
/// that time are left out and counted. One thread at a time; may throw std::bad_alloc.
class KernelMetrics {
 public:
  static constexpr std::size_t kMostSamples = 131'072;
  static constexpr std::size_t kMostKernels = 262'144;
  static constexpr std::size_t kMostDevices = 64;
  static constexpr std::uint32_t kMostRows = 10'000;  ///< and one more, of any other number
  static constexpr std::uint32_t kMostWindows = 10'000;

  /// A sample that a kernel fills to this part is the kernel's alone.
  static constexpr double kWhole = 0.99;
  static constexpr std::uint64_t kFewestWhole = 10;
  /// Of a row's time in samples, that in whole ones, for these alone to tell what it does: the others have
  /// its beginning and its end in them.
  static constexpr double kMostlyWhole = 0.75;
  /// Fewer tell nothing.
  static constexpr std::uint64_t kFewestSamples = 10;
  /// The largest error of what is shown: points of a percentage, or of anything else a share of the value.
  static constexpr double kMostPoints = 10;
  static constexpr double kMostRelative = 0.25;
  /// Of a window's kernel time, what has to have values for their sum to mean anything.
  static constexpr double kLeastKnown = 0.9;

  /// What is sampled, at most kMostMetrics; from now on kernels are wanted. Another list than before drops
  /// all that is known.
  void metrics(std::vector<MetricInfo> list);
  const std::vector<MetricInfo>& metrics() const { return metrics_; }
  bool active() const { return !metrics_.empty(); }

  /// An execution, by the number of its row in the table of kernels by launch shape.
  void kernel(std::uint32_t window, std::uint32_t device, std::uint32_t row, Nanoseconds start,
              Nanoseconds end);
  void sample(const MetricSample& sample);
  /// Nothing more comes for this window, nor for any before it. A device's last sample is joined with those
  /// of the next window.
  void settle_window(std::uint32_t window);

  /// By row; what is not joined yet has no part in the values.
  std::vector<KernelMetricEntry> rows() const;
  /// By window and device.
  std::vector<WindowMetrics> windows() const;
  /// Mean of a metric over a time, from the samples that are held; nothing without any.
  std::optional<double> mean_between(std::uint32_t device, std::size_t metric, Nanoseconds from,
                                     Nanoseconds to) const;

  /// Kernels and samples that came when their time was joined already, or found no room.
  std::uint64_t late() const { return late_; }
  /// Samples whose kernels were too many to be told apart.
  std::uint64_t crowded() const;
  std::size_t held_samples() const { return held_samples_; }
  std::size_t held_kernels() const { return held_kernels_; }

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
  };
  struct Device {
    explicit Device(std::size_t metrics) : mixture(metrics) {}
    std::vector<Execution> kernels;
    std::vector<Held> samples;  // by start
    std::vector<float> values;  // theirs
    Nanoseconds joined_until = 0;
    std::uint64_t serial = 0;  // of the next sample to join
    SampleMixture mixture;
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
  struct Mean {
    double weight = 0;
    double sum = 0;
  };
  struct Window {
    std::uint64_t samples = 0;
    std::uint64_t time = 0;
    std::vector<Mean> means;
    std::vector<std::optional<double>> kernel_sums;
  };
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
  };

  Device* device(std::uint32_t number);
  Row& row(std::uint32_t number);
  Window* window(std::uint32_t number, std::uint32_t device);
  void bound();
  void join(Device& device, std::size_t count);
  Nanoseconds look(Device& device, std::span<const Execution> running, Nanoseconds now,
                   std::uint64_t sample_length);
  void spend(std::uint64_t time);
  void account(Device& device, std::span<const float> values, std::uint64_t length);
  void forget_joined(Device& device, std::size_t count);
  MetricEstimate estimate(const Row& row, std::size_t metric, const Estimate& apart) const;
  void sum_up(std::uint32_t window);

  std::vector<MetricInfo> metrics_;
  std::vector<bool> percentage_;
  std::map<std::uint32_t, Device> devices_;
  std::vector<Row> rows_;
  KeyIndex<2> window_keys_{kMostWindows};  // window, device
  std::vector<Window> windows_;
  // Time of kernels by row and device, of windows that are not settled.
  std::map<std::uint32_t, std::unordered_map<std::uint64_t, std::uint64_t>> window_kernels_;
  std::uint32_t settled_through_ = 0;
  Scratch scratch_;
  std::size_t held_samples_ = 0;
  std::size_t held_kernels_ = 0;
  std::uint64_t late_ = 0;
};

}  // namespace inject
