// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// window_sum.csv (docs/diagnosis.md).

#include "libinject/base/format.h"
#include "libinject/output/metric_columns.h"
#include "libinject/output/tables.h"
#include "libinject/output/window_columns.h"

namespace inject {

namespace {

using namespace units;

constexpr std::string_view kUnsettled = "the window is not over, or none of its work ran on the device";

std::string_view state_name(WindowState state) {
  switch (state) {
    case WindowState::kOpen:
      return "open";
    case WindowState::kClosing:
      return "closing";
    case WindowState::kClosed:
      return "closed";
  }
  return "";
}

constexpr std::string_view kUntraced = "no device activity was recorded (`no_device_activity` in run.json)";
constexpr std::string_view kNotWhole = "records of device work were lost; no device activity was recorded";

/// Utilization, in the sense of published studies, is that of the multiplying units: null for any other
/// metric.
const char* utilization_title(Quantity quantity) {
  switch (quantity) {
    case Quantity::kFma:
      return "FP32 Utilization (%)";
    case Quantity::kTensor:
      return "Tensor Utilization (%)";
    default:
      return nullptr;
  }
}

/// Adds how the device's time was spent, and the verdict.
void add_time_columns(Columns<WindowReport>& columns) {
  using Times = DeviceTimeReport;
  const auto diagnosed = columns.of(&WindowReport::times, kUnsettled);
  const auto time = [](std::uint64_t DeviceTimes::*member) {
    return [member](const Times& of) { return of.times.*member; };
  };
  diagnosed.add(
      "Device Time (ns)", kTime, time(&DeviceTimes::span),
      "Length of the window for the device: Kernel Busy + Copy Only + Idle. `all`: sum over the "
      "devices, as in all columns that follow. If records of device work were lost: up to the first launch "
      "that lacks one.");
  diagnosed.add("Kernel Busy (ns)", kTime, time(&DeviceTimes::kernel_busy),
                "Time during which at least one kernel ran.");
  diagnosed.add(
      "GPU Utilization (%)", kPercent, [](const Times& of) { return percent(of.utilization); },
      "Kernel Busy / Device Time.");
  static constexpr std::string_view kTooFew =
      "not settled yet; fewer than seven steps in the window or without CUPTI";
  diagnosed.add(
      "Profiler Overhead (%)", kPercent,
      [](const Times& of) {
        return of.overhead && of.overhead->seen() ? Cell(100 * of.overhead->share) : Cell();
      },
      "1 - Step Time / Step Time in Window, shown only if the interval in the next two columns lies above 0.",
      "not known or, if there is an interval, not measurable");
  diagnosed.add(
      "Profiler Overhead Low (%)", {"%", "≤ 100", 1},
      [](const Times& of) { return of.overhead ? Cell(100 * of.overhead->low) : Cell(); },
      "Lower bound of its 95 % confidence interval; below 0 if the steps in the window may have been shorter "
      "than those without CUPTI.",
      kTooFew);
  diagnosed.add(
      "Profiler Overhead High (%)", {"%", "≤ 100", 1},
      [](const Times& of) { return of.overhead ? Cell(100 * of.overhead->high) : Cell(); },
      "Upper bound of that interval.", kTooFew);
  diagnosed.add(
      "Launch-bound (%)", kPercent, [](const Times& of) { return percent(of.launch_bound); },
      "Share of Device Time that is launch-bound (diagnosis.md).");
  static constexpr std::string_view kNotCorrected =
      "the overhead is not known well enough, or exceeds the idle time";
  const auto corrected = [&](const char* name, CorrectedShare WithoutProfiler::*share,
                             double CorrectedShare::*value, std::string_view meaning) {
    diagnosed.add(
        name, kPercent,
        [share, value](const Times& of) {
          return cell_if(of.without_profiler.has_value(),
                         of.without_profiler ? 100 * ((*of.without_profiler).*share).*value : 0.0);
        },
        meaning, kNotCorrected);
  };
  diagnosed.add(
      "Device Time w/o Overhead (ns)", kTime,
      [](const Times& of) {
        return cell_if(of.without_profiler.has_value(),
                       of.without_profiler ? of.without_profiler->times.span : std::uint64_t{0});
      },
      "Device Time minus the time by which the steps exceeded the same number of steps without the profiler, "
      "based on means.",
      kNotCorrected);
  corrected("Utilization w/o Overhead (%)", &WithoutProfiler::utilization, &CorrectedShare::value,
            "Kernel Busy / Device Time w/o Overhead.");
  corrected("Utilization w/o Overhead Low (%)", &WithoutProfiler::utilization, &CorrectedShare::low,
            "Lower bound of its 95 % confidence interval.");
  corrected("Utilization w/o Overhead High (%)", &WithoutProfiler::utilization, &CorrectedShare::high,
            "Upper bound of that interval.");
  corrected("Launch-bound w/o Overhead (%)", &WithoutProfiler::launch_bound, &CorrectedShare::value,
            "Launch-bound share without the profiler's overhead (diagnosis.md).");
  corrected("Launch-bound w/o Overhead Low (%)", &WithoutProfiler::launch_bound, &CorrectedShare::low,
            "Lower bound of its 95 % confidence interval.");
  corrected("Launch-bound w/o Overhead High (%)", &WithoutProfiler::launch_bound, &CorrectedShare::high,
            "Upper bound of that interval.");
  diagnosed.add("Copy Only (ns)", kTime, time(&DeviceTimes::copy_only),
                "Time during which a copy or memset ran, but no kernel.");
  diagnosed.add(
      "Idle (ns)", kTime, [](const Times& of) { return of.times.idle(); },
      "Time during which nothing ran: the sum of the causes that follow.");
  struct Cause {
    IdleCause cause;
    const char* name;
    std::string_view meaning;
  };
  constexpr Cause kCauses[] = {
      {IdleCause::kStartUp, "Start-up",
       "Before the window's first work on the device, not counting copies that run ahead (diagnosis.md)."},
      {IdleCause::kSynchronization, "Synchronization", "The host waited for the device."},
      {IdleCause::kCopyCall, "Copy Call", "The host was in a copy call."},
      {IdleCause::kLaunchCall, "Launch Call", "The host was in a launch or library call."},
      {IdleCause::kOtherCall, "Other Call", "The host was in another CUDA call."},
      {IdleCause::kHostCompute, "Host Compute", "The host was computing outside calls."},
      {IdleCause::kHostWait, "Host Wait", "The launching thread was waiting outside calls."},
      {IdleCause::kOtherStream, "Other Stream",
       "The work waited for another stream, or for something that no timeline shows."},
      {IdleCause::kCollective, "Collective", "The work waited for a collective on another stream."},
      {IdleCause::kQueue, "Queue",
       "The next work had been launched already: what the device takes to get to it."},
      {IdleCause::kGraph, "Graph",
       "Between pieces of work of the same launch of a CUDA graph: what the device takes to get from one to "
       "the next, which a window makes longer."},
      {IdleCause::kUnknown, "Unknown", "The launch of the next work was not seen."}};
  static_assert(std::size(kCauses) == kIdleCauses);
  for (const Cause& cause : kCauses) {
    diagnosed.add(
        str_format("Idle: {} (ns)", cause.name), kTime,
        [which = cause.cause](const Times& of) { return of.times.idle(which); }, cause.meaning);
  }
  diagnosed.add(
      "Own Work (ns)", kTime, time(&DeviceTimes::own_work),
      "Part of Host Compute: gaps in which the host made no call for 1 ms or more, as in data loading, "
      "tokenizing or logging (diagnosis.md).");
  const auto fetch_idle = [&](const char* name, FetchKind kind, std::string_view meaning) {
    diagnosed.add(
        name, kTime,
        [kind](const Times& of) {
          return of.fetch_idle ? Cell((*of.fetch_idle)[static_cast<std::size_t>(kind)]) : Cell();
        },
        meaning, "not known from PyTorch (iterations.md)");
  };
  fetch_idle("Input in Fetch: Waiting (ns)", FetchKind::kWaiting,
             "Part of Host Wait and Own Work (diagnosis.md): the thread that launched next was in "
             "DataLoader.__next__ of a loader with worker processes.");
  fetch_idle("Input in Fetch: Processing (ns)", FetchKind::kProcessing,
             "The same for a loader without workers: the thread made the batch itself.");
  diagnosed.add(
      "Exposed Collective (ns)", kTime, [](const Times& of) { return of.times.exposed_collective(); },
      "Part of Kernel Busy during which only collective kernels ran.");
  diagnosed.add("Taken by Collectives (ns)", kTime, &Times::taken_by_collectives,
                "Time that collectives took from the kernels running beside them: their blocks' share of the "
                "multiprocessors.");
  diagnosed.add(
      "Kernel Concurrency", {"", "≥ 1", 3},
      [](const Times& of) {
        return cell_if(of.times.kernel_busy != 0,
                       static_cast<double>(of.times.kernel_time) / static_cast<double>(of.times.kernel_busy));
      },
      "Sum of the kernels' durations / Kernel Busy: 1 if they never overlap.", "no kernel ran");
  diagnosed.add("H2D Busy (ns)", kTime, time(&DeviceTimes::upload_busy),
                "Time during which at least one copy from host memory ran.");
  diagnosed.add("D2H Busy (ns)", kTime, time(&DeviceTimes::download_busy),
                "Time during which at least one copy to host memory ran.");
  diagnosed.add(
      "Copy Overlap (%)", kPercent,
      [](const Times& of) {
        return cell_if(of.times.copy_busy != 0, percent(of.times.copy_overlapped, of.times.copy_busy));
      },
      "Share of the time with copies during which a kernel ran as well.", "no copy ran");
  diagnosed.add(
      "Verdict", kText, [](const Times& of) { return bottleneck_name(of.diagnosis.verdict); },
      "What limits the program, without the profiler's overhead where that is known.",
      "too little ran for a verdict");
  diagnosed.add(
      "Potential Gain (%)", kPercent,
      [](const Times& of) {
        return of.diagnosis.gain ? Cell(100.0 * of.diagnosis.share(*of.diagnosis.gain)) : Cell();
      },
      "Maximum share of the device's time that fixing this could save, likewise without the profiler's "
      "overhead.",
      "no verdict, or one whose gain has no bound (diagnosis.md)");
}

constexpr std::string_view kNoSteps =
    "rows of one device; fewer than seven iterations ran without CUPTI, or are not known (iterations.md)";

constexpr std::string_view kNoUnits = "rows of one device; not known for any iteration";

Columns<WindowReport> window_columns(const Report& report) {
  Columns<WindowReport> columns;
  const RunInfo* const run = report.run;
  static constexpr std::string_view kNotListed = "`[other]`, and windows beyond those that run.json lists";
  const auto info = columns.of(&WindowReport::info, kNotListed);
  columns.add(
      "Window", kText,
      [](const WindowReport& row) { return row.window == kOtherIndex ? Cell("[other]") : Cell(row.window); },
      "The window's number, starting at 1; `[other]`: all windows beyond the first 10,000 (window, device) "
      "pairs.");
  info.add("Reason", kText, &WindowInfo::reason, "The trigger that opened it.");
  info.add(
      "State", kText, [](const WindowInfo& window) { return state_name(window.state); },
      "`open`, `closing` (records are still arriving) or `closed`.");
  info.add(
      "Start (ns)", kMoment,
      [run](const WindowInfo& window) {
        return cell_if(window.times_known(), since_base(window.start, *run));
      },
      "When it opened, on the host.", "not known (`lost.window_times`); not listed in run.json");
  info.add(
      "End (ns)", kMoment,
      [run](const WindowInfo& window) { return cell_if(window.end != 0, since_base(window.end, *run)); },
      "When it closed, on the host.", "still open; not known (`lost.window_times`); not listed in run.json");
  info.add(
      "Duration (ns)", kTime,
      [](const WindowInfo& window) { return cell_if(window.end != 0, window.end - window.start); },
      "End - Start.", "still open; not known (`lost.window_times`); not listed in run.json");
  add_device(columns);
  columns
      .add("GPU Busy (ns)", kTime, &WindowReport::busy,
           "Time during which at least one kernel, copy or memset ran; `all`: sum over the devices.",
           kNotWhole)
      .add("GPU Span (ns)", kTime, &WindowReport::span,
           "From the start of the first work to the end of the last.", kNotWhole)
      .add(
          "GPU Busy (%)", kPercent, [](const WindowReport& row) { return percent(row.busy_share); },
          "GPU Busy / Duration, or GPU Busy / GPU Span if the span is longer.",
          "still open; not known (`lost.window_times`); not listed in run.json; as GPU Busy");
  add_work_columns(columns, &WindowReport::work, kUntraced);
  using Host = WindowReport::Host;
  const auto host = columns.of(&WindowReport::host, kAllDevices);
  columns.of([](const WindowReport& row) { return row.host ? &row.host->work : nullptr; }, kAllDevices)
      .add("API Calls", kCount, &HostWork::api_calls, "CUDA runtime and driver calls.")
      .add("API Time (ns)", kTime, &HostWork::api_time,
           "Time in these calls; that of a nested call also counts in the call around it.")
      .add("Library Calls", kCount, &HostWork::library_calls, "cuBLAS, cuBLASLt, cuDNN and NCCL calls.")
      .add("Submissions", kCount, &HostWork::submissions,
           "Calls that submitted work to a device: launches, graph launches, copies, memsets.")
      .add("Ranges", kCount, &HostWork::ranges, "NVTX ranges that ended in the window.")
      .add("Clipped Ranges", kCount, &HostWork::clipped_ranges,
           "NVTX ranges cut off at the start or end of the window.");
  host.add("Iterations", kCount, &Host::iterations, "Complete iterations.", "rows of one device; `[other]`")
      .add("Step Time in Window (ns)", kMeanTime, &Host::step_time,
           "Median duration of the complete iterations, including the profiler's overhead; where the host "
           "ran ahead of the GPU, their median time on the GPU (iterations.md).",
           "rows of one device; no complete iteration; the host ran ahead in the only one, or may have run "
           "ahead while records of device work were lost")
      .add(
          "Samples/s in Window", kRate,
          [](const Host& of) { return exact_cell(of.samples_per_second, kRate); },
          "INJECT_BATCH / Step Time in Window.", "no INJECT_BATCH; otherwise as Step Time in Window")
      .add(
          "Iterations with Units", kCount, [](const Host& of) { return of.units.iterations; },
          "Complete iterations in iteration_sum.csv whose units of work are known (units.md).")
      .add(
          "Units in Window", kUnits, [](const Host& of) { return units_cell(of.units.total()); },
          "Units of work in these iterations.", kNoUnits)
      .add(
          "Units/s in Window", kUnitRate,
          [](const Host& of) {
            return exact_cell(of.pace == Pace::kHost ? of.units.per_second() : std::nullopt, kUnitRate);
          },
          "Units in Window / sum of these iterations' durations.",
          "no units were reported, or not all are known; the host ran ahead of the GPU, or may have while "
          "records of its work were lost")
      .add(
          "Units/s of GPU Busy in Window", kUnitRate,
          [](const Host& of) { return exact_cell(of.units.per_busy_second(), kUnitRate); },
          "Units in Window / sum of these iterations' GPU Busy; with several GPUs, that of the busiest.",
          kNoUnits);
  const StepReport* const steps = &report.steps;
  const auto step_time = [&](const char* name, double MedianInterval::*value, std::string_view meaning) {
    columns.add(
        name, kMeanTime,
        [steps, value](const WindowReport& row) {
          return cell_if(row.host && steps->time, steps->time ? (*steps->time).*value : 0.0);
        },
        meaning, kNoSteps);
  };
  columns.add(
      "Unprofiled Iterations", kCount,
      [steps](const WindowReport& row) { return cell_if(row.host.has_value(), steps->iterations); },
      "Iterations of the whole run that ran without CUPTI and did not run ahead of the GPU, or that are part "
      "of a mean with one that waited for it: those that Step Time is based on.",
      "rows of one device");
  step_time(
      "Step Time (ns)", &MedianInterval::median,
      "Median of Step Time in step_times.csv; over all iterations of the run, or the latest 1,000 of them "
      "if the host ran ahead in some of these.");
  step_time("Step Time Low (ns)", &MedianInterval::low, "Lower bound of its 97.5 % confidence interval.");
  step_time("Step Time High (ns)", &MedianInterval::high, "Upper bound of that interval.");
  columns.add(
      "Samples/s", kRate,
      [steps](const WindowReport& row) {
        return exact_cell(row.host ? steps->samples_per_second : std::nullopt, kRate);
      },
      "INJECT_BATCH / Step Time.", "no INJECT_BATCH; otherwise as Step Time");
  columns.add(
      "Units/s", kUnitRate,
      [steps](const WindowReport& row) {
        return exact_cell(row.host ? steps->units.per_second() : std::nullopt, kUnitRate);
      },
      "Total units / total time of the iterations in step_times.csv whose units are known.",
      "rows of one device; fewer than 7 such iterations");
  columns.add(
      "Units From", kText,
      [run, steps](const WindowReport& row) {
        const bool any = row.host && (row.host->units.iterations != 0 || steps->units.iterations != 0);
        return cell_if(any, unit_source_name(run->unit_source));
      },
      kUnitSourceMeaning, "rows of one device; no units are known");
  columns
      .of([](const WindowReport& row) { return row.host && row.host->losses ? &*row.host->losses : nullptr; },
          "rows of one device; not listed in run.json")
      .add("Lost Host Records", kCount, &Losses::host_records,
           "Calls not recorded because the ring buffer was full.")
      .add("Lost Range Records", kCount, &Losses::range_records,
           "NVTX ranges not recorded because the ring buffer was full.")
      .add(
          "Lost Activity Records", kCount,
          [](const Losses& of) { return cell_if(!of.perhaps_more, of.activity_records); },
          "Records that CUPTI had no buffer for.",
          "some of those of a window that ended shortly before or after may have been this window's")
      .add(
          "Invalid Timestamps", kCount,
          [](const Losses& of) { return cell_if(!of.perhaps_more, of.invalid_times); },
          "Records left out because they have no usable times.", "as Lost Activity Records")
      .add("Missing Activity Records", kCount, &Losses::missing_records,
           "Launches whose record never arrived.");
  add_flop_columns(columns, [](const WindowReport& row) {
    return row.host && row.host->flops ? &*row.host->flops : nullptr;
  });
  add_time_columns(columns);
  add_fetch_columns(columns, [](const WindowReport& row) {
    return row.host && row.host->fetches ? &*row.host->fetches : nullptr;
  });
  const auto bytes = [](auto member) {
    return [member](const WindowMemory& memory) {
      return memory.*member ? Cell(megabytes(*(memory.*member))) : Cell();
    };
  };
  columns.of(&WindowReport::memory, "the row `all`; not read within 0.1 s or a tenth of the window")
      .add("Memory at Start (MB)", kMegabytes, bytes(&WindowMemory::at_start),
           "Memory in use on the device by all processes when the window opened.")
      .add("Memory at End (MB)", kMegabytes, bytes(&WindowMemory::at_end),
           "The same when the window closed.");
  add_metric_columns(columns, report, &WindowReport::metrics);
  const std::vector<MetricInfo>& metrics = report.statistics->metrics().metrics();
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    if (const char* const title = utilization_title(metrics[m].quantity)) {
      columns.add(
          title, {"%", "≥ 0", 2}, [m](const WindowReport& row) { return row.utilizations[m]; },
          "Sum over the kernels of (their own value × their time) / the device's time (metrics.md).",
          "too many kernels have no value");
    }
  }
  return columns;
}

const std::vector<WindowReport>& window_rows(const Report& report) {
  return report.windows;
}

}  // namespace

TableFile window_table() {
  return make_table<window_columns, window_rows>(
      "window_sum.csv",
      "A window: one row for all devices together (`all`) with what the host did, then one per device "
      "(diagnosis.md). Add up either the rows `all` or the others, not both.");
}

}  // namespace inject
