// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the outputs report about a run, computed once per write. Tables, run.json, the summary and the
// Prometheus file only format it, so that no two of them can disagree.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/analysis/diagnosis.h"
#include "libinject/model/run_info.h"
#include "libinject/report/call_report.h"
#include "libinject/report/code_report.h"
#include "libinject/report/derived_products.h"
#include "libinject/report/device_diagnosis.h"
#include "libinject/report/energy_report.h"
#include "libinject/report/flop_rate.h"
#include "libinject/report/measured_kernels.h"
#include "libinject/report/memory_report.h"
#include "libinject/report/profiler_overhead.h"
#include "libinject/report/step_pace.h"
#include "libinject/report/work_units.h"
#include "libinject/stats/kernel_use.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// A kernel with one launch shape.
struct KernelReport {
  const DetailRow* detail = nullptr;
  KernelUse use;
};

/// How the time of a device, or of all devices together, was spent in a window.
struct DeviceTimeReport {
  DeviceTimes times;
  std::uint64_t taken_by_collectives = 0;
  Diagnosis diagnosis;
  std::optional<double> utilization;         ///< kernel_busy / span, 0 … 1
  std::optional<double> launch_bound;        ///< likewise, the share of Bottleneck::kLaunch
  std::optional<OverheadEstimate> overhead;  ///< of the window's steps
  std::optional<WithoutProfiler> without_profiler;
  std::optional<FetchTimes> fetch_idle;  ///< of `times`; empty if no fetch is known
};

/// The values of the metrics' columns, percentages 0 … 100; empty if not measured.
using MetricValues = std::vector<std::optional<double>>;

/// A family of kernels, with the library calls of known shape whose products they compute.
struct FamilyReport : FamilyRow {
  std::optional<FlopSum> flops;  ///< empty if records were lost, and some may lack
  /// 10^12 per second of all kernels of these calls, so far as their rates are known; empty if one is
  /// impossible.
  std::optional<double> teraflops;
};

/// What tells how long the steps of a window take.
enum class Pace : std::uint8_t {
  kHost,     ///< their durations on the host
  kDevice,   ///< the host ran ahead of the device: their times there
  kUnknown,  ///< device work was lost that would show whether the host ran ahead
};

/// A window on one device, or on all devices together and on the host.
struct WindowReport {
  struct Host {
    HostWork work;
    std::optional<std::uint64_t> iterations;  ///< complete ones; empty for kOtherIndex
    std::optional<double> step_time;          ///< their median
    Pace pace = Pace::kHost;
    std::optional<double> samples_per_second;  ///< from step_time
    WorkUnits units;                           ///< of these iterations, as far as they have rows
    std::optional<FlopRate> flops;  ///< empty if calls, or work of captured or unknown ones, were lost
    std::optional<FetchTimes> fetches;
    std::optional<Losses> losses;  ///< empty if the window is not listed
  };
  std::uint32_t window = 0;  ///< kOtherIndex: all windows that did not fit
  const WindowInfo* info = nullptr;
  std::optional<std::uint32_t> device;    ///< empty: all together
  std::optional<DeviceWork> work;         ///< empty: no device activity was recorded in the window
  std::optional<std::uint64_t> busy;      ///< likewise, or records of device work were lost
  std::optional<std::uint64_t> span;      ///< from the first work's start to the last one's end; likewise
  std::optional<double> busy_share;       ///< of the device's time, 0 … 1; likewise
  std::optional<Host> host;               ///< only for all devices together
  std::optional<DeviceTimeReport> times;  ///< once the window is settled; up to the first lost launch
  const WindowMemory* memory = nullptr;
  MetricValues metrics;
  MetricValues utilizations;  ///< by metric: the utilization to which the kernels' own figures add up
};

