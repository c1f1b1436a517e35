// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/device_diagnosis.h"

#include <algorithm>
#include <utility>

#include "libinject/base/csv.h"
#include "libinject/base/format.h"
#include "libinject/report/device_specs.h"
#include "libinject/report/display_text.h"

namespace inject {

/// A device's kernels of one name.
struct DeviceKernel {
  std::string_view name;
  Family family = Family::kOther;
  std::uint64_t time = 0;
};

namespace {

constexpr std::size_t kMaxNamed = 2;  // causes named per kind

Bottleneck part_of(const IdleShare& share) {
  if (share.own_work) return Bottleneck::kInput;
  switch (share.cause) {
    case IdleCause::kSynchronization:
      return Bottleneck::kSynchronization;
    case IdleCause::kHostWait:
      return Bottleneck::kInput;
    case IdleCause::kCopyCall:
      return Bottleneck::kCopy;
    case IdleCause::kCollective:
      return Bottleneck::kCommunication;
    case IdleCause::kLaunchCall:
    case IdleCause::kOtherCall:
    case IdleCause::kHostCompute:
    case IdleCause::kQueue:
      return Bottleneck::kLaunch;
    case IdleCause::kStartUp:
    case IdleCause::kOtherStream:
    case IdleCause::kGraph:
    case IdleCause::kUnknown:
      break;
  }
  return Bottleneck::kNone;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string cause_text(const IdleShare& share, const RunInfo& run) {
  std::string text = share.function != kNoFunction ? std::string(function_name(share.function))
                     : share.own_work              ? "own work"
                                                   : lower(idle_cause_name(share.cause));
  if (share.thread < run.threads.size() && share.thread != 0) {
    const ThreadInfo& thread = run.threads[share.thread];
    text += str_format(" on thread {}", thread.tid);
    if (!thread.name.empty()) text += str_format(" ({})", thread.name);
  }
  return text + str_format(": {}, {}", plural(share.gaps, "gap"), time_text(static_cast<double>(share.time)));
}

/// The largest shares of this kind, as text.
std::string idle_text(const std::vector<IdleShare>& shares, Bottleneck kind, const RunInfo& run) {
  std::string text;
  std::size_t named = 0;
  for (const IdleShare& share : shares) {
    if (part_of(share) != kind) continue;
    if (named == kMaxNamed) break;
    if (named++ != 0) text += "; ";
    text += cause_text(share, run);
  }
  return text;
}

std::string kernels_text(const std::vector<DeviceKernel>& kernels, bool (*of)(Family)) {
  std::string text;
  std::size_t named = 0;
  std::uint64_t total = 0;
  for (const DeviceKernel& kernel : kernels) total += kernel.time;
  for (const DeviceKernel& kernel : kernels) {
    if (!of(kernel.family)) continue;
    if (named == kMaxNamed) break;
    if (named++ != 0) text += "; ";
    text += share_text(kernel.time, total) + " of the kernels' time " + shortened(kernel.name, 40);
  }
  return text;
}

/// What the thread fetched from a data loader in most of that idle time, as text; empty if it did not fetch.
std::string fetch_text(const DeviceTimes& times) {
  const std::uint64_t fetching = total(times.fetch_idle);
  if (fetching == 0 || 2 * fetching < times.input_idle()) return {};
  const auto part = [&](FetchKind kind, const char* what) {
    const std::uint64_t time = times.fetch_idle[static_cast<std::size_t>(kind)];
    return time == 0 ? std::string() : share_text(time, times.input_idle()) + " of it " + what;
  };
  const std::string waiting = part(FetchKind::kWaiting, "waiting for the workers");
  const std::string processing = part(FetchKind::kProcessing, "processing without workers");
  return "in DataLoader.__next__, " + waiting + (waiting.empty() || processing.empty() ? "" : ", ") +
         processing;
}

std::string processors_text(double count) {
  std::string text;
  append_decimal(text, count, 2);
  return text;
}

/// Whether at least half of the own work before launches was on the process's first thread.
bool own_work_on_main(const std::vector<IdleShare>& shares, const DeviceTimes& times, const RunInfo& run) {
  std::uint64_t on_main = 0;
  for (const IdleShare& share : shares) {
    if (share.own_work && share.thread != 0 && share.thread < run.threads.size() &&
        run.threads[share.thread].tid == static_cast<std::uint64_t>(run.pid))
      on_main += share.time;
  }
  return 2 * on_main >= times.own_work;
}

/// What the input waits for, with the figures that show it.
std::string cause_evidence(InputCause cause, const InputTimes& times, const HostSum& host) {
  if (cause == InputCause::kUnknown) return {};
  const std::string workers = plural(host.workers, "loader worker");
  const std::string computing = share_text(host.worker_time, host.worker_life);
  const std::string queued = share_text(host.worker_wait, host.worker_life);
  const double allowed = host.allowed();
  std::string cores = "process and children used " + std::string(host.times_known ? "" : "at least ") +
                      processors_text(host.used());
  if (allowed > 0) cores += " of " + processors_text(allowed);
  cores += " processors";
  if (cause == InputCause::kMain) {
    std::string text = "by the launching thread's own work: ";
    if (times.own_work_on_main)
      text += "the main thread computed " + share_text(host.main_time, host.time) + " of the time; ";
    if (host.workers != 0) text += workers + " computed " + computing + " of their time; ";
    return text + cores;
  }
  if (cause == InputCause::kWorkers)
    return "by its workers: " + workers + " computed " + computing + " of their time and waited " + queued +
           " for a processor; " + cores;
  if (cause == InputCause::kProcessors) {
    std::string text = "by too few processors: ";
    text += host.worker_wait > host.worker_time
                ? workers + " waited " + queued + " of their time for one and computed " + computing
                : "the main thread waited " + share_text(host.main_wait, host.time) +
                      " of the time for one and computed " + share_text(host.main_time, host.time);
    text += "; " + cores + " and wanted " + processors_text(host.wanted());
    constexpr double kAllOfThem = 0.8;
    if (allowed > 0 && host.times_known && host.used() < kAllOfThem * allowed)
      text += "; other processes use the rest";
    return text;
  }
  std::string text = "by storage, or something else that its workers wait for: ";
  if (host.workers != 0) text += workers + " computed " + computing + " of their time; ";
  text += "at " + share_text(host.moments.asleep, host.moments.all) + " of " +
          plural(host.moments.all, "moment") + " of waiting for a batch, no worker was running";
  if (host.moments.blocked != 0)
    text += ", at " + share_text(host.moments.blocked, host.moments.all) + " one was blocked, as on disk I/O";
  if (host.reads_known && host.read_bytes != 0)
    text += "; they read " + size_text(static_cast<double>(host.read_bytes)) + " from storage";
  return text;
}

std::string evidence_text(const std::vector<DeviceKernel>& kernels, const RunInfo& run, Bottleneck kind,
                          const DeviceTimes& times, std::uint64_t taken_by_collectives,
                          const std::vector<IdleShare>& shares) {
  std::string text;
  if (kind == Bottleneck::kCopy && times.copy_only != 0)
    text = "copies alone " + time_text(static_cast<double>(times.copy_only));
  if (kind == Bottleneck::kCommunication && times.exposed_collective() != 0) {
    text = "collectives alone " + time_text(static_cast<double>(times.exposed_collective())) + ": " +
           kernels_text(kernels, &is_collective);
    if (taken_by_collectives != 0) {
      text += ", and " + time_text(static_cast<double>(taken_by_collectives)) +
              " for the multiprocessors that they take from concurrent kernels";
    }
  }
  if (kind == Bottleneck::kInput) text = fetch_text(times);
  const std::string idle = idle_text(shares, kind, run);
  if (!text.empty() && !idle.empty()) text += "; ";
  return text + idle;
}

}  // namespace

DeviceDiagnoser::DeviceDiagnoser(const Statistics& statistics, const RunInfo& run,
                                 std::span<const CallReport> calls, std::span<const MeasuredKernel> measured)
    : statistics_(statistics), run_(run), host_(host_sum(run.host_windows)) {
  for (const KernelFamilyRow& row : statistics.kernel_families()) families_[row.name] = &row;
  struct Times {
    std::uint64_t shaped = 0;
    std::uint64_t memory = 0;
  };
  std::unordered_map<std::string_view, Times> times;
  for (const CallReport& call : calls) {
    if (call.roof.bound == Bound::kUnknown) continue;
    for (const auto& [name, share] : call.call->kernels) {
      times[name].shaped += share.time;
      if (call.roof.bound == Bound::kMemory) times[name].memory += share.time;
    }
  }
  for (const auto& [name, time] : times) {
    if (time.shaped != 0)
      memory_bound_[name] = static_cast<double>(time.memory) / static_cast<double>(time.shaped);
  }
  for (const MeasuredKernel& kernel : measured) {
    if (kernel.row.detail.other || !kernel.sm_active || !kernel.arithmetic || !kernel.dram) continue;
    measured_[kernel.row.detail.number] = measured_limit(
        kernel.row.detail.time.mean(), *kernel.sm_active / 100, *kernel.arithmetic / 100, *kernel.dram / 100);
  }
}

KernelLimits DeviceDiagnoser::limits(std::uint32_t device) const {
  KernelLimits limits;
  for (const DetailRow& detail : statistics_.kernel_details()) {
    if (detail.other || detail.device == device) limits.merge(limits_of(detail, detail.time.sum));
  }
  return limits;
}

KernelLimits DeviceDiagnoser::limits_of(const DetailRow& detail, std::uint64_t time) const {
  KernelLimits limits;
  const auto found = families_.find(detail.name);
  if (detail.other || found == families_.end()) {
    limits.unknown = time;
    return limits;
  }
  // Collectives are not part of the compute time.
  if (is_collective(found->second->family)) return limits;
  const bool off_tensor_cores = found->second->cores == TensorCores::kNotUsed;
  if (const auto known = measured_.find(detail.number); known != measured_.end()) {
    limits.add(known->second, time, off_tensor_cores);
    limits.measured = time;
    return limits;
  }
  const int multiprocessors = specs_of(run_, detail.device).multiprocessors;
  double blocks = 1;
  for (const std::int32_t size : detail.grid) blocks *= static_cast<double>(size);
  const double fill =
      multiprocessors <= 0 ? 1.0 : std::min(1.0, blocks / static_cast<double>(multiprocessors));
  const Bottleneck limit = kernel_limit(found->second->family, detail.time.mean(), fill);
  std::uint64_t by_memory = 0;
  if (limit == Bottleneck::kGpuCompute) {
    if (const auto share = memory_bound_.find(detail.name); share != memory_bound_.end())
      by_memory = static_cast<std::uint64_t>(share->second * static_cast<double>(time));
  }
  limits.add(Bottleneck::kGpuMemory, by_memory, false);
  limits.add(limit, time - by_memory, off_tensor_cores);
  return limits;
}

/// By descending time.
std::vector<DeviceKernel> DeviceDiagnoser::kernels_of(std::uint32_t device) const {
  std::unordered_map<std::string_view, std::uint64_t> times;
  for (const DetailRow& row : statistics_.kernel_details()) {
    if (row.other || row.device == device) times[row.name] += row.time.sum;
  }
  std::vector<DeviceKernel> kernels;
  for (const auto& [name, time] : times) {
    const auto family = families_.find(name);
    kernels.push_back({name, family == families_.end() ? Family::kOther : family->second->family, time});
  }
  std::sort(kernels.begin(), kernels.end(), [](const DeviceKernel& a, const DeviceKernel& b) {
    return a.time != b.time ? a.time > b.time : a.name < b.name;
  });
  return kernels;
}

void DeviceDiagnoser::add_cause(Evidence& evidence, const DeviceTimeRow& device) const {
  const DeviceTimes& times = device.times;
  const InputTimes input{times.span,
                         times.input_idle(),
                         times.own_work,
                         own_work_on_main(device.shares, times, run_),
                         times.fetch_idle[static_cast<std::size_t>(FetchKind::kWaiting)],
                         statistics_.fetches().any()};
  evidence.cause = input_cause(input, host_);
  const std::string text = cause_evidence(evidence.cause, input, host_);
  if (!evidence.text.empty() && !text.empty()) evidence.text += "; ";
  evidence.text += text;
}

DeviceDiagnosis DeviceDiagnoser::diagnose(const DeviceTimeRow& device, const KernelLimits& limits,
                                          const std::optional<OverheadEstimate>& overhead) const {
  DeviceDiagnosis entry;
  entry.device = device.device;
  entry.times = device.times;
  const int multiprocessors = specs_of(run_, device.device).multiprocessors;
  entry.taken_by_collectives = device.times.taken_by_collectives(multiprocessors);
  if (overhead) entry.without_profiler = without_profiler(device.times, overhead->added);
  const Diagnosis measured = inject::diagnose(device.times, limits, multiprocessors);
  entry.diagnosis = judge(device.times, overhead, 1, limits, multiprocessors);
  const std::vector<DeviceKernel> kernels = kernels_of(device.device);
  const Bottleneck verdict = entry.diagnosis.verdict;
  if (entry.diagnosis.leading == 0 && verdict != Bottleneck::kNone && verdict != Bottleneck::kUndetermined &&
      verdict != Bottleneck::kTooShort) {
    std::string text = kernels_text(kernels, [](Family) { return true; });
    if (limits.measured != 0)
      text += "; judged by measurement: " + share_text(limits.measured, limits.total()) + " of it";
    entry.evidence.push_back(
        {verdict, entry.diagnosis.compute_time, entry.diagnosis.gain, InputCause::kUnknown, std::move(text)});
  }
  const auto add = [&](Bottleneck kind, std::uint64_t gain) {
    entry.evidence.push_back(
        {kind, time_of(measured, kind), gain, InputCause::kUnknown,
         evidence_text(kernels, run_, kind, entry.times, entry.taken_by_collectives, device.shares)});
  };
  // The verdict's evidence, then the rest by its time in windows, all of which may be due to the profiler.
  const std::vector<BottleneckPart>& parts = entry.diagnosis.parts;
  const auto leading = parts.begin() + static_cast<std::ptrdiff_t>(entry.diagnosis.leading);
  const auto kind_of = [](Bottleneck kind) {
    return [kind](const BottleneckPart& part) { return part.kind == kind; };
  };
  for (auto part = parts.begin(); part != leading; ++part) {
    add(part->kind, part->gain);
    if (part->kind == Bottleneck::kInput) add_cause(entry.evidence.back(), device);
  }
  for (const BottleneckPart& part : measured.parts) {
    if (std::any_of(parts.begin(), leading, kind_of(part.kind))) continue;
    const auto left = std::find_if(leading, parts.end(), kind_of(part.kind));
    add(part.kind, left == parts.end() ? 0 : left->gain);
  }
  return entry;
}

}  // namespace inject
