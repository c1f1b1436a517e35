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

constexpr std::string_view kUnsettled = "the window is not over, or nothing of it ran on the device";

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

/// Utilization, as studies use the term, is that of the multiplying units: null for any other metric.
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

/// Adds how the device's time was spent, and the verdict on it.
void add_time_columns(Columns<WindowReport>& columns) {
  using Times = DeviceTimeReport;
  const auto diagnosed = columns.of(&WindowReport::times, kUnsettled);
  const auto time = [](std::uint64_t DeviceTimes::*member) {
    return [member](const Times& of) { return of.times.*member; };
  };
  diagnosed.add("Device Time (ns)", kTime, time(&DeviceTimes::span),
                "What the window lasted for the device: Kernel Busy + Copy Only + Idle. `all`: the devices' "
                "sum, as in all that follows.");
  diagnosed.add("Kernel Busy (ns)", kTime, time(&DeviceTimes::kernel_busy), "At least one kernel ran.");
  diagnosed.add(
      "GPU Utilization (%)", kPercent, [](const Times& of) { return percent(of.utilization); },
      "Kernel Busy by Device Time.");
  static constexpr std::string_view kTooFew =
      "not settled; fewer than seven steps in the window or without CUPTI";
  diagnosed.add(
      "Profiler Overhead (%)", kPercent,
      [](const Times& of) {
        return of.overhead && of.overhead->seen() ? Cell(100 * of.overhead->share) : Cell();
      },
      "1 - Step Time / Step Time in Window, where the interval of the next two columns lies above 0.",
      "not known, or, with an interval, not seen");
  diagnosed.add(
      "Profiler Overhead Low (%)", {"%", "≤ 100", 1},
      [](const Times& of) { return of.overhead ? Cell(100 * of.overhead->low) : Cell(); },
      "Lower end of its 95 % interval; below 0 where steps in the window may have been the shorter ones.",
      kTooFew);
  diagnosed.add(
      "Profiler Overhead High (%)", {"%", "≤ 100", 1},
      [](const Times& of) { return of.overhead ? Cell(100 * of.overhead->high) : Cell(); },
      "Upper end of it.", kTooFew);
  diagnosed.add(
      "Launch-bound (%)", kPercent, [](const Times& of) { return percent(of.launch_bound); },
      "Share of Device Time that is launch-bound (diagnosis.md).");
  static constexpr std::string_view kNotCorrected =
      "the overhead is not known, or is more than the idle time";
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
      "Device Time without what the steps took longer than as many without the profiler, by means.",
      kNotCorrected);
  corrected("Utilization w/o Overhead (%)", &WithoutProfiler::utilization, &CorrectedShare::value,
            "Kernel Busy by Device Time w/o Overhead.");
  corrected("Utilization w/o Overhead Low (%)", &WithoutProfiler::utilization, &CorrectedShare::low,
            "Lower end of its 95 % interval.");
  corrected("Utilization w/o Overhead High (%)", &WithoutProfiler::utilization, &CorrectedShare::high,
            "Upper end of it.");
  corrected("Launch-bound w/o Overhead (%)", &WithoutProfiler::launch_bound, &CorrectedShare::value,
            "Launch-bound without what the profiler adds to it (diagnosis.md).");
  corrected("Launch-bound w/o Overhead Low (%)", &WithoutProfiler::launch_bound, &CorrectedShare::low,
            "Lower end of its 95 % interval.");
  corrected("Launch-bound w/o Overhead High (%)", &WithoutProfiler::launch_bound, &CorrectedShare::high,
            "Upper end of it.");
  diagnosed.add("Copy Only (ns)", kTime, time(&DeviceTimes::copy_only),
                "No kernel, but a copy or a memset ran.");
  diagnosed.add(
      "Idle (ns)", kTime, [](const Times& of) { return of.times.idle(); },
      "Nothing ran: the sum of the causes that follow.");
  struct Cause {
    IdleCause cause;
    const char* name;
    std::string_view meaning;
  };
  constexpr Cause kCauses[] = {
      {IdleCause::kStartUp, "Start-up",
       "Before the window's first work on the device, copies ahead left out."},
      {IdleCause::kSynchronization, "Synchronization", "The host waited for the device."},
      {IdleCause::kCopyCall, "Copy Call", "The host was in a copy's call."},
      {IdleCause::kLaunchCall, "Launch Call", "The host was in a launch's or a library's call."},
      {IdleCause::kOtherCall, "Other Call", "The host was in another call of CUDA."},
      {IdleCause::kHostCompute, "Host Compute", "The host computed outside of calls."},
      {IdleCause::kHostWait, "Host Wait", "The launching thread waited outside of calls."},
      {IdleCause::kOtherStream, "Other Stream",
       "The work waited for another stream, or for what no timeline shows."},
      {IdleCause::kCollective, "Collective", "The work waited for a collective on another stream."},
      {IdleCause::kQueue, "Queue", "What the device takes from one piece of work to the next."},
      {IdleCause::kUnknown, "Unknown", "The launch of the next work was not seen."}};
  static_assert(std::size(kCauses) == kIdleCauses);
  for (const Cause& cause : kCauses) {
    diagnosed.add(
        str_format("Idle: {} (ns)", cause.name), kTime,
        [which = cause.cause](const Times& of) { return of.times.idle(which); }, cause.meaning);
  }
  diagnosed.add("Own Work (ns)", kTime, time(&DeviceTimes::own_work),
                "Part of Host Compute: the host's own work, not its way to a launch (diagnosis.md).");
  const auto fetch_idle = [&](const char* name, FetchKind kind, std::string_view meaning) {
    diagnosed.add(
        name, kTime,
        [kind](const Times& of) {
          return of.fetch_idle ? Cell((*of.fetch_idle)[static_cast<std::size_t>(kind)]) : Cell();
        },
        meaning, "PyTorch does not tell (iterations.md)");
  };
  fetch_idle("Input in Fetch: Waiting (ns)", FetchKind::kWaiting,
             "Part of Host Wait and Own Work (diagnosis.md): the thread that launched next was in "
             "DataLoader.__next__, and the loader has worker processes.");
  fetch_idle("Input in Fetch: Processing (ns)", FetchKind::kProcessing,
             "Likewise of a loader without workers: the thread made the batch itself.");
  diagnosed.add(
      "Exposed Collective (ns)", kTime, [](const Times& of) { return of.times.exposed_collective(); },
      "Part of Kernel Busy in which no kernels but collectives' ran.");
  diagnosed.add(
      "Taken by Collectives (ns)", kTime, &Times::taken_by_collectives,
      "What collectives took from the kernels beside them: their blocks' share of the multiprocessors.");
  diagnosed.add(
      "Kernel Concurrency", {"", "≥ 1", 3},
      [](const Times& of) {
        return cell_if(of.times.kernel_busy != 0,
                       static_cast<double>(of.times.kernel_time) / static_cast<double>(of.times.kernel_busy));
      },
      "Sum of the kernels' durations by Kernel Busy: 1 if they never overlap.", "no kernel ran");
  diagnosed.add("H2D Busy (ns)", kTime, time(&DeviceTimes::upload_busy),
                "At least one copy from the host's memory ran.");
  diagnosed.add("D2H Busy (ns)", kTime, time(&DeviceTimes::download_busy),
                "At least one copy to the host's memory ran.");
  diagnosed.add(
      "Copy Overlap (%)", kPercent,
      [](const Times& of) {
        return cell_if(of.times.copy_busy != 0, percent(of.times.copy_overlapped, of.times.copy_busy));
      },
      "Share of the time with copies in which a kernel ran as well.", "no copy ran");
  diagnosed.add(
      "Verdict", kText, [](const Times& of) { return bottleneck_name(of.diagnosis.verdict); },
      "What the program is bound by, without what the profiler adds where that is known.",
      "too little ran for a verdict");
  diagnosed.add(
      "Potential Gain (%)", kPercent,
      [](const Times& of) {
        return of.diagnosis.gain ? Cell(100.0 * of.diagnosis.share(*of.diagnosis.gain)) : Cell();
      },
      "Share of the device's time, likewise without what the profiler adds, that fixing this could save at "
      "most.",
      "no verdict, or one for which nothing bounds it (diagnosis.md)");
}

