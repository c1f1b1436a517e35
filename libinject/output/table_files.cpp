// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/table_files.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>

#include "libinject/output/atomic_file.h"
#include "libinject/output/copy_table.h"
#include "libinject/output/csv.h"
#include "libinject/output/diagnosis_report.h"
#include "libinject/output/metric_tables.h"
#include "libinject/output/run_json.h"
#include "libinject/output/shape_tables.h"
#include "libinject/stats/kernel_use.h"

namespace inject {

namespace {

constexpr std::string_view kRunFile = "run.json";

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

double megabytes(double bytes) {
  return bytes / 1e6;
}
double megabytes(std::uint64_t bytes) {
  return megabytes(static_cast<double>(bytes));
}

template <typename Row>
std::uint64_t total_of(const std::vector<Row>& rows) {
  std::uint64_t total = 0;
  for (const Row& row : rows) total += row.stats->sum();
  return total;
}

/// Total, count, average, median, minimum, maximum, standard deviation: in all of Nsight Systems' summaries
/// of times.
void time_cells(CsvRow& row, const SampleStats& stats) {
  row.number(stats.sum()).number(stats.count());
  row.decimal(stats.mean(), 1).decimal(stats.median(), 1);
  row.number(stats.min()).number(stats.max()).decimal(stats.stddev(), 1);
}

/// As Nsight Systems prints GridXYZ and BlockXYZ: each number right-aligned in four columns.
std::string dimensions(const std::array<std::int32_t, 3>& size) {
  std::array<char, 48> text{};
  const int length = std::snprintf(text.data(), text.size(), "%4d %4d %4d", size[0], size[1], size[2]);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string_view style_name(RangeStyle style) {
  return style == RangeStyle::kStartEnd ? "StartEnd" : "PushPop";
}

/// Times in the tables count from the base; what lies before it is negative.
std::int64_t since_base(Nanoseconds time, const RunInfo& run) {
  return static_cast<std::int64_t>(time - run.base);
}

void thread_id(CsvRow& row, std::uint32_t thread, const RunInfo& run) {
  if (thread < run.threads.size() && run.threads[thread].tid != 0) {
    row.number(run.threads[thread].tid);
  } else {
    row.empty();
  }
}

std::string_view thread_name(std::uint32_t thread, const RunInfo& run) {
  if (thread < run.threads.size() && run.threads[thread].tid != 0) return run.threads[thread].name;
  return thread == kOtherIndex ? "[other]" : "[unknown]";
}

void time_rows(const std::vector<TimeRow>& rows, std::string& text, const TextSink& sink) {
  const std::uint64_t total = total_of(rows);
  for (const TimeRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.stats->sum(), total), 1);
    time_cells(row, *entry.stats);
    row.text(entry.name).end();
    sink(text);
  }
}

void kernel_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  time_rows(statistics.kernels(), text, sink);
}

void api_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  time_rows(statistics.api_calls(), text, sink);
}

void operation_time_rows(const Statistics& statistics, const RunInfo&, std::string& text,
                         const TextSink& sink) {
  time_rows(statistics.operation_times(), text, sink);
}

void operation_size_rows(const Statistics& statistics, const RunInfo&, std::string& text,
                         const TextSink& sink) {
  for (const TimeRow& entry : statistics.operation_sizes()) {
    const SampleStats& stats = *entry.stats;
    CsvRow row(text);
    row.decimal(megabytes(stats.sum()), 3).number(stats.count());
    row.decimal(megabytes(stats.mean()), 3).decimal(megabytes(stats.median()), 3);
    row.decimal(megabytes(stats.min()), 3)
        .decimal(megabytes(stats.max()), 3)
        .decimal(megabytes(stats.stddev()), 3);
    row.text(entry.name).end();
    sink(text);
  }
}

void shape_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const std::vector<ShapeRow> rows = statistics.kernel_shapes();
  const std::uint64_t total = total_of(rows);
  for (const ShapeRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.stats->sum(), total), 1);
    time_cells(row, *entry.stats);
    if (entry.other) {
      row.empty().empty();
    } else {
      row.text(dimensions(entry.grid)).text(dimensions(entry.block));
    }
    row.text(entry.name).end();
    sink(text);
  }
}

