// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/window_tables.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "libinject/output/metric_tables.h"

namespace inject {

namespace {

using namespace units;

constexpr std::string_view kAllDevices = "rows of one device";
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

template <typename Row>
Cell device_of(const Row& row) {
  return row.device ? Cell(*row.device) : Cell("all");
}
constexpr std::string_view kDevice =
    "The GPU, as the process numbers them; `all`: all of them together, and the host.";

/// 10^12 a second, and the share of the peaks. `of` gives the rate, or null.
template <typename Row, typename Of>
void add_flop_columns(Columns<Row>& columns, Of of) {
  const auto add = [&](std::string header, const Unit& unit, auto value, std::string_view meaning,
                       std::string_view empty) {
    columns.add(
        std::move(header), unit,
        [of, value](const Row& row) {
          const FlopRate* const rate = of(row);
          return rate == nullptr ? Cell() : Cell(value(*rate));
        },
        meaning, empty);
  };
  add(
      "FLOPs", kFlops, [](const FlopRate& rate) { return rate.flops; },
      "Of the library calls of known shape.", kAllDevices);
  add(
      "TFLOP/s", kTeraflops, [](const FlopRate& rate) { return rate.teraflops; }, "FLOPs by Duration.",
      "rows of one device; nothing is known to be computed");
  add(
      "Peak (%)", kRateShare, [](const FlopRate& rate) { return percent(rate.peak_share.value); },
      "Time that the first device needs for the FLOPs at its peaks, by Duration.",
      "rows of one device; a peak is not known; a share that can't be (peaks.md)");
}

/// Columns of the diagnosis.
void add_time_columns(Columns<WindowReport>& columns) {
  const auto add = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning,
                              std::string_view empty = kUnsettled) {
    columns.add(
        std::move(header), unit,
        [of](const WindowReport& row) { return row.times ? Cell(of(*row.times)) : Cell(); }, meaning, empty);
  };
  const auto time = [&add](std::string header, std::uint64_t DeviceTimes::*member, std::string_view meaning) {
    add(
        std::move(header), kTime, [member](const DeviceTimeReport& report) { return report.times.*member; },
        meaning);
  };
  time("Device Time (ns)", &DeviceTimes::span,
       "What the window lasted for the device: Kernel Busy + Copy Only + Idle. `all`: the devices' sum, as "
       "in all that "
       "follows.");
  time("Kernel Busy (ns)", &DeviceTimes::kernel_busy, "At least one kernel ran.");
  add(
      "GPU Utilization (%)", kPercent,
      [](const DeviceTimeReport& report) { return percent(report.utilization); },
      "Kernel Busy by Device Time.");
  static constexpr std::string_view kTooFew =
      "not settled; fewer than seven steps in the window or outside of all windows";
  add(
      "Profiler Overhead (%)", kPercent,
      [](const DeviceTimeReport& report) {
        return report.overhead && report.overhead->seen() ? Cell(100 * report.overhead->share) : Cell();
      },
      "1 - median step outside windows / median step in the window, where the interval of the next two "
      "columns lies "
      "above 0.",
      "not known, or, with an interval, not seen");
  add(
      "Profiler Overhead Low (%)", {"%", "≤ 100", 1},
      [](const DeviceTimeReport& report) {
        return report.overhead ? Cell(100 * report.overhead->low) : Cell();
      },
      "Lower end of its 95 % interval; below 0 where steps in the window may have been the shorter ones.",
      kTooFew);
  add(
      "Profiler Overhead High (%)", {"%", "≤ 100", 1},
      [](const DeviceTimeReport& report) {
        return report.overhead ? Cell(100 * report.overhead->high) : Cell();
      },
      "Upper end of it.", kTooFew);
  add(
      "Utilization w/o Overhead (%)", kPercent,
      [](const DeviceTimeReport& report) { return percent(report.without_overhead); },
      "GPU Utilization / (1 - Profiler Overhead); GPU Utilization where no overhead is seen.",
      "the overhead is not known; more than 100");
  time("Copy Only (ns)", &DeviceTimes::copy_only, "No kernel, but a copy or a memset ran.");
  add(
      "Idle (ns)", kTime, [](const DeviceTimeReport& report) { return report.times.idle(); },
      "Nothing ran: the sum of the causes that follow.");
  struct Cause {
    IdleCause cause;
    const char* name;
    std::string_view meaning;
  };
  constexpr Cause kCauses[] = {
      {IdleCause::kStartUp, "Start-up", "Before the window's first work on the device."},
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
  for (const Cause& of : kCauses) {
    add(
        std::string("Idle: ") + of.name + " (ns)", kTime,
        [cause = of.cause](const DeviceTimeReport& report) { return report.times.idle(cause); }, of.meaning);
  }
  add(
      "Exposed Collective (ns)", kTime,
      [](const DeviceTimeReport& report) { return report.times.exposed_collective(); },
      "Part of Kernel Busy in which no kernels but collectives' ran.");
  add(
      "Taken by Collectives (ns)", kTime,
      [](const DeviceTimeReport& report) { return report.taken_by_collectives; },
      "What collectives took from the kernels beside them: their blocks' share of the multiprocessors.");
  add(
      "Kernel Concurrency", {"", "≥ 1", 3},
      [](const DeviceTimeReport& report) {
        return cell_if(report.times.kernel_busy != 0, static_cast<double>(report.times.kernel_time) /
                                                          static_cast<double>(report.times.kernel_busy));
      },
      "Sum of the kernels' durations by Kernel Busy: 1 if they never overlap.", "no kernel ran");
  time("H2D Busy (ns)", &DeviceTimes::upload_busy, "At least one copy from the host's memory ran.");
  time("D2H Busy (ns)", &DeviceTimes::download_busy, "At least one copy to the host's memory ran.");
  add(
      "Copy Overlap (%)", kPercent,
      [](const DeviceTimeReport& report) {
        return cell_if(report.times.copy_busy != 0,
                       percent(report.times.copy_overlapped, report.times.copy_busy));
      },
      "Share of the time with copies in which a kernel ran as well.", "no copy ran");
  add(
      "Verdict", kText,
      [](const DeviceTimeReport& report) { return bottleneck_name(report.diagnosis.verdict); },
      "What the program is bound by.", "too little ran for a verdict");
  add(
      "Potential Gain (%)", kPercent,
      [](const DeviceTimeReport& report) { return 100.0 * report.diagnosis.share(report.diagnosis.gain); },
      "Share of the device's time that fixing this could save at most.");
}

}  // namespace

Columns<WindowReport> window_columns(const Report& report) {
  Columns<WindowReport> columns;
  const RunInfo* const run = report.run;
  static constexpr std::string_view kNotListed = "`[other]`, and windows beyond those that run.json lists";
  const auto info = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning,
                               std::string_view empty) {
    columns.add(
        std::move(header), unit,
        [of](const WindowReport& row) { return row.info == nullptr ? Cell() : Cell(of(*row.info)); }, meaning,
        empty);
  };
  const auto host = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning,
                               std::string_view empty = kAllDevices) {
    columns.add(
        std::move(header), unit,
        [of](const WindowReport& row) { return row.host ? Cell(of(*row.host)) : Cell(); }, meaning, empty);
  };
  columns.add(
      "Window", kText,
      [](const WindowReport& row) { return row.window == kOtherIndex ? Cell("[other]") : Cell(row.window); },
      "Its number, from 1; `[other]`: all windows beyond the first 10,000 (window, device) pairs.");
  info(
      "Reason", kText, [](const WindowInfo& window) { return std::string_view(window.reason); },
      "The trigger that opened it.", kNotListed);
  info(
      "State", kText, [](const WindowInfo& window) { return state_name(window.state); },
      "`open`, `closing` (records are still coming) or `closed`.", kNotListed);
  info(
      "Start (ns)", kMoment,
      [run](const WindowInfo& window) {
        return cell_if(window.times_known(), since_base(window.start, *run));
      },
      "When it opened, on the host.", "not known (`lost.window_times`); not listed in run.json");
  info(
      "End (ns)", kMoment,
      [run](const WindowInfo& window) { return cell_if(window.end != 0, since_base(window.end, *run)); },
      "When it closed, on the host.", "still open; not known (`lost.window_times`); not listed in run.json");
  info(
      "Duration (ns)", kTime,
      [](const WindowInfo& window) { return cell_if(window.end != 0, window.end - window.start); },
      "End - Start.", "still open; not known (`lost.window_times`); not listed in run.json");
  columns.add("Device", kText, device_of<WindowReport>, kDevice)
      .add(
          "GPU Busy (ns)", kTime, [](const WindowReport& row) { return row.busy; },
          "At least one kernel, copy or memset ran; `all`: the devices' sum.")
      .add(
          "GPU Span (ns)", kTime, [](const WindowReport& row) { return row.span; },
          "From the first work's start to the last one's end.")
      .add(
          "GPU Busy (%)", kPercent, [](const WindowReport& row) { return percent(row.busy_share); },
          "GPU Busy by Duration, or by GPU Span where that is longer.",
          "still open; not known (`lost.window_times`); not listed in run.json");
  add_work_columns(columns, [](const WindowReport& row) -> const DeviceWork& { return row.work; });
  using Host = WindowReport::Host;
  host(
      "API Calls", kCount, [](const Host& of) { return of.work.api_calls; },
      "Calls of CUDA's runtime and driver.");
  host(
      "API Time (ns)", kTime, [](const Host& of) { return of.work.api_time; },
      "Time in them; of a nested call in itself and in the call around it.");
  host(
      "Library Calls", kCount, [](const Host& of) { return of.work.library_calls; },
      "Calls of cuBLAS, cuBLASLt, cuDNN and NCCL.");
  host(
      "Submissions", kCount, [](const Host& of) { return of.work.submissions; },
      "Calls that gave a device work: launches, graph launches, copies, memsets.");
  host(
      "Ranges", kCount, [](const Host& of) { return of.work.ranges; }, "NVTX ranges that ended in it.");
  host(
      "Clipped Ranges", kCount, [](const Host& of) { return of.work.clipped_ranges; },
      "NVTX ranges that an edge of the window cut.");
  host(
      "Iterations", kCount, [](const Host& of) { return of.steps == nullptr ? 0 : of.steps->count(); },
      "Complete iterations.");
  host(
      "Samples/s", kRate, [](const Host& of) { return of.samples_per_second; },
      "INJECT_BATCH by the median duration of the complete iterations.",
      "rows of one device; no INJECT_BATCH; no complete iteration");
  host(
      "Lost Host Records", kCount, [](const Host& of) { return of.losses.host_records; },
      "Calls that found the ring full.");
  host(
      "Lost Range Records", kCount, [](const Host& of) { return of.losses.range_records; },
      "NVTX ranges that found the ring full.");
  host(
      "Lost Activity Records", kCount, [](const Host& of) { return of.losses.activity_records; },
      "Records that CUPTI had no buffer for.");
  host(
      "Invalid Timestamps", kCount, [](const Host& of) { return of.losses.invalid_times; },
      "Records without usable times, which are left out.");
  host(
      "Missing Activity Records", kCount, [](const Host& of) { return of.losses.missing_records; },
      "Launches whose record never came.");
  add_flop_columns(columns, [](const WindowReport& row) { return row.host ? &row.host->flops : nullptr; });
  add_time_columns(columns);
  const auto memory = [&columns](std::string header, auto member, std::string_view meaning) {
    columns.add(
        std::move(header), kMegabytes,
        [member](const WindowReport& row) {
          return row.memory != nullptr && row.memory->*member ? Cell(megabytes(*(row.memory->*member)))
                                                              : Cell();
        },
        meaning, "the row `all`; not asked in time");
  };
  memory("Memory at Start (MB)", &WindowMemory::at_start,
         "In use on the device by all processes as the window opened.");
  memory("Memory at End (MB)", &WindowMemory::at_end, "Likewise as it closed.");
  add_metric_columns(columns, report,
                     [](const WindowReport& row) -> const MetricValues& { return row.metrics; });
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

