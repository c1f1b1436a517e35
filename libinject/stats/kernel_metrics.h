// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "libinject/model/metric_samples.h"
#include "libinject/stats/kernel_estimates.h"
#include "libinject/stats/key_index.h"
#include "libinject/stats/metric_history.h"
#include "libinject/stats/sample_join.h"

namespace inject {

/// A device in a window.
struct WindowMetrics {
  std::uint32_t window = 0;
  std::uint32_t device = 0;
  std::uint64_t samples = 0;
  std::uint64_t sampled_time = 0;
  /// By metric: the mean over the samples that began in the window, weighted by their length, or for metrics
  /// per active cycle by the part of it in which the device was active. No value if not measured.
  std::vector<WeightedMean> means;
  /// By metric, once the window is settled: the sum of value times duration over the window's kernels, with
  /// the values known so far. Divided by the window's time, it is the utilization according to the kernels'
  /// own values. Empty if too many kernels have no value (kMinKnown).
  std::vector<std::optional<double>> kernel_sums;
  std::uint64_t kernel_time = 0;  ///< of the kernels in these sums
};

/// Hardware metrics of kernels and windows: docs/metrics.md. Samples and kernels may come in any order and
/// are held (SampleJoin, one per device) until their window is settled, or until all kernels of their time
/// are known; then they are joined and passed to the estimates (KernelEstimates). If there are too many,
/// neighbouring samples are merged: kernel records are late only where kernels are long. Kernels and samples
/// that come for time already joined are left out and counted. One thread at a time; may throw
/// std::bad_alloc.
class KernelMetrics {
 public:
  static constexpr std::size_t kMaxSamples = 65'536;
  static constexpr std::size_t kMaxKernels = 262'144;
  static constexpr std::size_t kMaxDevices = 64;
  static constexpr std::uint32_t kMaxRows = 10'000;  ///< plus one for all other numbers
  static constexpr std::uint32_t kMaxWindows = 10'000;
  /// Rows kept by window, over all windows, so that a window's sum uses the values known when it is
  /// requested.
  static constexpr std::size_t kMaxWindowRows = 131'072;

  /// The share of a window's kernel time that must have values for their sum to be meaningful.
  static constexpr double kMinKnown = 0.9;

  /// Sets the sampled metrics, at most kMaxMetrics; kernels are collected from now on. A list that differs
  /// from the previous one discards everything collected so far.
  void metrics(std::vector<MetricInfo> list);
  const std::vector<MetricInfo>& metrics() const { return kinds().list(); }
  bool active() const { return kinds().size() != 0; }

  /// An execution, by the number of its row in the table of kernels by launch shape.
  void kernel(std::uint32_t window, std::uint32_t device, std::uint32_t row, Nanoseconds start,
              Nanoseconds end);
  /// An execution launched outside all windows.
  void other_kernel(std::uint32_t device, Nanoseconds start, Nanoseconds end);
  void sample(const MetricSample& sample);
  /// All kernels that start before `time` have been added, as far as is known.
  void join_until(Nanoseconds time);
  /// Nothing more will come for this window or any before it. A device's last sample is joined together with
  /// those of the next window.
  void settle_window(std::uint32_t window);

  /// By row; samples not joined yet are not included.
  std::vector<KernelMetricEntry> rows() const { return estimates_.entries(); }
  /// By window and device.
  std::vector<WindowMetrics> windows() const;
  /// Mean of a metric over a time span in unsettled windows.
  WeightedMean mean_between(std::uint32_t device, std::size_t metric, Nanoseconds from, Nanoseconds to) const;

  /// Number of impossible values in samples: percentages above KernelEstimates::kMaxRounded. They are treated
  /// as not measured.
  std::uint64_t impossible() const { return impossible_; }
  /// Kernels and samples that came after their time had been joined, or did not fit.
  std::uint64_t late() const { return late_; }
  /// Samples with too many kernels to tell apart.
  std::uint64_t crowded() const { return estimates_.crowded(); }
  std::size_t held_samples() const { return held_samples_; }
  std::size_t held_kernels() const { return held_kernels_; }
  std::size_t window_rows() const { return window_rows_; }

 private:
  struct Device {
    explicit Device(std::size_t metrics) : join(metrics), history(metrics) {}
    SampleJoin join;
    MetricHistory history;
  };
  /// Sum over a window's kernels.
  struct KernelSum {
    std::uint64_t time = 0;
    std::vector<WeightedMean> metrics;  // of the kernels that have a value
  };
  struct Window {
    std::uint64_t samples = 0;
    std::uint64_t time = 0;
    std::vector<WeightedMean> means;
    KernelSum kernels;  // kernels that are no longer in window_kernels_
  };
  using RowTimes = std::unordered_map<std::uint64_t, std::uint64_t>;  // by device and row

  const MetricKinds& kinds() const { return estimates_.kinds(); }
  Device* device(std::uint32_t number);
  Window* window(std::uint32_t number, std::uint32_t device);
  std::array<float, kMaxMetrics> possible(std::array<float, kMaxMetrics> values);
  SampleJoin::Take taker(std::uint32_t device);
  void hold(Device& device, const SampleJoin::Execution& execution);
  void join(std::uint32_t number, Device& device, std::size_t samples);
  void bound_samples();
  void bound_kernels();
  void count_held();
  void add_kernels(KernelSum& sum, std::uint32_t device, const RowTimes& times) const;
  void bound_window_kernels();

  KernelEstimates estimates_;
  std::map<std::uint32_t, Device> devices_;
  KeyIndex<2> window_keys_{kMaxWindows};  // window, device
  std::vector<Window> windows_;
  std::map<std::uint32_t, RowTimes> window_kernels_;
  std::size_t window_rows_ = 0;  // in all of window_kernels_
  std::uint32_t settled_through_ = 0;
  std::size_t held_samples_ = 0;
  std::size_t held_kernels_ = 0;
  std::uint64_t late_ = 0;
  std::uint64_t impossible_ = 0;
};

}  // namespace inject