constexpr std::string_view kNoSteps =
    "rows of one device; fewer than seven iterations ran without CUPTI, or are not known (iterations.md)";

constexpr std::string_view kNoUnits = "rows of one device; of none are they known";

Columns<WindowReport> window_columns(const Report& report) {
  Columns<WindowReport> columns;
  const RunInfo* const run = report.run;
  static constexpr std::string_view kNotListed = "`[other]`, and windows beyond those that run.json lists";
  const auto info = columns.of(&WindowReport::info, kNotListed);
  columns.add(
      "Window", kText,
      [](const WindowReport& row) { return row.window == kOtherIndex ? Cell("[other]") : Cell(row.window); },
      "Its number, from 1; `[other]`: all windows beyond the first 10,000 (window, device) pairs.");
  info.add("Reason", kText, &WindowInfo::reason, "The trigger that opened it.");
  info.add(
      "State", kText, [](const WindowInfo& window) { return state_name(window.state); },
      "`open`, `closing` (records are still coming) or `closed`.");
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
           "At least one kernel, copy or memset ran; `all`: the devices' sum.")
      .add("GPU Span (ns)", kTime, &WindowReport::span, "From the first work's start to the last one's end.")
      .add(
          "GPU Busy (%)", kPercent, [](const WindowReport& row) { return percent(row.busy_share); },
          "GPU Busy by Duration, or by GPU Span where that is longer.",
          "still open; not known (`lost.window_times`); not listed in run.json");
  add_work_columns(columns, &WindowReport::work);
  using Host = WindowReport::Host;
  const auto host = columns.of(&WindowReport::host, kAllDevices);
  columns.of([](const WindowReport& row) { return row.host ? &row.host->work : nullptr; }, kAllDevices)
      .add("API Calls", kCount, &HostWork::api_calls, "Calls of CUDA's runtime and driver.")
      .add("API Time (ns)", kTime, &HostWork::api_time,
           "Time in them; of a nested call in itself and in the call around it.")
      .add("Library Calls", kCount, &HostWork::library_calls, "Calls of cuBLAS, cuBLASLt, cuDNN and NCCL.")
      .add("Submissions", kCount, &HostWork::submissions,
           "Calls that gave a device work: launches, graph launches, copies, memsets.")
      .add("Ranges", kCount, &HostWork::ranges, "NVTX ranges that ended in it.")
      .add("Clipped Ranges", kCount, &HostWork::clipped_ranges,
           "NVTX ranges that an edge of the window cut.");
  host.add("Iterations", kCount, &Host::iterations, "Complete iterations.")
      .add("Step Time in Window (ns)", kMeanTime, &Host::step_time,
           "Median duration of the complete iterations, including what the profiler adds; where the host ran "
           "ahead of the GPU, of their time on the GPU (iterations.md).",
           "rows of one device; no complete iteration")
      .add("Samples/s in Window", kRate, &Host::samples_per_second, "INJECT_BATCH by Step Time in Window.",
           "rows of one device; no INJECT_BATCH; no complete iteration")
      .add(
          "Iterations with Units", kCount, [](const Host& of) { return of.units.iterations; },
          "Complete iterations, of those in iteration_sum.csv, whose units of work are known (units.md).")
      .add(
          "Units in Window", kUnits, [](const Host& of) { return units_cell(of.units.total()); },
          "Sum over these.", kNoUnits)
      .add(
          "Units/s in Window", kUnitRate,
          [](const Host& of) {
            return exact_cell(of.ahead ? std::nullopt : of.units.per_second(), kUnitRate);
          },
          "Units in Window by the sum of these iterations' durations.",
          "none was said, or not all is known; the host ran ahead of the GPU")
      .add(
          "Units/s of GPU Busy in Window", kUnitRate,
          [](const Host& of) { return exact_cell(of.units.per_busy_second(), kUnitRate); },
          "Likewise by the sum of their GPU Busy, of several GPUs by that of the busiest.", kNoUnits);
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
      "Iterations of the whole run that ran without CUPTI and did not run ahead of the GPU: what Step Time "
      "is of.",
      "rows of one device");
  step_time("Step Time (ns)", &MedianInterval::median,
            "Median of Step Time in step_times.csv, of all iterations of the run.");
  step_time("Step Time Low (ns)", &MedianInterval::low, "Lower end of its 97.5 % interval.");
  step_time("Step Time High (ns)", &MedianInterval::high, "Upper end of it.");
  columns.add(
      "Samples/s", kRate,
      [steps](const WindowReport& row) { return row.host ? steps->samples_per_second : std::nullopt; },
      "INJECT_BATCH by Step Time.", "no INJECT_BATCH, or as Step Time");
  columns.add(
      "Units/s", kUnitRate,
      [steps](const WindowReport& row) {
        return exact_cell(row.host ? steps->units.per_second() : std::nullopt, kUnitRate);
      },
      "All units by all the time of the iterations in step_times.csv whose units are known.",
      "rows of one device; fewer than 7 such iterations");
  columns.add(
      "Units From", kText,
      [run, steps](const WindowReport& row) {
        const bool any = row.host && (row.host->units.iterations != 0 || steps->units.iterations != 0);
        return cell_if(any, unit_source_name(run->unit_source));
      },
      kUnitSourceMeaning, "rows of one device; no units are known");
  columns.of([](const WindowReport& row) { return row.host ? &row.host->losses : nullptr; }, kAllDevices)
      .add("Lost Host Records", kCount, &Losses::host_records, "Calls that found the ring full.")
      .add("Lost Range Records", kCount, &Losses::range_records, "NVTX ranges that found the ring full.")
      .add("Lost Activity Records", kCount, &Losses::activity_records,
           "Records that CUPTI had no buffer for.")
      .add("Invalid Timestamps", kCount, &Losses::invalid_times,
           "Records without usable times, which are left out.")
      .add("Missing Activity Records", kCount, &Losses::missing_records, "Launches whose record never came.");
  add_flop_columns(columns, [](const WindowReport& row) { return row.host ? &row.host->flops : nullptr; });
  add_time_columns(columns);
  add_fetch_columns(columns, [](const WindowReport& row) {
    return row.host && row.host->fetches ? &*row.host->fetches : nullptr;
  });
  const auto bytes = [](auto member) {
    return [member](const WindowMemory& memory) {
      return memory.*member ? Cell(megabytes(*(memory.*member))) : Cell();
    };
  };
  columns.of(&WindowReport::memory, "the row `all`; not asked in time")
      .add("Memory at Start (MB)", kMegabytes, bytes(&WindowMemory::at_start),
           "In use on the device by all processes as the window opened.")
      .add("Memory at End (MB)", kMegabytes, bytes(&WindowMemory::at_end), "Likewise as it closed.");
  add_metric_columns(columns, report, &WindowReport::metrics);
  const std::vector<MetricInfo>& metrics = report.statistics->metrics().metrics();
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    if (const char* const title = utilization_title(metrics[m].quantity)) {
      columns.add(
          title, {"%", "≥ 0", 2}, [m](const WindowReport& row) { return row.utilizations[m]; },
          "Sum over the kernels of their own figure by their time, by the device's time (metrics.md).",
          "too many kernels have no figure");
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
      "A window: one row for all devices together (`all`) with what the host did, then one a device "
      "(diagnosis.md). Add up either the rows `all` or the others.");
}

}  // namespace inject