Columns<IterationReport> iteration_columns(const Report& report) {
  using Kind = IterationRow::Kind;
  Columns<IterationReport> columns;
  const RunInfo* const run = report.run;
  static constexpr std::string_view kNoPhase = "`outside` and `[other]`";
  const auto phase = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning,
                                std::string_view empty) {
    columns.add(
        std::move(header), unit,
        [of](const IterationReport& row) { return row.row->kind == Kind::kPhase ? Cell(of(row)) : Cell(); },
        meaning, empty);
  };
  columns.add(
      "Window", kText,
      [](const IterationReport& row) {
        return row.row->kind == Kind::kOlder ? Cell("[other]") : Cell(row.row->window);
      },
      "Number of the window; `[other]`: all rows older than the latest 10,000.");
  phase(
      "Iteration", kCount,
      [](const IterationReport& row) {
        return cell_if(row.row->label == IterationLabel::kIteration, row.row->number);
      },
      "Its number, from 0.", "anything that is no iteration");
  columns.add(
      "Label", kText,
      [](const IterationReport& row) -> Cell {
        if (row.row->kind == Kind::kOlder) return {};
        if (row.row->kind == Kind::kOutside) return "outside";
        switch (row.row->label) {
          case IterationLabel::kIteration:
            return "iteration";
          case IterationLabel::kValidation:
            return "validation";
          case IterationLabel::kCheckpoint:
            return "checkpoint";
        }
        return {};
      },
      "`iteration`, `validation`, `checkpoint`; `outside`: what was launched before or after any known "
      "boundary, "
      "or has no launch that was seen.",
      "`[other]`");
  phase(
      "Complete", kFlag, [](const IterationReport& row) { return row.row->complete ? 1 : 0; },
      "1: the window holds it from its boundary to the next one, and nothing of it was lost.", kNoPhase);
  columns.add("Device", kText, device_of<IterationReport>, kDevice);
  phase(
      "Start (ns)", kMoment,
      [run](const IterationReport& row) {
        return cell_if(row.row->begin != 0, since_base(row.row->begin, *run));
      },
      "Host time of its boundary; of what began before the window, the window's start.",
      "`outside` and `[other]`; not known");
  phase(
      "Duration (ns)", kTime, [](const IterationReport& row) { return row.duration; },
      "Next boundary - Start, on the host; of what the window's end cuts, its end - Start.",
      "`outside` and `[other]`; not over");
  phase(
      "Samples/s", kRate, [](const IterationReport& row) { return row.samples_per_second; },
      "INJECT_BATCH by Duration.", "not a complete iteration; no INJECT_BATCH");
  columns
      .add(
          "Launches", kCount,
          [](const IterationReport& row) { return cell_if(!row.device, row.row->launches); },
          "Host calls that gave a device work.", kAllDevices)
      .add(
          "GPU Busy (ns)", kTime,
          [](const IterationReport& row) { return cell_if(row.row->kind != Kind::kOutside, row.busy); },
          "At least one of the row's kernels, copies and memsets ran; `all`: the devices' sum.", "`outside`")
      .add(
          "Gap to Next (ns)", kTime, [](const IterationReport& row) { return row.gap; },
          "From the end of the row's last work to the start of the next one's first; `all`: no device "
          "worked.",
          "the last of its window");
  add_work_columns(columns, [](const IterationReport& row) -> const DeviceWork& { return row.work; });
  add_flop_columns(columns, [](const IterationReport& row) { return row.flops ? &*row.flops : nullptr; });
  columns
      .add(
          "Kernel Busy (ns)", kTime,
          [](const IterationReport& row) {
            return cell_if(row.row->kind != Kind::kOutside, row.kernel_busy);
          },
          "At least one of the row's kernels ran.", "`outside`")
      .add(
          "GPU Utilization (%)", kPercent,
          [](const IterationReport& row) {
            return cell_if(row.row->kind != Kind::kOutside && row.utilization.has_value(),
                           100 * row.utilization.value_or(0));
          },
          "Kernel Busy by the iteration's time on the device: from its first work to the next one's.",
          "`outside`; the time is not known");
  add_metric_columns(columns, report,
                     [](const IterationReport& row) -> const MetricValues& { return row.metrics; });
  return columns;
}