/// From Occupancy to Lost Time.
void use_cells(CsvRow& row, const DetailRow& entry, const KernelUse& use) {
  if (use.occupancy) {
    row.decimal(100 * use.occupancy->share, 1).number(use.occupancy->blocks);
    row.text(limiter_text(use.occupancy->limiters));
  } else {
    row.empty().empty().empty();
  }
  if (use.grid) {
    row.decimal(use.grid->waves, 2).decimal(100 * use.grid->efficiency, 1);
  } else {
    row.empty().empty();
  }
  row.text(tensor_cores_name(entry.cores));
  if (use.lost_time) {
    row.number(*use.lost_time);
  } else {
    row.empty();
  }
}

void detail_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  const std::vector<DetailRow>& rows = statistics.kernel_details();
  std::uint64_t total = 0;
  for (const DetailRow& entry : rows) total += entry.time.sum;
  for (const DetailRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.time.sum, total), 1).number(entry.time.sum).number(entry.time.count);
    row.decimal(entry.time.mean(), 1).number(entry.time.smallest()).number(entry.time.max);
    if (entry.other) {
      for (int i = 0; i < 18; ++i) row.empty();
    } else {
      row.number(entry.device);
      for (const std::int32_t size : entry.grid) row.number(size);
      for (const std::int32_t size : entry.block) row.number(size);
      row.number(entry.registers_per_thread)
          .number(entry.static_shared_bytes)
          .number(entry.dynamic_shared_bytes);
      row.number(entry.local_bytes_per_thread);
      use_cells(row, entry, kernel_use(entry, run.devices));
    }
    row.text(entry.name).end();
    sink(text);
  }
}

void range_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const std::vector<RangeRow> rows = statistics.ranges();
  const std::uint64_t total = total_of(rows);
  for (const RangeRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.stats->sum(), total), 1);
    time_cells(row, *entry.stats);
    row.text(entry.other ? "" : style_name(entry.style)).text(entry.name).end();
    sink(text);
  }
}

void range_kernel_rows(const Statistics& statistics, const RunInfo& run, std::string& text,
                       const TextSink& sink) {
  for (const RangeKernelRow& entry : statistics.range_kernels()) {
    const SampleStats& stats = *entry.stats;
    CsvRow row(text);
    row.text(entry.range).text(entry.in_range && !entry.other ? style_name(entry.style) : "").number(run.pid);
    thread_id(row, entry.thread, run);
    row.number(entry.range_instances).number(stats.count()).number(stats.sum());
    row.decimal(stats.mean(), 1).decimal(stats.median(), 1);
    row.number(stats.min()).number(stats.max()).decimal(stats.stddev(), 1);
    row.text(entry.kernel).end();
    sink(text);
  }
}

void library_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const std::vector<LibraryRow> rows = statistics.library_calls();
  std::uint64_t total = 0;
  for (const LibraryRow& entry : rows) total += entry.self.kernels.sum;
  for (const LibraryRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.self.kernels.sum, total), 1).number(entry.self.kernels.sum);
    row.number(entry.self.kernels.count);
    row.number(entry.inclusive.kernels.sum).number(entry.inclusive.kernels.count);
    row.number(entry.host.count).number(entry.failed).number(entry.host.sum).decimal(entry.host.mean(), 1);
    row.number(entry.host.smallest()).number(entry.host.max);
    row.number(entry.self.copies).number(entry.self.copy_time);
    row.number(entry.self.memsets).number(entry.self.memset_time);
    if (entry.other) {
      row.empty().empty();
    } else {
      row.number(entry.depth).text(group_name(entry.group));
    }
    row.text(entry.path).end();
    sink(text);
  }
}

void thread_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  const std::vector<ThreadRow> rows = statistics.threads();
  const std::uint64_t total = total_of(rows);
  for (const ThreadRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.stats->sum(), total), 1);
    time_cells(row, *entry.stats);
    if (entry.device == kOtherIndex) {
      row.empty();
    } else {
      row.number(entry.device);
    }
    row.number(run.pid);
    thread_id(row, entry.thread, run);
    row.text(thread_name(entry.thread, run)).end();
    sink(text);
  }
}

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
  const WindowInfo* info = nullptr;
  HostWork host;
  WindowDeviceRow together;
  DeviceTimes times;              // summed up over the devices
  std::uint64_t device_time = 0;  // what `together` is busy of: the sum over the devices
  std::vector<WindowDeviceRow> devices;
};

