// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/diagnosis.h"

#include <algorithm>
#include <optional>

#include "libinject/analysis/device_times.h"

namespace inject {

namespace {

// Share of the time from which on a device is considered well used.
constexpr double kWellUsed = 0.8;
// If this share of a window passed before its first work, too little is left for a verdict.
constexpr double kMostlyStartUp = 0.5;
// A second cause of lost time is worth naming from this share of the time, and this share of the first cause,
// on.
constexpr double kWorthNaming = 0.1;
constexpr double kShareOfFirst = 0.5;
// Shorter kernels spend their time on starting and ending.
constexpr double kShortKernel = 5'000;
// With a smaller share of multiprocessors in use, the rest wait for the slowest block.
constexpr double kWellFilled = 0.5;
// Using less than this share of a device's maximum does not limit a kernel by itself.
constexpr double kMuchUsed = 0.1;
// If at least this share of the compute-limited time is off tensor cores, that time is the bound on what
// moving it there can gain. Below, there is no bound: products on tensor cores also come with kernels off
// them, which sum up and reorder.
constexpr double kOffTensorCores = 0.9;

// What limits most of the time of a GPU-bound program's kernels.
Bottleneck main_limit(const KernelLimits& limits) {
  const std::array<BottleneckPart, 3> kinds{{{Bottleneck::kGpuCompute, limits.compute},
                                             {Bottleneck::kGpuMemory, limits.memory},
                                             {Bottleneck::kGpuLatency, limits.latency}}};
  const auto most =
      std::max_element(kinds.begin(), kinds.end(),
                       [](const BottleneckPart& a, const BottleneckPart& b) { return a.time < b.time; });
  return most->time == 0 || most->time < limits.unknown ? Bottleneck::kGpu : most->kind;
}

// The part of the kernels' time that a remedy for this limit could save at most; empty if there is no bound.
// Lower precision, or suitable sizes, also speed up kernels that already use tensor cores.
std::optional<std::uint64_t> winnable_time(const KernelLimits& limits, Bottleneck limit) {
  switch (limit) {
    case Bottleneck::kGpuCompute:
      if (static_cast<double>(limits.off_tensor_cores) <
          kOffTensorCores * static_cast<double>(limits.compute))
        return std::nullopt;
      return limits.compute;
    case Bottleneck::kGpuMemory:
      return limits.memory;
    case Bottleneck::kGpuLatency:
      return limits.latency;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string_view bottleneck_name(Bottleneck bottleneck) {
  constexpr std::array<std::string_view, kBottlenecks> kNames{"",
                                                              "GPU-bound",
                                                              "GPU-bound (compute)",
                                                              "GPU-bound (memory)",
                                                              "GPU-bound (latency)",
                                                              "launch-bound",
                                                              "synchronization-bound",
                                                              "input-bound",
                                                              "copy-bound",
                                                              "communication-bound",
                                                              "mixed",
                                                              "undetermined",
                                                              "too short"};
  return kNames[static_cast<std::size_t>(bottleneck)];
}

std::string_view bottleneck_advice(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::kGpuCompute:
      return "limited by arithmetic: use lower precision (bf16, fp16, TF32, fp8) on tensor cores, or do less "
             "work";
    case Bottleneck::kGpuMemory:
      return "limited by memory traffic: fuse elementwise kernels (torch.compile), use lower precision, use "
             "a fused optimizer";
    case Bottleneck::kGpuLatency:
      return "kernels too small for the GPU: use a larger batch, fused kernels, several streams";
    case Bottleneck::kLaunch:
      return "the GPU waits for launches: use CUDA graphs or torch.compile, a larger batch, fewer and larger "
             "kernels";
    case Bottleneck::kSynchronization:
      return "the host waits for the GPU, then the GPU for the host: remove .item(), .cpu() and printing of "
             "tensors";
    case Bottleneck::kInput:
      return "the GPU waits for data or other work of the host: use more loader workers, prefetch, decode on "
             "the GPU";
    case Bottleneck::kCopy:
      return "the GPU waits for copies: use pinned memory and non_blocking=True, use a separate copy stream, "
             "copy fewer bytes";
    case Bottleneck::kCommunication:
      return "the GPU waits for other ranks: overlap with backward (bucket size), send fewer bytes, use a "
             "larger batch";
    case Bottleneck::kNone:
    case Bottleneck::kGpu:
    case Bottleneck::kMixed:
    case Bottleneck::kUndetermined:
    case Bottleneck::kTooShort:
      break;
  }
  return {};
}

Bottleneck kernel_limit(Family family, double average, double fill) {
  if (average < kShortKernel || fill < kWellFilled) return Bottleneck::kGpuLatency;
  if (is_convolution(family)) return Bottleneck::kGpuCompute;
  switch (family) {
    case Family::kGemm:
    case Family::kAttention:
    case Family::kRnnCell:
      return Bottleneck::kGpuCompute;
    case Family::kPoolingForward:
    case Family::kPoolingBackward:
    case Family::kNormalization:
    case Family::kSoftmax:
    case Family::kLoss:
    case Family::kElementwise:
    case Family::kReduction:
    case Family::kEmbedding:
    case Family::kOptimizer:
    case Family::kLayoutChange:
    case Family::kCopy:
      return Bottleneck::kGpuMemory;
    default:
      return Bottleneck::kGpu;
  }
}

Bottleneck measured_limit(double average, double active, double arithmetic, double memory) {
  if (average < kShortKernel || active < kWellFilled) return Bottleneck::kGpuLatency;
  if (std::max(arithmetic, memory) < kMuchUsed) return Bottleneck::kGpu;
  return memory > arithmetic ? Bottleneck::kGpuMemory : Bottleneck::kGpuCompute;
}

void KernelLimits::add(Bottleneck limit, std::uint64_t time, bool is_off_tensor_cores) {
  switch (limit) {
    case Bottleneck::kGpuCompute:
      compute += time;
      if (is_off_tensor_cores) off_tensor_cores += time;
      break;
    case Bottleneck::kGpuMemory:
      memory += time;
      break;
    case Bottleneck::kGpuLatency:
      latency += time;
      break;
    default:
      unknown += time;
  }
}

void KernelLimits::merge(const KernelLimits& more) {
  compute += more.compute;
  memory += more.memory;
  latency += more.latency;
  unknown += more.unknown;
  off_tensor_cores += more.off_tensor_cores;
  measured += more.measured;
}

std::uint64_t time_of(const Diagnosis& diagnosis, Bottleneck kind) {
  for (const BottleneckPart& part : diagnosis.parts)
    if (part.kind == kind) return part.time;
  return 0;
}

Diagnosis diagnose(const DeviceTimes& times, const KernelLimits& limits, int multiprocessors) {
  Diagnosis result;
  result.device_time = times.span;
  result.compute_time = times.compute_busy;
  const auto idle = [&](std::initializer_list<IdleCause> causes) {
    std::uint64_t sum = 0;
    for (const IdleCause cause : causes) sum += times.idle(cause);
    return sum;
  };
  result.parts = {
      {Bottleneck::kLaunch,
       idle({IdleCause::kLaunchCall, IdleCause::kOtherCall, IdleCause::kHostCompute, IdleCause::kQueue}) -
           times.own_work},
      {Bottleneck::kSynchronization, idle({IdleCause::kSynchronization})},
      {Bottleneck::kInput, times.input_idle()},
      {Bottleneck::kCopy, times.copy_only + idle({IdleCause::kCopyCall})},
      {Bottleneck::kCommunication, times.exposed_collective() + idle({IdleCause::kCollective})},
      {Bottleneck::kNone,
       idle({IdleCause::kStartUp, IdleCause::kOtherStream, IdleCause::kGraph, IdleCause::kUnknown})},
  };
  std::stable_sort(result.parts.begin(), result.parts.end(),
                   [](const BottleneckPart& a, const BottleneckPart& b) {
                     const bool a_named = a.kind != Bottleneck::kNone;
                     const bool b_named = b.kind != Bottleneck::kNone;
                     return a_named != b_named ? a_named : a.time > b.time;
                   });
  std::erase_if(result.parts, [](const BottleneckPart& part) { return part.time == 0; });
  for (BottleneckPart& part : result.parts) {
    part.gain = part.time;
    if (part.kind == Bottleneck::kCommunication) part.gain += times.taken_by_collectives(multiprocessors);
  }
  if (times.span == 0 || times.kernel_busy + times.copy_only == 0) return result;

  const bool lost = !result.parts.empty() && result.parts.front().kind != Bottleneck::kNone;
  const std::uint64_t largest = lost ? result.parts.front().time : 0;
  const auto share = [&](std::uint64_t time, double of) {
    return static_cast<double>(time) >= of * static_cast<double>(times.span);
  };
  if (share(times.idle(IdleCause::kStartUp), kMostlyStartUp)) {
    result.verdict = Bottleneck::kTooShort;
    return result;
  }
  // The time before the first work is not held against the program: a window may open at any moment.
  const double started = static_cast<double>(times.span - times.idle(IdleCause::kStartUp));
  const bool well_used = static_cast<double>(result.compute_time) >= kWellUsed * started;
  const std::uint64_t unexplained = idle({IdleCause::kOtherStream, IdleCause::kUnknown});
  if (!well_used && share(unexplained, kWorthNaming) && unexplained > largest) {
    result.verdict = Bottleneck::kUndetermined;
    return result;
  }
  // A program that loses less than this is bound by its kernels, whatever their limit is.
  if (well_used || !share(largest, kWorthNaming)) {
    result.verdict = main_limit(limits);
    const std::optional<std::uint64_t> winnable = winnable_time(limits, result.verdict);
    if (!winnable) return result;
    // Scaled from the sum of the kernels' times to the device's time, since kernels may overlap. Never more
    // than all of it, even if the kernels' times are so wrong that their sum is wrong as well.
    result.gain = *winnable >= limits.total()
                      ? result.compute_time
                      : static_cast<std::uint64_t>(static_cast<double>(*winnable) /
                                                   static_cast<double>(limits.total()) *
                                                   static_cast<double>(result.compute_time));
    return result;
  }
  const BottleneckPart& first = result.parts.front();
  result.leading = 1;
  result.verdict = first.kind;
  result.gain = first.gain;
  if (result.parts.size() > 1 && result.parts[1].kind != Bottleneck::kNone) {
    const BottleneckPart& second = result.parts[1];
    if (result.share(second.time) >= kWorthNaming &&
        static_cast<double>(second.time) >= kShareOfFirst * static_cast<double>(first.time)) {
      result.leading = 2;
      result.verdict = Bottleneck::kMixed;
      result.gain = first.gain + second.gain;
    }
  }
  return result;
}

}  // namespace inject
