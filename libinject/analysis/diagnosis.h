// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a program is bound by, from how its device spent its time: docs/diagnosis.md has the rules.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "libinject/analysis/kernel_class.h"

namespace inject {

struct DeviceTimes;

enum class Bottleneck : std::uint8_t {
  kNone,  ///< nothing ran
  kGpu,   ///< by kernels of which it is not known what limits them
  kGpuCompute,
  kGpuMemory,
  kGpuLatency,
  kLaunch,
  kSynchronization,
  kInput,
  kCopy,
  kCommunication,
  kMixed,
  kUndetermined,  ///< most of what is lost is idle time that no remedy is known for
  kTooShort,      ///< half of the time or more passed before the first work
};
inline constexpr std::size_t kBottlenecks = 13;

/// `GPU-bound (compute)`, `launch-bound`, …; empty for kNone.
std::string_view bottleneck_name(Bottleneck bottleneck);
/// What to do about it, in one line; empty where there is nothing to say.
std::string_view bottleneck_advice(Bottleneck bottleneck);

/// What a kernel of a family, no collective's, that ran for `average` nanoseconds a launch, with `fill` of
/// the device's multiprocessors having a block (at most 1), is limited by: kGpuCompute, kGpuMemory,
/// kGpuLatency, or kGpu where neither tells.
Bottleneck kernel_limit(Family family, double average, double fill);

/// The same by what was measured while it ran, each a share of what the device can do, 0 … 1: multiprocessors
/// that had a warp, the busiest of the pipes for arithmetic, the memory's bandwidth.
Bottleneck measured_limit(double average, double active, double arithmetic, double memory);

/// Kernel time by what limits it.
struct KernelLimits {
  std::uint64_t compute = 0;
  std::uint64_t memory = 0;
  std::uint64_t latency = 0;
  std::uint64_t unknown = 0;
  std::uint64_t off_tensor_cores = 0;  ///< of `compute`: known not to run on tensor cores
  std::uint64_t measured = 0;          ///< of total(): measured_limit()
  void add(Bottleneck limit, std::uint64_t time, bool off_tensor_cores);
  void merge(const KernelLimits& more);
  std::uint64_t total() const { return compute + memory + latency + unknown; }
};

/// A part of the time that one remedy is for. Nanoseconds.
struct BottleneckPart {
  Bottleneck kind = Bottleneck::kNone;
  std::uint64_t time = 0;
  std::uint64_t gain = 0;  ///< what the remedy could win at most
};

struct Diagnosis {
  Bottleneck verdict = Bottleneck::kNone;
  std::uint64_t device_time = 0;
  std::uint64_t compute_time = 0;  ///< at least one kernel ran that is no collective's
  std::uint64_t gain = 0;          ///< what the remedies of the verdict could win at most
  /// What is not compute time, largest first, without those of no time. For `mixed`, the leading ones of
  /// them that make it so come first.
  std::vector<BottleneckPart> parts;
  std::size_t leading = 0;  ///< of `parts`: those that the verdict is about; 0 if it is GPU-bound

  double share(std::uint64_t time) const {
    return device_time == 0 ? 0.0 : static_cast<double>(time) / static_cast<double>(device_time);
  }
};

/// `multiprocessors` of the device; 0: not known.
Diagnosis diagnose(const DeviceTimes& times, const KernelLimits& limits, int multiprocessors = 0);

}  // namespace inject
