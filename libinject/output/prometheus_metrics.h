// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The contents of the Prometheus file about a run: docs/prometheus.md.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "libinject/analysis/sample_stats.h"
#include "libinject/model/run_info.h"
#include "libinject/output/prometheus_text.h"
#include "libinject/report/report.h"
#include "libinject/stats/device_time.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Every metric that the file can have, in order.
std::span<const MetricFamily> prometheus_families();

enum class PrometheusState : std::uint8_t { kOpen, kWaiting, kClosed };

/// Converts statistics to the file's text. Counters cover the whole run. Gauges of the latest windows cover
/// what was settled between the last two calls for which anything was. They are differences between the run's
/// sums, not sums over windows, which have no rows after the 10,000th.
class PrometheusMetrics {
 public:
  static constexpr std::size_t kMaxKernels = 10;
  static constexpr std::size_t kMaxNameLength = 200;  ///< of a kernel, in bytes before escaping

  /// `time`: nanoseconds since 1970. `failed`: how often the file could not be written.
  std::string text(const Report& report, PrometheusState state, std::uint64_t time, std::uint64_t failed);

 private:
  /// Device and direction.
  using CopyKey = std::pair<std::uint32_t, std::string_view>;
  struct Copies {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t time = 0;
  };
  using CopySums = std::map<CopyKey, Copies>;
  /// Sums over settled windows.
  struct WindowSums {
    std::uint64_t windows = 0;
    std::uint64_t time = 0;
    FlopSum flops = 0;
    Nanoseconds last_end = 0;
    std::uint64_t lost = 0;  ///< records, in windows that are not listed
  };
  using DeviceSums = std::map<std::uint32_t, DeviceTimes>;

  static WindowSums window_sums(const Statistics& statistics, const RunInfo& run);
  static CopySums copy_sums(const Statistics& statistics);
  void advance(const Statistics& statistics, const RunInfo& run);
  void advance_copies(const Statistics& statistics);

  void run_samples(PrometheusText& text, const RunInfo& run, PrometheusState state, std::uint64_t time) const;
  void step_samples(PrometheusText& text, const Report& report) const;
  void device_samples(PrometheusText& text, const Report& report) const;
  void copy_samples(PrometheusText& text, const Statistics& statistics) const;
  void host_samples(PrometheusText& text, const RunInfo& run) const;

  // Sums over the run at the latest call, and over the latest windows.
  WindowSums windows_;
  WindowSums latest_windows_;
  DeviceSums devices_;
  DeviceSums latest_devices_;
  CopySums copies_;
  CopySums latest_copies_;
  std::uint64_t removed_rows_ = 0;
  std::uint64_t steps_ = 0;
  // Windows that were settled when latest_steps_ were known, and when those before them were.
  std::uint64_t windows_with_steps_ = 0;
  std::uint64_t windows_before_steps_ = 0;
  SampleStats latest_steps_;
};

}  // namespace inject
