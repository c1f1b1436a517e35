// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/window_tables.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/output/csv.h"
#include "libinject/output/diagnosis_report.h"
#include "libinject/output/metric_tables.h"
#include "libinject/output/shape_tables.h"
#include "libinject/output/table_cells.h"

namespace inject {

namespace {

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

/// A window's rows: one for the host and all devices together, then one a device.
struct WindowRows {
  bool known = false;  // has rows in the statistics
  const WindowInfo* info = nullptr;
  HostWork host;
  WindowDeviceRow together;
  DeviceTimes times;              // summed up over the devices
  std::uint64_t device_time = 0;  // what `together` is busy of: the sum over the devices
  std::vector<WindowDeviceRow> devices;
};

void device_cells(CsvRow& row, const DeviceWork& work) {
  row.number(work.kernels.count).number(work.kernels.sum);
  row.number(work.copies).number(work.copy_time).decimal(megabytes(work.copy_bytes), 3);
  row.number(work.memsets).number(work.memset_time).decimal(megabytes(work.memset_bytes), 3);
  row.number(work.unattributed);
}

void window_cells(CsvRow& row, std::uint32_t number, const WindowInfo* info, const RunInfo& run) {
  if (number == kOtherIndex) {
    row.text("[other]");
  } else {
    row.number(number);
  }
  if (info == nullptr) {
    row.empty().empty().empty().empty().empty();
    return;
  }
  row.text(info->reason).text(state_name(info->state)).number(since_base(info->start, run));
  if (info->end == 0) {
    row.empty().empty();
  } else {
    row.number(since_base(info->end, run)).number(info->end - info->start);
  }
}

/// The time that the device's busy time is a share of, 0 where that is not known.
std::uint64_t device_time(const WindowDeviceRow& device, const WindowInfo* window) {
  return window == nullptr || window->end == 0 ? 0 : device.time(window->end - window->start);
}

/// Busy time, the time from the first work's start to the last one's end, and the busy share of
/// `device_time`.
void busy_cells(CsvRow& row, const WindowDeviceRow& work, std::uint64_t device_time) {
  row.number(work.busy).number(work.last - work.first);
  if (device_time == 0) {
    row.empty();
  } else {
    row.decimal(percent(work.busy, device_time), 1);
  }
}

/// What library calls of known shape computed, at what rate, and the rate's share of the peaks: the time that
/// the run's devices would need at least, each product at the peak of its type, by `duration` (0: not known).
void flop_cells(CsvRow& row, const FlopCount& flops, std::uint64_t duration, const RunInfo& run) {
  const std::uint64_t total = flops.total();
  row.number(total);
  if (total == 0 || duration == 0) {
    row.empty().empty();
    return;
  }
  row.decimal(static_cast<double>(total) / static_cast<double>(duration) / 1e3, 3);
  if (const PeakShare share = peak_share(flops, duration, run); share.value) {
    row.decimal(100.0 * *share.value, 1);
  } else {
    row.empty();
  }
}

std::uint64_t duration_of(const WindowInfo* window) {
  return window == nullptr || window->end == 0 ? 0 : window->end - window->start;
}

double samples_per_second(const RunInfo& run, const Totals& step_times) {
  return static_cast<double>(run.batch * step_times.count) / (static_cast<double>(step_times.sum) * 1e-9);
}

/// How the device's time was spent, and what that says. `overhead`: the profiler's share of it, if known.
void device_time_cells(CsvRow& row, const DeviceTimes& times, const KernelLimits& limits, int multiprocessors,
                       const std::optional<double>& overhead) {
  row.number(times.span).number(times.kernel_busy).decimal(percent(times.kernel_busy, times.span), 1);
  if (overhead) {
    row.decimal(100.0 * *overhead, 1);
    const double share = 1 - std::clamp(*overhead, 0.0, 0.99);
    row.decimal(std::min(100.0, percent(times.kernel_busy, times.span) / share), 1);
  } else {
    row.empty().empty();
  }
  row.number(times.copy_only).number(times.idle());
  for (const DeviceTimes::Idle& idle : times.idle_by_cause) row.number(idle.time);
  row.number(times.exposed_collective()).number(times.taken_by_collectives(multiprocessors));
  if (times.kernel_busy == 0) {
    row.empty();
  } else {
    row.decimal(static_cast<double>(times.kernel_time) / static_cast<double>(times.kernel_busy), 3);
  }
  row.number(times.upload_busy).number(times.download_busy);
  if (times.copy_busy == 0) {
    row.empty();
  } else {
    row.decimal(percent(times.copy_overlapped, times.copy_busy), 1);
  }
  const Diagnosis diagnosis = diagnose(times, limits, multiprocessors);
  row.text(bottleneck_name(diagnosis.verdict)).decimal(100.0 * diagnosis.share(diagnosis.gain), 1);
}
constexpr std::size_t kDeviceTimeCells = 26;

// What calls, iterations, losses and operations of the host have, and no device.
constexpr std::size_t kHostCells = 16;

void memory_cells(CsvRow& row, const WindowInfo* window, std::uint32_t device) {
  const WindowMemory* found = nullptr;
  if (window != nullptr) {
    for (const WindowMemory& memory : window->memory) {
      if (memory.device == device) found = &memory;
    }
  }
  for (const auto edge : {&WindowMemory::at_start, &WindowMemory::at_end}) {
    if (found != nullptr && (found->*edge).has_value()) {
      row.decimal(megabytes(*(found->*edge)), 3);
    } else {
      row.empty();
    }
  }
}

std::string_view label_name(const IterationRow& entry) {
  if (entry.kind == IterationRow::Kind::kOlder) return "";
  if (entry.kind == IterationRow::Kind::kOutside) return "outside";
  switch (entry.label) {
    case IterationLabel::kIteration:
      return "iteration";
    case IterationLabel::kValidation:
      return "validation";
    case IterationLabel::kCheckpoint:
      return "checkpoint";
  }
  return "";
}

/// From Window to Complete, and those from Start to Samples/s.
void iteration_name_cells(CsvRow& row, const IterationRow& entry) {
  if (entry.kind == IterationRow::Kind::kOlder) {
    row.text("[other]");
  } else {
    row.number(entry.window);
  }
  const bool phase = entry.kind == IterationRow::Kind::kPhase;
  if (phase && entry.label == IterationLabel::kIteration) {
    row.number(entry.number);
  } else {
    row.empty();
  }
  row.text(label_name(entry));
  if (phase) {
    row.number(entry.complete ? 1 : 0);
  } else {
    row.empty();
  }
}

void iteration_time_cells(CsvRow& row, const IterationRow& entry, const RunInfo& run) {
  if (entry.kind != IterationRow::Kind::kPhase) {
    row.empty().empty().empty();
    return;
  }
  row.number(since_base(entry.begin, run));
  if (entry.end == 0) {
    row.empty();
  } else {
    row.number(entry.end - entry.begin);
  }
  Totals step;
  if (entry.complete && entry.label == IterationLabel::kIteration) step.add(entry.end - entry.begin);
  if (run.batch == 0 || step.sum == 0) {
    row.empty();
  } else {
    row.decimal(samples_per_second(run, step), 1);
  }
}

void iteration_work_cells(CsvRow& row, const IterationRow& entry, std::uint64_t busy,
                          const std::optional<std::uint64_t>& gap, const DeviceWork& work) {
  if (entry.kind == IterationRow::Kind::kOutside) {
    row.empty();
  } else {
    row.number(busy);
  }
  if (gap) {
    row.number(*gap);
  } else {
    row.empty();
  }
  device_cells(row, work);
}

/// The time with at least one kernel, and its share of `time` on the device (0: not known).
void utilization_cells(CsvRow& row, const IterationRow& entry, std::uint64_t kernel_busy,
                       std::uint64_t time) {
  if (entry.kind == IterationRow::Kind::kOutside) {
    row.empty().empty();
    return;
  }
  row.number(kernel_busy);
  if (time == 0) {
    row.empty();
  } else {
    row.decimal(percent(kernel_busy, time), 1);
  }
}

}  // namespace

PeakShare peak_share(const FlopCount& flops, std::uint64_t duration, const RunInfo& run) {
  const auto least = flops.total() == 0 || duration == 0 ? std::nullopt : flops.least_time(specs_of(run, 0));
  if (!least) return {};
  // Of one device's peak, while all of them may have worked.
  const double devices = static_cast<double>(std::max<std::size_t>(run.devices.size(), 1));
  const double share = *least * 1e9 / static_cast<double>(duration);
  const bool possible = possible_share(share / devices, static_cast<double>(duration)).value.has_value();
  return possible ? PeakShare{share, false} : PeakShare{std::nullopt, true};
}

void window_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  std::map<std::uint32_t, WindowRows> windows;
  std::map<std::uint32_t, KernelLimits> limits;
  const std::optional<double> outside = step_time_outside(statistics.iterations());
  const WindowMetricCells metrics(statistics);
  for (const WindowInfo& info : run.windows) windows[info.number].info = &info;
  for (const WindowHostRow& entry : statistics.window_hosts()) {
    windows[entry.window].host = entry.work;
    windows[entry.window].known = true;
  }
  for (const WindowDeviceRow& entry : statistics.window_devices()) {
    WindowRows& window = windows[entry.window];
    window.known = true;
    WindowDeviceRow& together = window.together;
    const bool first = window.devices.empty();
    together.work.merge(entry.work);
    together.busy += entry.busy;
    together.first = first ? entry.first : std::min(together.first, entry.first);
    together.last = std::max(together.last, entry.last);
    window.device_time += device_time(entry, window.info);
    window.devices.push_back(entry);
    if (entry.times == nullptr) continue;
    window.times.merge(entry.times->times);
    if (limits.count(entry.device) == 0) limits[entry.device] = kernel_limits(statistics, run, entry.device);
  }
  // Windows after the last one that there was room for are in the row of others: none of zeros.
  const bool full = windows.count(kOtherIndex) != 0;
  std::uint32_t last = 0;
  for (const auto& [number, window] : windows) {
    if (window.known && number != kOtherIndex) last = number;
  }
  for (const auto& [number, window] : windows) {
    if (full && number > last && number != kOtherIndex) continue;
    CsvRow row(text);
    window_cells(row, number, window.info, run);
    row.text("all");
    busy_cells(row, window.together, window.device_time);
    device_cells(row, window.together.work);
    row.number(window.host.api_calls).number(window.host.api_time).number(window.host.library_calls);
    row.number(window.host.submissions).number(window.host.ranges).number(window.host.clipped_ranges);
    const Totals steps = statistics.iterations().window_step_times(number);
    const auto overhead = profiler_overhead(outside, steps.count, steps.mean());
    row.number(steps.count);
    if (run.batch == 0 || steps.sum == 0) {
      row.empty();
    } else {
      row.decimal(samples_per_second(run, steps), 1);
    }
    const Losses losses = window.info != nullptr ? window.info->losses : Losses{};
    row.number(losses.host_records).number(losses.range_records).number(losses.activity_records);
    row.number(losses.invalid_times).number(losses.missing_records);
    flop_cells(row, window.host.flops, duration_of(window.info), run);
    if (window.times.span == 0) {
      empty_cells(row, kDeviceTimeCells);
    } else {
      KernelLimits together;
      for (const WindowDeviceRow& device : window.devices) {
        if (device.times != nullptr) together.merge(limits[device.device]);
      }
      device_time_cells(row, window.times, together, specs_of(run, 0).multiprocessors, overhead);
    }
    row.empty().empty();
    metrics.append(row, number, window.devices, duration_of(window.info));
    row.end();
    sink(text);
    for (const WindowDeviceRow& device : window.devices) {
      if (device.device == kOtherIndex) continue;
      window_cells(row, number, window.info, run);
      row.number(device.device);
      busy_cells(row, device, device_time(device, window.info));
      device_cells(row, device.work);
      empty_cells(row, kHostCells);
      if (device.times == nullptr) {
        empty_cells(row, kDeviceTimeCells);
      } else {
        device_time_cells(row, device.times->times, limits[device.device],
                          specs_of(run, device.device).multiprocessors, overhead);
      }
      memory_cells(row, window.info, device.device);
      metrics.append(row, number, {&device, 1}, duration_of(window.info));
      row.end();
      sink(text);
    }
  }
}