void empty_cells(CsvRow& row, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) row.empty();
}

void device_cells(CsvRow& row, const DeviceWork& work) {
  row.number(work.kernels.count).number(work.kernels.sum);
  row.number(work.copies).number(work.copy_time).decimal(megabytes(work.copy_bytes), 3);
  row.number(work.memsets).number(work.memset_time).decimal(megabytes(work.memset_bytes), 3);
  row.number(work.unattributed);
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
  const auto least = flops.least_time(specs_of(run, 0));
  if (!least) {
    row.empty();
    return;
  }
  row.decimal(100.0 * *least * 1e9 / static_cast<double>(duration), 1);
}

std::uint64_t duration_of(const WindowInfo* window) {
  return window == nullptr || window->end == 0 ? 0 : window->end - window->start;
}

double samples_per_second(const RunInfo& run, const Totals& step_times) {
  return static_cast<double>(run.batch * step_times.count) / (static_cast<double>(step_times.sum) * 1e-9);
}

/// How the device's time was spent, and what that says. `overhead`: the profiler's share of it, if known.
void time_cells(CsvRow& row, const DeviceTimes& times, const KernelLimits& limits,
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
  row.number(times.exposed_collective());
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
  const Diagnosis diagnosis = diagnose(times, limits);
  row.text(bottleneck_name(diagnosis.verdict)).decimal(100.0 * diagnosis.share(diagnosis.gain), 1);
}
constexpr std::size_t kTimeCells = 25;

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

void window_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  std::map<std::uint32_t, WindowRows> windows;
  std::map<std::uint32_t, KernelLimits> limits;
  const std::optional<double> outside = step_time_outside(statistics.iterations());
  const WindowMetricCells metrics(statistics);
  for (const WindowInfo& info : run.windows) windows[info.number].info = &info;
  for (const WindowHostRow& entry : statistics.window_hosts()) windows[entry.window].host = entry.work;
  for (const WindowDeviceRow& entry : statistics.window_devices()) {
    WindowRows& window = windows[entry.window];
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
  for (const auto& [number, window] : windows) {
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
      empty_cells(row, kTimeCells);
    } else {
      KernelLimits together;
      for (const WindowDeviceRow& device : window.devices) {
        if (device.times != nullptr) together.merge(limits[device.device]);
      }
      time_cells(row, window.times, together, overhead);
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
      empty_cells(row, 16);
      if (device.times == nullptr) {
        empty_cells(row, kTimeCells);
      } else {
        time_cells(row, device.times->times, limits[device.device], overhead);
      }
      memory_cells(row, window.info, device.device);
      metrics.append(row, number, {&device, 1}, duration_of(window.info));
      row.end();
      sink(text);
    }
  }
}

std::string_view kind_name(AllocationKind kind) {
  switch (kind) {
    case AllocationKind::kDevice:
      return "device";
    case AllocationKind::kManaged:
      return "managed";
    case AllocationKind::kPinnedHost:
      return "pinned host";
  }
  return "";
}

void memory_rows(const Statistics&, const RunInfo& run, std::string& text, const TextSink& sink) {
  for (const MemoryRow& entry : run.memory) {
    CsvRow row(text);
    if (entry.device == MemoryUse::kHost) {
      row.text("host");
    } else if (entry.device == MemoryUse::kOtherDevice) {
      row.text("[other]");
    } else if (entry.device == MemoryUse::kUnknownDevice) {
      row.text("[unknown]");
    } else {
      row.number(entry.device);
    }
    row.text(entry.api ? kind_name(allocation_kind(*entry.api)) : "[all]");
    row.text(entry.api ? allocation_name(*entry.api) : "[all]");
    const MemoryCounts& counts = entry.counts;
    row.number(counts.allocations).number(counts.frees);
    for (const std::uint64_t bytes : {counts.allocated, counts.live, counts.peak, counts.largest})
      row.decimal(megabytes(bytes), 3);
    row.number(counts.failed);
    for (const std::uint64_t bytes : {counts.failed_bytes, counts.largest_failed, counts.last_failed})
      row.decimal(megabytes(bytes), 3);
    row.end();
    sink(text);
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
      row.end();
      sink(text);
    }
  }
}