const std::vector<IterationReport>& iteration_rows(const Report& report) {
  return report.iterations;
}

Columns<Listed<PhaseRow>> phase_columns(const Report&) {
  using Row = Listed<PhaseRow>;
  Columns<Row> columns;
  columns
      .add(
          "Window", kText,
          [](const Row& row) {
            return row.row.window == PhaseStatistics::kOtherWindow ? Cell("[other]") : Cell(row.row.window);
          },
          "Number of the window; `[other]`: all beyond those that there was room for.")
      .add(
          "Device", kNumber, [](const Row& row) { return row.row.device; },
          "The GPU, as the process numbers them.")
      .add(
          "Phase", kText, [](const Row& row) { return phase_name(row.row.phase); },
          "`forward`, `backward`, `optimizer` or `other`.")
      .add(
          "Kernel Time (%)", kPercent,
          [](const Row& row) { return percent(row.row.work.kernels.sum, row.total); },
          "Share of the window's kernel time on the device.");
  add_work_columns(columns, [](const Row& row) -> const DeviceWork& { return row.row.work; });
  return columns;
}

std::vector<Listed<PhaseRow>> phase_rows(const Report& report) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> totals;  // kernel time by window, device
  std::vector<Listed<PhaseRow>> rows;
  for (const PhaseRow& row : report.statistics->phases()) {
    totals[{row.window, row.device}] += row.work.kernels.sum;
    rows.push_back({row, 0, report.run});
  }
  for (Listed<PhaseRow>& row : rows) row.total = totals[{row.row.window, row.row.device}];
  return rows;
}

}  // namespace inject
