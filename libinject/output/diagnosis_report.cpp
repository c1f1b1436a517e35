// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/diagnosis_report.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "libinject/output/measured_kernels.h"
#include "libinject/output/shape_tables.h"
#include "libinject/output/summary.h"

namespace inject {

namespace {

constexpr std::size_t kMostNamed = 2;  // causes of one kind that are named

/// Of each kernel's time, the share in calls that the roofline has bound by memory.
std::unordered_map<std::string_view, double> memory_bound_shares(const Statistics& statistics,
                                                                 const DeviceSpecs& specs) {
  struct Times {
    std::uint64_t shaped = 0;
    std::uint64_t memory = 0;
  };
  std::unordered_map<std::string_view, Times> times;
  for (const CallShapeRow& call : statistics.call_shapes()) {
    const Bound bound = bound_of(call, specs);
    if (bound == Bound::kUnknown) continue;
    for (const auto& [name, share] : call.kernels) {
      times[name].shaped += share.time;
      if (bound == Bound::kMemory) times[name].memory += share.time;
    }
  }
  std::unordered_map<std::string_view, double> shares;
  for (const auto& [name, time] : times) {
    if (time.shaped != 0) shares[name] = static_cast<double>(time.memory) / static_cast<double>(time.shaped);
  }
  return shares;
}

/// By row of the kernels' details: what limits those of which enough was measured.
std::unordered_map<std::uint32_t, Bottleneck> measured_limits(const Statistics& statistics,
                                                              const RunInfo& run) {
  std::unordered_map<std::uint32_t, Bottleneck> limits;
  for (const MeasuredKernel& kernel : measured_kernels(statistics, run)) {
    if (kernel.row.detail.other || !kernel.sm_active || !kernel.arithmetic || !kernel.dram) continue;
    limits[kernel.row.detail.number] = measured_limit(kernel.row.detail.time.mean(), *kernel.sm_active / 100,
                                                      *kernel.arithmetic / 100, *kernel.dram / 100);
  }
  return limits;
}

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
                                                   : lower(idle_cause_name(share.cause));
  if (share.thread < run.threads.size() && share.thread != 0) {
    const ThreadInfo& thread = run.threads[share.thread];
    text += " on thread " + std::to_string(thread.tid);
    if (!thread.name.empty()) text += " (" + thread.name + ")";
  }
  text += ": " + std::to_string(share.gaps) + (share.gaps == 1 ? " gap, " : " gaps, ");
  return text + time_text(static_cast<double>(share.time));
}

/// The largest of the shares of that kind, in words.
std::string idle_text(const std::vector<IdleShare>& shares, Bottleneck kind, const RunInfo& run) {
  std::string text;
  std::size_t named = 0;
  for (const IdleShare& share : shares) {
    if (part_of(share) != kind) continue;
    if (named == kMostNamed) break;
    if (named++ != 0) text += "; ";
    text += cause_text(share, run);
  }
  return text;
}

/// A device's kernels by name, and what is known of each.
struct DeviceKernel {
  std::string_view name;
  Family family = Family::kOther;
  std::uint64_t time = 0;
};

/// By descending time.
std::vector<DeviceKernel> kernels_of(const Statistics& statistics, std::uint32_t device) {
  std::unordered_map<std::string_view, Family> families;
  for (const KernelFamilyRow& row : statistics.kernel_families()) families[row.name] = row.family;
  std::unordered_map<std::string_view, std::uint64_t> times;
  for (const DetailRow& row : statistics.kernel_details()) {
    if (row.other || row.device == device) times[row.name] += row.time.sum;
  }
  std::vector<DeviceKernel> kernels;
  for (const auto& [name, time] : times) {
    const auto family = families.find(name);
    kernels.push_back({name, family == families.end() ? Family::kOther : family->second, time});
  }
  std::sort(kernels.begin(), kernels.end(), [](const DeviceKernel& a, const DeviceKernel& b) {
    return a.time != b.time ? a.time > b.time : a.name < b.name;
  });
  return kernels;
}

std::string kernels_text(const std::vector<DeviceKernel>& kernels, bool (*of)(Family)) {
  std::string text;
  std::size_t named = 0;
  std::uint64_t total = 0;
  for (const DeviceKernel& kernel : kernels) total += kernel.time;
  for (const DeviceKernel& kernel : kernels) {
    if (!of(kernel.family)) continue;
    if (named == kMostNamed) break;
    if (named++ != 0) text += "; ";
    text += share_text(kernel.time, total) + " of the kernels' time " + shortened(kernel.name, 40);
  }
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
              " by the multiprocessors that they take from the kernels beside them";
    }
  }
  const std::string idle = idle_text(shares, kind, run);
  if (!text.empty() && !idle.empty()) text += "; ";
  return text + idle;
}

}  // namespace