void iteration_rows(const Statistics& statistics, const RunInfo& run, std::string& text,
                    const TextSink& sink) {
  for (const IterationRow& entry : statistics.iterations().rows()) {
    CsvRow row(text);
    DeviceWork together;
    std::uint64_t busy = 0;
    std::uint64_t kernel_busy = 0;
    std::uint64_t device_time = 0;
    for (const IterationDeviceRow& device : entry.devices) {
      together.merge(device.work);
      busy += device.busy;
      kernel_busy += device.kernel_busy;
    }
    const bool phase = entry.kind == IterationRow::Kind::kPhase && entry.end != 0;
    const std::uint64_t duration = phase ? entry.end - entry.begin : 0;
    if (phase) {
      for (const IterationDeviceRow& device : entry.devices) device_time += device.time(duration);
    }
    iteration_name_cells(row, entry);
    row.text("all");
    iteration_time_cells(row, entry, run);
    row.number(entry.launches);
    iteration_work_cells(row, entry, busy, entry.gap, together);
    flop_cells(row, entry.flops, duration, run);
    utilization_cells(row, entry, kernel_busy, device_time);
    iteration_metric_cells(row, statistics, entry, entry.devices);
    row.end();
    sink(text);
    for (const IterationDeviceRow& device : entry.devices) {
      iteration_name_cells(row, entry);
      row.number(device.device);
      iteration_time_cells(row, entry, run);
      row.empty();
      iteration_work_cells(row, entry, device.busy, device.gap, device.work);
      row.empty().empty().empty();
      utilization_cells(row, entry, device.kernel_busy, phase ? device.time(duration) : 0);
      iteration_metric_cells(row, statistics, entry, {&device, 1});
      row.end();
      sink(text);
    }
  }
}

void phase_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const std::vector<PhaseRow> rows = statistics.phases();
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> totals;  // kernel time by window, device
  for (const PhaseRow& entry : rows) totals[{entry.window, entry.device}] += entry.work.kernels.sum;
  for (const PhaseRow& entry : rows) {
    CsvRow row(text);
    if (entry.window == PhaseStatistics::kOtherWindow) {
      row.text("[other]");
    } else {
      row.number(entry.window);
    }
    row.number(entry.device).text(phase_name(entry.phase));
    row.decimal(percent(entry.work.kernels.sum, totals[{entry.window, entry.device}]), 1);
    device_cells(row, entry.work);
    row.end();
    sink(text);
  }
}

}  // namespace inject
