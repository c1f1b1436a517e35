// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/prometheus_metrics.h"
#include "libinject/record/memory_use.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <vector>

#include "libinject/analysis/diagnosis.h"
#include "libinject/analysis/input_cause.h"
#include "libinject/output/purpose_names.h"
#include "libinject/output/run_json.h"
#include "libinject/report/device_specs.h"

namespace inject {

namespace {

enum Metric : std::size_t {
#define INJECT_PROMETHEUS(constant, name, type, help) constant,
#include "libinject/output/prometheus.def"
  kMetrics
};

constexpr std::array<MetricFamily, kMetrics> kTable{{
#define INJECT_PROMETHEUS(constant, name, type, help) {name, MetricType::type, help},
#include "libinject/output/prometheus.def"
}};

double ratio(std::uint64_t part, std::uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

double seconds(double nanoseconds) {
  return nanoseconds * 1e-9;
}

std::string device_text(std::uint32_t device) {
  return device == kOtherIndex ? "[other]" : std::to_string(device);
}

std::string place_text(std::uint32_t place) {
  switch (place) {
    case MemoryUse::kHost:
      return "host";
    case MemoryUse::kOtherDevice:
      return "[other]";
    case MemoryUse::kUnknownDevice:
      return "[unknown]";
    default:
      return std::to_string(place);
  }
}

/// A name that is too long keeps its beginning and end: template instances mostly differ at the end.
std::string kernel_label(std::string_view name) {
  constexpr std::string_view kCut = "...";
  constexpr std::size_t kEnd = PrometheusMetrics::kMaxNameLength / 3;
  if (name.size() <= PrometheusMetrics::kMaxNameLength) return std::string(name);
  const auto inside = [name](std::size_t at) {
    return (static_cast<unsigned char>(name[at]) & 0xc0) == 0x80;
  };
  std::size_t begin = PrometheusMetrics::kMaxNameLength - kEnd - kCut.size();
  while (begin > 0 && inside(begin)) --begin;
  std::size_t end = name.size() - kEnd;
  while (end < name.size() && inside(end)) ++end;
  return std::string(name.substr(0, begin)).append(kCut).append(name.substr(end));
}

/// Devices that the program is known to have used.
std::set<std::uint32_t> used_devices(const Statistics& statistics, const RunInfo& run) {
  std::set<std::uint32_t> devices;
  for (const ThreadRow& row : statistics.threads()) devices.insert(row.device);
  for (const CopyRow& row : statistics.copies().rows()) {
    if (!row.other) devices.insert(row.device);
  }
  for (const MemoryRow& row : run.memory) {
    if (row.device < MemoryUse::kDevices) devices.insert(row.device);
  }
  return devices;
}

std::string gpu_names(const RunInfo& run) {
  std::string names;
  std::set<std::string_view> seen;
  for (const DeviceInfo& device : run.devices) {
    if (!seen.insert(device.name).second) continue;
    if (!names.empty()) names += ", ";
    names += device.name;
  }
  return names;
}

void gpu_samples(PrometheusText& text, const std::set<std::uint32_t>& used, const RunInfo& run) {
  text.family(kTable[kGpuInfo]);
  for (const DeviceInfo& device : run.devices) {
    if (used.count(device.id) != 0) {
      text.count(1, {{"device", std::to_string(device.id)}, {"gpu", device.name}, {"uuid", device.uuid}});
    }
  }
}

void kernel_samples(PrometheusText& text, const Statistics& statistics) {
  std::map<std::uint32_t, Totals> devices;
  for (const ThreadRow& row : statistics.threads()) {
    Totals& device = devices[row.device];
    device.count += row.stats->count();
    device.sum += row.stats->sum();
  }
  text.family(kTable[kKernels]);
  for (const auto& [device, work] : devices) text.count(work.count, {{"device", device_text(device)}});
  text.family(kTable[kKernelTime]);
  for (const auto& [device, work] : devices) text.seconds(work.sum, {{"device", device_text(device)}});

  const std::vector<TimeRow> kernels = statistics.kernels();
  std::uint64_t total = 0;
  for (const TimeRow& row : kernels) total += row.stats->sum();
  // Names that are equal after truncation share a label: duplicate labels are an error.
  std::vector<std::pair<std::string, std::uint64_t>> top;
  for (const TimeRow& row : kernels) {
    std::string name;
    append_label_value(name, kernel_label(row.name));
    const auto same = std::find_if(top.begin(), top.end(), [&](const auto& known) {
      std::string other;
      append_label_value(other, known.first);
      return other == name;
    });
    if (same != top.end()) {
      same->second += row.stats->sum();
    } else if (top.size() < PrometheusMetrics::kMaxKernels) {
      top.emplace_back(kernel_label(row.name), row.stats->sum());
    } else {
      break;
    }
  }
  text.family(kTable[kTopKernels]);
  for (const auto& [name, time] : top) {
    if (total != 0) text.number(ratio(time, total), {{"kernel", name}});
  }
}

void purpose_samples(PrometheusText& text, const RunInfo& run) {
  const std::optional<MemoryPurposes>& memory = run.memory_purposes;
  if (!memory) return;
  text.family(kTable[kPurposes]);
  for (const DevicePurposes& device : memory->devices) {
    for (std::size_t purpose = 0; purpose < kMemoryPurposes; ++purpose) {
      if (is_known(*memory, device, purpose))
        text.count(device.bytes[purpose],
                   {{"device", device_text(device.device)}, {"purpose", purpose_name(purpose)}});
    }
  }
  text.family(kTable[kTorchPeak]);
  for (const DevicePurposes& device : memory->devices)
    text.count(device.peak_allocated, {{"device", device_text(device.device)}});
  text.family(kTable[kActivations]);
  for (const DevicePurposes& device : memory->devices) {
    if (const auto rest = activations_at_peak(*memory, device))
      text.count(*rest, {{"device", device_text(device.device)}});
  }
}

void memory_samples(PrometheusText& text, const std::set<std::uint32_t>& used, const RunInfo& run) {
  std::map<std::uint32_t, std::uint64_t> in_use;
  for (auto window = run.windows.rbegin(); window != run.windows.rend(); ++window) {
    for (const WindowMemory& memory : window->memory) {
      if (memory.at_end) in_use.try_emplace(memory.device, *memory.at_end);
    }
    if (!in_use.empty()) break;
  }
  text.family(kTable[kMemoryUsed]);
  for (const auto& [device, bytes] : in_use) text.count(bytes, {{"device", device_text(device)}});
  std::map<std::uint32_t, std::uint64_t> most_in_use;
  const auto read = [&most_in_use](std::uint32_t device, std::uint64_t bytes) {
    std::uint64_t& most = most_in_use[device];
    most = std::max(most, bytes);
  };
  for (const WindowInfo& window : run.windows) {
    for (const WindowMemory& memory : window.memory) {
      if (memory.at_start) read(memory.device, *memory.at_start);
      if (memory.at_end) read(memory.device, *memory.at_end);
    }
  }
  for (const MemoryLine& line : run.energy.memory) {
    for (const MemoryInterval& interval : line.intervals) read(line.device, interval.highest);
  }
  text.family(kTable[kMemoryUsedPeak]);
  for (const auto& [device, bytes] : most_in_use) text.count(bytes, {{"device", device_text(device)}});
  text.family(kTable[kMemoryTotal]);
  for (const DeviceInfo& device : run.devices) {
    if (used.count(device.id) != 0 || in_use.count(device.id) != 0)
      text.count(device.memory_bytes, {{"device", std::to_string(device.id)}});
  }
  const auto each = [&](Metric metric, std::uint64_t MemoryCounts::*count) {
    text.family(kTable[metric]);
    for (const MemoryRow& row : run.memory) {
      if (!row.api) text.count(row.counts.*count, {{"device", place_text(row.device)}});
    }
  };
  each(kAllocated, &MemoryCounts::live);
  each(kAllocatedPeak, &MemoryCounts::peak);
  const auto of_torch = [&](Metric metric, MemoryLine::Of of) {
    text.family(kTable[metric]);
    for (const MemoryLine& line : run.memory_lines) {
      if (line.of == of && !line.intervals.empty())
        text.count(line.intervals.back().last, {{"device", device_text(line.device)}});
    }
  };
  of_torch(kTorchReserved, MemoryLine::Of::kTorchReserved);
  of_torch(kTorchAllocated, MemoryLine::Of::kTorchAllocated);
  purpose_samples(text, run);
  each(kAllocations, &MemoryCounts::allocations);
  each(kFailedAllocations, &MemoryCounts::failed);
}

void energy_samples(PrometheusText& text, const EnergyReport& energy) {
  // For each device, the latest window in which it is known.
  std::map<std::uint32_t, const EnergyRow*> used;
  std::map<std::uint32_t, const EnergyRow*> throttled;
  for (const EnergyRow& row : energy.rows) {
    if (row.iteration != nullptr) continue;
    if (row.energy) used[row.device] = &row;
    if (row.clocks.throttled) throttled[row.device] = &row;
  }
  text.family(kTable[kEnergy]);
  for (const auto& [device, row] : used) text.number(row->energy->joules, {{"device", device_text(device)}});
  text.family(kTable[kPower]);
  for (const auto& [device, row] : used) text.number(*row->watts(), {{"device", device_text(device)}});
  text.family(kTable[kClocksHeld]);
  for (const auto& [device, row] : throttled) {
    const ClockUse& clocks = row->clocks;
    const std::string name = device_text(device);
    text.number(*clocks.throttled, {{"device", name}, {"by", "any"}})
        .number(*clocks.throttled_by_power, {{"device", name}, {"by", "power"}})
        .number(*clocks.throttled_by_heat, {{"device", name}, {"by", "heat"}})
        .number(*clocks.throttled_by_hardware, {{"device", name}, {"by", "hardware"}});
  }
}

void overhead_samples(PrometheusText& text, const Report& report) {
  const Overhead& overhead = report.run->overhead;
  text.family(kTable[kOverhead])
      .seconds(overhead.open, {{"part", "open"}})
      .seconds(overhead.close, {{"part", "close"}})
      .seconds(overhead.write, {{"part", "write"}})
      .seconds(overhead.drain_cpu, {{"part", "drain_cpu"}})
      .seconds(overhead.buffer_callbacks, {{"part", "buffer_callbacks"}})
      .seconds(overhead.gate, {{"part", "gate"}})
      .seconds(overhead.device_readings, {{"part", "device_readings"}});
  text.family(kTable[kOverheadRatio]);
  if (const auto& share = report.steps.overhead; share && share->seen()) text.number(share->share);
}

}  // namespace

std::span<const MetricFamily> prometheus_families() {
  return kTable;
}

PrometheusMetrics::WindowSums PrometheusMetrics::window_sums(const Statistics& statistics,
                                                             const RunInfo& run) {
  WindowSums sums;
  sums.windows = statistics.device_times().settled_through();
  sums.time = run.windows_time;
  sums.flops = statistics.host_total().flops.total();
  sums.lost = run.losses_outside.total();
  // Windows that are open, or whose records are still pending, are not counted yet.
  for (const WindowInfo& window : run.windows) {
    if (window.number <= sums.windows) {
      sums.last_end = std::max(sums.last_end, window.end);
    } else if (window.end != 0) {
      sums.time -= window.end - window.start;
    }
  }
  for (const WindowHostRow& row : statistics.window_hosts()) {
    if (row.window != kOtherIndex && row.window > sums.windows) sums.flops -= row.work.flops.total();
  }
  return sums;
}

PrometheusMetrics::CopySums PrometheusMetrics::copy_sums(const Statistics& statistics) {
  CopySums sums;
  for (const CopyRow& row : statistics.copies().rows()) {
    const CopyKey key =
        row.other ? CopyKey{kOtherIndex, "[other]"} : CopyKey{row.device, direction_name(row.operation)};
    Copies& copies = sums[key];
    copies.count += row.time.count;
    copies.bytes += row.bytes;
    copies.time += row.time.sum;
  }
  return sums;
}

void PrometheusMetrics::advance(const Statistics& statistics, const RunInfo& run) {
  const WindowSums windows = window_sums(statistics, run);
  if (windows.windows != windows_.windows) {
    // Once windows have no rows any more, calls of an open window count early, so a sum may go down.
    latest_windows_ = {windows.windows - windows_.windows,
                       windows.time - std::min(windows.time, windows_.time),
                       windows.flops - std::min(windows.flops, windows_.flops), 0,
                       windows.lost - std::min(windows.lost, windows_.lost)};
    windows_ = windows;
    latest_devices_.clear();
    const std::uint64_t removed = statistics.device_times().removed();
    for (const DeviceTimeRow& row : statistics.device_times().totals()) {
      DeviceTimes& sum = devices_[row.device];
      DeviceTimes latest = row.times;
      // Where a window was taken out of the totals again, the difference is not the latest windows' alone.
      if (removed == removed_rows_) {
        latest.remove(sum);
        if (latest.span != 0) latest_devices_[row.device] = latest;
      }
      sum = row.times;
    }
    removed_rows_ = removed;
  }
  // Iterations and copies advance independently of windows.
  const std::uint64_t steps = statistics.iterations().step_times().count();
  if (steps != steps_) {
    latest_steps_ = statistics.iterations().recent_step_times(steps - steps_);
    steps_ = steps;
    windows_before_steps_ = windows_with_steps_;
    windows_with_steps_ = windows_.windows;
  }
  advance_copies(statistics);
}

void PrometheusMetrics::advance_copies(const Statistics& statistics) {
  CopySums sums = copy_sums(statistics);
  CopySums latest;
  for (const auto& [key, now] : sums) {
    const Copies& before = copies_[key];
    if (now.count != before.count)
      latest[key] = {now.count - before.count, now.bytes - before.bytes, now.time - before.time};
  }
  if (latest.empty()) return;
  latest_copies_ = std::move(latest);
  copies_ = std::move(sums);
}

void PrometheusMetrics::run_samples(PrometheusText& text, const RunInfo& run, PrometheusState state,
                                    std::uint64_t time) const {
  text.family(kTable[kState])
      .count(state == PrometheusState::kOpen ? 1 : 0, {{"state", "open"}})
      .count(state == PrometheusState::kWaiting ? 1 : 0, {{"state", "waiting"}})
      .count(state == PrometheusState::kClosed ? 1 : 0, {{"state", "closed"}});
  text.family(kTable[kStart]).seconds(run.base_utc);
  text.family(kTable[kLastUpdate]).seconds(time);
  text.family(kTable[kLastWindowEnd]);
  if (windows_.last_end != 0) text.seconds(run.base_utc + (windows_.last_end - run.base));
  text.family(kTable[kWindows]).count(windows_.windows);
  text.family(kTable[kWindowTime]).seconds(windows_.time);
  text.family(kTable[kLatestWindows]).count(latest_windows_.windows);
}

void PrometheusMetrics::step_samples(PrometheusText& text, const Report& report) const {
  const SampleStats& all = report.statistics->iterations().step_times();
  if (report.steps.time) text.family(kTable[kUnprofiledStepTime]).number(seconds(report.steps.time->median));
  text.family(kTable[kSteps]).count(all.count());
  text.family(kTable[kStepTime]).seconds(all.sum());
  text.family(kTable[kLatestSteps]).count(latest_steps_.count());
  if (latest_steps_.count() == 0) return;
  // Host time while the host ran ahead of the GPU is not a step time.
  const bool by_host = std::ranges::all_of(report.windows, [this](const WindowReport& window) {
    return !window.host || window.window == kOtherIndex || window.window <= windows_before_steps_ ||
           window.host->pace == Pace::kHost;
  });
  if (by_host) {
    const double median = seconds(latest_steps_.median());
    text.family(kTable[kStepTimeMean]).number(seconds(latest_steps_.mean()));
    text.family(kTable[kStepTimeMedian]).number(median);
    text.family(kTable[kStepTimeP95]).seconds(latest_steps_.percentile(0.95));
    if (report.run->batch != 0 && median > 0)
      text.family(kTable[kSamplesRate]).number(static_cast<double>(report.run->batch) / median);
  }
  const WindowReport::Host* latest = nullptr;
  for (const WindowReport& window : report.windows) {
    if (!window.host || window.window == kOtherIndex) continue;
    if (window.host->pace != Pace::kHost || window.host->units.per_second()) latest = &*window.host;
  }
  if (latest != nullptr && latest->pace == Pace::kHost)
    text.family(kTable[kUnitsRate]).number(latest->units.per_second().value_or(0));
}

void PrometheusMetrics::device_samples(PrometheusText& text, const Report& report) const {
  text.family(kTable[kUtilization]);
  for (const auto& [device, times] : latest_devices_)
    text.number(ratio(times.kernel_busy, times.span), {{"device", device_text(device)}});
  const auto each = [&](Metric metric, std::uint64_t DeviceTimes::*time) {
    text.family(kTable[metric]);
    for (const auto& [device, times] : devices_) text.seconds(times.*time, {{"device", device_text(device)}});
  };
  each(kGpuTime, &DeviceTimes::span);
  each(kGpuKernelBusy, &DeviceTimes::kernel_busy);
  each(kGpuCopyOnly, &DeviceTimes::copy_only);
  const auto each_cause = [&](const DeviceSums& devices, const auto& sample) {
    for (const auto& [device, times] : devices) {
      const std::string name = device_text(device);
      for (std::size_t i = 0; i < kIdleCauses; ++i)
        sample(times, times.idle_by_cause[i].time, name, idle_cause_name(static_cast<IdleCause>(i)));
    }
  };
  text.family(kTable[kGpuIdle]);
  each_cause(devices_,
             [&](const DeviceTimes&, std::uint64_t idle, std::string_view device, std::string_view cause) {
               text.seconds(idle, {{"device", device}, {"cause", cause}});
             });
  text.family(kTable[kIdleRatio]);
  each_cause(latest_devices_, [&](const DeviceTimes& times, std::uint64_t idle, std::string_view device,
                                  std::string_view cause) {
    text.number(ratio(idle, times.span), {{"device", device}, {"cause", cause}});
  });
  // As in the rows of these windows in window_sum.csv.
  const std::optional<OverheadEstimate> overhead = profiler_overhead(report.steps.unprofiled, latest_steps_);
  std::map<std::uint32_t, Diagnosis> diagnoses;
  for (const auto& [device, times] : latest_devices_) {
    const Diagnosis diagnosis = diagnose(judged_times(times, overhead), report.limits_of(device),
                                         specs_of(*report.run, device).multiprocessors);
    if (diagnosis.verdict != Bottleneck::kNone) diagnoses[device] = diagnosis;
  }
  text.family(kTable[kVerdict]);
  for (const auto& [device, diagnosis] : diagnoses)
    text.count(1, {{"device", device_text(device)}, {"verdict", bottleneck_name(diagnosis.verdict)}});
  text.family(kTable[kPotentialGain]);
  for (const auto& [device, diagnosis] : diagnoses) {
    if (diagnosis.gain) text.number(diagnosis.share(*diagnosis.gain), {{"device", device_text(device)}});
  }
}

void PrometheusMetrics::copy_samples(PrometheusText& text, const Statistics& statistics) const {
  const auto each = [&](Metric metric, const CopySums& sums, const auto& sample) {
    text.family(kTable[metric]);
    for (const auto& [key, copies] : sums) {
      const std::string device = device_text(key.first);
      sample(copies, PrometheusText::Labels{{"device", device}, {"direction", key.second}});
    }
  };
  using Labels = PrometheusText::Labels;
  each(kCopies, copies_, [&](const Copies& copies, Labels labels) { text.count(copies.count, labels); });
  each(kCopyBytes, copies_, [&](const Copies& copies, Labels labels) { text.count(copies.bytes, labels); });
  each(kCopyTime, copies_, [&](const Copies& copies, Labels labels) { text.seconds(copies.time, labels); });
  each(kCopyRate, latest_copies_, [&](const Copies& copies, Labels labels) {
    text.number(static_cast<double>(copies.bytes) / seconds(static_cast<double>(copies.time)), labels);
  });
  const DeviceWork total = statistics.device_total();
  text.family(kTable[kMemsets]).count(total.memsets);
  text.family(kTable[kMemsetBytes]).count(total.memset_bytes);
}

// The reader keeps a limited number of windows: beyond that, none of the latest ones is available.
void PrometheusMetrics::host_samples(PrometheusText& text, const RunInfo& run) const {
  std::vector<HostWindow> latest;
  for (const HostWindow& window : run.host_windows) {
    if (window.window + latest_windows_.windows > windows_.windows && window.window <= windows_.windows)
      latest.push_back(window);
  }
  const HostSum host = host_sum(latest);
  text.family(kTable[kProcessors]);
  if (host.time != 0 && host.times_known) text.number(host.used());
  text.family(kTable[kProcessorsWanted]);
  if (host.time != 0 && host.times_known && host.waits_known) text.number(host.wanted());
  text.family(kTable[kProcessorsAllowed]);
  if (const double allowed = host.allowed(); allowed > 0) text.number(allowed);
}

std::string PrometheusMetrics::text(const Report& report, PrometheusState state, std::uint64_t time,
                                    std::uint64_t failed) {
  const Statistics& statistics = *report.statistics;
  const RunInfo& run = *report.run;
  advance(statistics, run);
  const std::set<std::uint32_t> used = used_devices(statistics, run);
  std::string result;
  // The same as %p and %r in the file's name: the files of several processes are read together.
  PrometheusText text(result,
                      {{"pid", std::to_string(run.pid)}, {"rank", run.rank.empty() ? "0" : run.rank}});
  text.family(kTable[kInfo])
      .count(1, {{"version", run.version}, {"host", run.host}, {"gpu", gpu_names(run)}});
  gpu_samples(text, used, run);
  run_samples(text, run, state, time);
  step_samples(text, report);
  device_samples(text, report);
  energy_samples(text, report.energy);
  kernel_samples(text, statistics);
  text.family(kTable[kFlops]).sum(windows_.flops);
  // If no call's shape is known, the number of operations is unknown.
  text.family(kTable[kFlopRate]);
  const std::uint64_t settled_before = windows_.windows - latest_windows_.windows;
  const bool rates_known = std::ranges::all_of(report.windows, [&](const WindowReport& window) {
    return !window.host || window.window == kOtherIndex || window.window <= settled_before ||
           window.window > windows_.windows ||
           (window.host->flops && (window.host->flops->flops == 0 || window.host->flops->teraflops));
  });
  if (windows_.flops != 0 && latest_windows_.time != 0 && latest_windows_.lost == 0 && rates_known)
    text.number(static_cast<double>(latest_windows_.flops) /
                seconds(static_cast<double>(latest_windows_.time)));
  copy_samples(text, statistics);
  memory_samples(text, used, run);
  host_samples(text, run);
  text.family(kTable[kLost]);
  for (const LostCount& lost : lost_counts(run)) text.count(lost.count, {{"kind", lost.kind}});
  overhead_samples(text, report);
  text.family(kTable[kWriteErrors]).count(failed);
  return result;
}

}  // namespace inject