/// An iteration, or what ran outside all iterations, on one device or all together.
struct IterationReport {
  const IterationRow* row = nullptr;
  std::optional<std::uint32_t> device;  ///< empty: all together
  std::optional<std::uint64_t> duration;
  Pace pace = Pace::kHost;  ///< of its window
  /// For a complete iteration: its duration or, if the host ran ahead, its time on the device.
  std::optional<double> step_time;
  std::optional<double> samples_per_second;  ///< from the step time
  WorkUnits units;                           ///< only for all together
  std::optional<FlopRate> flops;      ///< only for all together; empty if some of its records were lost
  std::optional<FetchTimes> fetches;  ///< likewise
  std::optional<std::uint64_t> gap;
  std::optional<std::uint64_t> busy;         ///< empty if records of its work were lost, or none are made
  std::optional<std::uint64_t> kernel_busy;  ///< likewise
  std::optional<double> utilization;         ///< kernel_busy / time on the device, 0 … 1
  std::optional<DeviceWork> work;            ///< empty: no device activity was recorded in its window
  MetricValues metrics;
};

/// Step times without CUPTI and in the windows, and the profiler's share of the latter.
struct StepReport {
  std::vector<StepPace::Step> steps;         ///< the latest that ran without CUPTI
  std::uint64_t iterations = 0;              ///< number of those that count
  std::uint64_t ahead = 0;                   ///< those that don't: the host ran ahead of the device
  SampleStats unprofiled;                    ///< times of those that count
  std::optional<MedianInterval> time;        ///< median of these: the step time
  std::optional<double> samples_per_second;  ///< from the step time
  WorkUnits units;                           ///< of the latest ones without CUPTI, if there are enough
  WorkUnits units_inside;                    ///< of the complete iterations in windows of the host's pace
  SampleStats inside;                        ///< times of the complete iterations in windows of a known pace
  std::optional<OverheadEstimate> overhead;
};

/// What the model computes, without recomputation.
struct ModelFlops {
  double per_iteration = 0;  ///< of library calls and operators of known shape
  /// Their time at the peaks of the devices that run kernels, divided by the step time, both as means.
  PeakShare utilization;
  bool in_windows = false;  ///< the step time is that of the same iterations, profiler included
};

/// Refers to the statistics and the run that it was built from, and to its own members (so it cannot be
/// copied).
struct Report {
  Report() = default;
  Report(Report&&) noexcept = default;
  Report& operator=(Report&&) noexcept = default;
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;
  ~Report() = default;

  const Statistics* statistics = nullptr;
  const RunInfo* run = nullptr;
  std::map<std::uint32_t, KernelLimits> limits;  ///< by device
  std::vector<DeviceDiagnosis> diagnoses;
  std::vector<CallReport> calls;  ///< as Statistics::call_shapes()
  std::deque<DerivedProducts> derived_products;
  std::vector<KernelReport> kernels;  ///< as Statistics::kernel_details()
  std::vector<FamilyReport> families;
  std::vector<MeasuredKernel> measured_kernels;
  std::vector<WindowReport> windows;  ///< by window: all devices together, then each of them
  std::vector<IterationRow> iteration_rows;
  std::vector<IterationReport> iterations;  ///< likewise
  EnergyReport energy;
  std::vector<MemoryTimelineRow> memory_timeline;
  StepReport steps;
  CodeReport code;
  std::optional<ModelFlops> model_flops;  ///< if launches are named
  /// Rows of the tables of calls, kernels' metrics, windows and iterations whose share of a peak is
  /// left out because it is impossible (possible_share()).
  std::uint64_t impossible_rates = 0;

  /// All zero if nothing ran on the device.
  KernelLimits limits_of(std::uint32_t device) const;
};

/// `step_time` in nanoseconds; empty without INJECT_BATCH.
std::optional<double> samples_per_second(std::uint64_t batch, double step_time);

/// `places`: those of the named launches; null if there are none.
Report build_report(const Statistics& statistics, const RunInfo& run, const CodePlaces* places = nullptr);

}  // namespace inject