constexpr std::array kTables{
    TableFile{"cuda_gpu_kern_sum.csv",
              "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
              kernel_rows},
    TableFile{
        "cuda_gpu_kern_gb_sum.csv",
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,"
        "Name",
        shape_rows},
    TableFile{"cuda_api_sum.csv",
              "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
              api_rows},
    TableFile{"cuda_gpu_mem_time_sum.csv",
              "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation",
              operation_time_rows},
    TableFile{"cuda_gpu_mem_size_sum.csv",
              "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation",
              operation_size_rows},
    TableFile{"copy_sum.csv", kCopyHeader, copy_rows},
    TableFile{
        "nvtx_sum.csv",
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range",
        range_rows},
    TableFile{
        "nvtx_kern_sum.csv",
        "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),"
        "StdDev (ns),Kernel Name",
        range_kernel_rows},
    TableFile{"library_sum.csv",
              "GPU Time (%),GPU Time (ns),Kernels,GPU Time incl. Nested (ns),Kernels incl. "
              "Nested,Calls,Failed Calls,"
              "Host Time (ns),Host Avg (ns),Host Min (ns),Host Max (ns),Copies,Copy Time (ns),Memsets,"
              "Memset Time (ns),Depth,Library,Call",
              library_rows},
    TableFile{"family_sum.csv", kFamilyHeader, family_rows},
    TableFile{"gemm_sum.csv", kGemmHeader, gemm_rows},
    TableFile{"conv_sum.csv", kConvHeader, conv_rows},
    TableFile{"attention_sum.csv", kAttentionHeader, attention_rows},
    TableFile{"rnn_sum.csv", kRnnHeader, rnn_rows},
    TableFile{"norm_sum.csv", kNormHeader, norm_rows},
    TableFile{"nccl_sum.csv", kCollectiveHeader, nccl_rows},
    TableFile{
        "thread_kern_sum.csv",
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Device,PID,TID,"
        "Thread Name",
        thread_rows},
    TableFile{
        "window_sum.csv",
        "Window,Reason,State,Start (ns),End (ns),Duration (ns),Device,GPU Busy (ns),GPU Span (ns),"
        "GPU Busy (%),Kernels,Kernel Time (ns),Copies,"
        "Copy Time (ns),Copy Size (MB),Memsets,Memset Time (ns),Memset Size (MB),Unattributed,API Calls,"
        "API Time (ns),Library Calls,Submissions,Ranges,Clipped Ranges,Iterations,Samples/s,"
        "Lost Host Records,Lost Range Records,Lost Activity Records,Invalid Timestamps,"
        "Missing Activity Records,FLOPs,TFLOP/s,Peak (%),Device Time (ns),Kernel Busy (ns),GPU Utilization "
        "(%),"
        "Profiler Overhead (%),Utilization w/o Overhead (%),Copy Only (ns),Idle (ns),Idle: Start-up (ns),"
        "Idle: Synchronization (ns),Idle: Copy Call (ns),Idle: Launch Call (ns),Idle: Other Call (ns),"
        "Idle: Host Compute (ns),Idle: Host Wait (ns),Idle: Other Stream (ns),Idle: Collective (ns),"
        "Idle: Queue (ns),Idle: Unknown (ns),Exposed Collective (ns),Kernel Concurrency,H2D Busy (ns),"
        "D2H Busy (ns),Copy Overlap (%),Verdict,Potential Gain (%),Memory at Start (MB),Memory at End (MB)",
        window_rows, window_metric_columns},
    TableFile{
        "iteration_sum.csv",
        "Window,Iteration,Label,Complete,Device,Start (ns),Duration (ns),Samples/s,Launches,"
        "GPU Busy (ns),Gap to Next (ns),Kernels,Kernel Time (ns),Copies,Copy Time (ns),Copy Size (MB),"
        "Memsets,Memset Time (ns),Memset Size (MB),Unattributed,FLOPs,TFLOP/s,Peak (%),Kernel Busy (ns),"
        "GPU Utilization (%)",
        iteration_rows},
    TableFile{"phase_sum.csv",
              "Window,Device,Phase,Kernel Time (%),Kernels,Kernel Time (ns),Copies,Copy Time (ns),"
              "Copy Size (MB),Memsets,Memset Time (ns),Memset Size (MB),Unattributed",
              phase_rows},
    TableFile{"memory_sum.csv",
              "Device,Kind,API,Allocations,Frees,Allocated (MB),Live (MB),Peak (MB),Largest (MB),Failed,"
              "Failed Size (MB),Largest Failed (MB),Last Failed (MB)",
              memory_rows},
    TableFile{
        "kernel_detail.csv",
        "Time (%),Total Time (ns),Instances,Avg (ns),Min (ns),Max (ns),Device,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,"
        "Reg/Trd,StcSMem (B),DymSMem (B),LocalMem/Trd (B),Occupancy (%),Blocks/SM,Limited by,Waves,"
        "SM Efficiency (%),Tensor Cores,Lost Time (ns),Name",
        detail_rows},
    TableFile{"kernel_metrics.csv", kKernelMetricHeader, kernel_metric_rows, kernel_metric_columns,
              takes_metrics},
};