std::optional<double> step_time_outside(const IterationStatistics& iterations) {
  constexpr std::uint64_t kFewest = 5;
  const SampleStats& outside = iterations.step_times_outside();
  return outside.count() < kFewest ? std::nullopt : std::optional(outside.median());
}

std::optional<double> profiler_overhead(const std::optional<double>& outside, std::uint64_t count,
                                        double step_time) {
  constexpr std::uint64_t kFewest = 3;
  if (!outside || count < kFewest || step_time <= 0) return std::nullopt;
  return 1 - *outside / step_time;
}

KernelLimits kernel_limits(const Statistics& statistics, const RunInfo& run, std::uint32_t device) {
  const DeviceSpecs specs = specs_of(run, device);
  const auto memory_bound = memory_bound_shares(statistics, specs);
  std::unordered_map<std::string_view, const KernelFamilyRow*> families;
  for (const KernelFamilyRow& row : statistics.kernel_families()) families[row.name] = &row;
  const std::unordered_map<std::uint32_t, Bottleneck> measured = measured_limits(statistics, run);
  KernelLimits limits;
  for (const DetailRow& detail : statistics.kernel_details()) {
    if (!detail.other && detail.device != device) continue;
    const auto found = families.find(detail.name);
    if (detail.other || found == families.end()) {
      limits.unknown += detail.time.sum;
      continue;
    }
    // They are no part of the time that computes.
    if (is_collective(found->second->family)) continue;
    const bool off_tensor_cores = found->second->cores == TensorCores::kNotUsed;
    if (const auto known = measured.find(detail.number); known != measured.end()) {
      limits.add(known->second, detail.time.sum, off_tensor_cores);
      limits.measured += detail.time.sum;
      continue;
    }
    double blocks = 1;
    for (const std::int32_t size : detail.grid) blocks *= static_cast<double>(size);
    const double fill =
        specs.multiprocessors <= 0 ? 1.0 : std::min(1.0, blocks / static_cast<double>(specs.multiprocessors));
    const Bottleneck limit = kernel_limit(found->second->family, detail.time.mean(), fill);
    std::uint64_t by_memory = 0;
    if (limit == Bottleneck::kGpuCompute) {
      if (const auto share = memory_bound.find(detail.name); share != memory_bound.end())
        by_memory = static_cast<std::uint64_t>(share->second * static_cast<double>(detail.time.sum));
    }
    limits.add(Bottleneck::kGpuMemory, by_memory, false);
    limits.add(limit, detail.time.sum - by_memory, off_tensor_cores);
  }
  return limits;
}

std::vector<DeviceDiagnosis> device_diagnoses(const Statistics& statistics, const RunInfo& run) {
  std::vector<DeviceDiagnosis> result;
  for (const DeviceTimeRow& total : statistics.device_times().totals()) {
    DeviceDiagnosis& entry = result.emplace_back();
    entry.device = total.device;
    entry.times = total.times;
    const int multiprocessors = specs_of(run, total.device).multiprocessors;
    entry.taken_by_collectives = total.times.taken_by_collectives(multiprocessors);
    const KernelLimits limits = kernel_limits(statistics, run, total.device);
    entry.diagnosis = diagnose(total.times, limits, multiprocessors);
    const std::vector<DeviceKernel> kernels = kernels_of(statistics, total.device);
    const Bottleneck verdict = entry.diagnosis.verdict;
    if (entry.diagnosis.leading == 0 && verdict != Bottleneck::kNone &&
        verdict != Bottleneck::kUndetermined) {
      std::string text = kernels_text(kernels, [](Family) { return true; });
      if (limits.measured != 0)
        text += "; judged by measurement: " + share_text(limits.measured, limits.total()) + " of it";
      entry.evidence.push_back(
          {verdict, entry.diagnosis.compute_time, entry.diagnosis.gain, std::move(text)});
    }
    for (const BottleneckPart& part : entry.diagnosis.parts) {
      entry.evidence.push_back(
          {part.kind, part.time, part.gain,
           evidence_text(kernels, run, part.kind, entry.times, entry.taken_by_collectives, total.shares)});
    }
  }
  return result;
}

}  // namespace inject