void append_table(const TableFile& table, const Statistics& statistics, const RunInfo& run, std::string& text,
                  const TextSink& sink) {
  text += header_of(table, statistics) + "\n";
  table.rows(statistics, run, text, sink);
}

void write_json(const std::string& folder, const RunInfo& run, const std::vector<std::string>& files,
                std::vector<std::string>& errors, const std::vector<DeviceDiagnosis>& diagnoses = {}) {
  AtomicFile json(folder, kRunFile);
  json.file().buffer() = run_json_text(run, files, errors, diagnoses);
  if (!json.finish() || !json.commit()) errors.push_back(json.error());
}

}  // namespace

std::span<const TableFile> table_files() {
  return kTables;
}

std::string header_of(const TableFile& table, const Statistics& statistics) {
  std::string header(table.header);
  if (table.more_columns != nullptr) header += table.more_columns(statistics);
  return header;
}

bool is_wanted(const TableFile& table, const Statistics& statistics) {
  return table.wanted == nullptr || table.wanted(statistics);
}

std::string table_text(const TableFile& table, const Statistics& statistics, const RunInfo& run) {
  std::string text;
  append_table(table, statistics, run, text, [](std::string&) {});
  return text;
}

std::vector<std::string> write_all(const std::string& folder, const Statistics& statistics,
                                   const RunInfo& run) noexcept {
  std::vector<std::string> errors;
  try {
    // All are written before the first is put in place: a reader meets tables of one moment, but for the
    // renames.
    std::vector<std::unique_ptr<AtomicFile>> finished;
    std::vector<std::string> names;
    for (const TableFile& table : kTables) {
      if (!is_wanted(table, statistics)) continue;
      auto file = std::make_unique<AtomicFile>(folder, table.name);
      append_table(table, statistics, run, file->file().buffer(),
                   [&file](std::string&) { file->file().write_if_full(); });
      if (file->finish()) {
        finished.push_back(std::move(file));
        names.emplace_back(table.name);
      } else {
        errors.push_back(file->error());
      }
    }
    for (const auto& file : finished) {
      if (!file->commit()) errors.push_back(file->error());
    }
    write_json(folder, run, names, errors, device_diagnoses(statistics, run));
  } catch (const std::exception& problem) {
    // Out of memory, most likely: this, too, may not fit.
    try {
      errors.emplace_back(std::string("cannot write the tables: ") + problem.what());
    } catch (...) {
      errors.clear();
    }
  }
  return errors;
}

std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run) noexcept {
  std::vector<std::string> errors;
  try {
    write_json(folder, run, {}, errors);
  } catch (const std::exception& problem) {
    try {
      errors.emplace_back(std::string("cannot write run.json: ") + problem.what());
    } catch (...) {
      errors.clear();
    }
  }
  return errors;
}

}  // namespace inject
