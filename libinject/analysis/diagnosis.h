// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a program is bound by, from how its device spent its time: docs/diagnosis.md has the rules.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "libinject/analysis/kernel_class.h"

namespace inject {

struct DeviceTimes;

enum class Bottleneck : std::uint8_t {
  kNone,  ///< nothing ran
  kGpu,   ///< by kernels whose limit is not known
  kGpuCompute,
  kGpuMemory,
  kGpuLatency,
  kLaunch,
  kSynchronization,
  kInput,
  kCopy,
  kCommunication,
  kMixed,
  kUndetermined,  ///< most of the lost time is idle time without a known remedy
  kTooShort,      ///< at least half of the time passed before the first work
};
inline constexpr std::size_t kBottlenecks = 13;

/// `GPU-bound (compute)`, `launch-bound`, …; empty for kNone.
std::string_view bottleneck_name(Bottleneck bottleneck);
/// What to do about it, in one line; empty if there is nothing to say.
std::string_view bottleneck_advice(Bottleneck bottleneck);

/// What limits a kernel (not a collective's) of this family that ran for `average` nanoseconds per launch,
/// with a block on `fill` (at most 1) of the device's multiprocessors: kGpuCompute, kGpuMemory, kGpuLatency,
/// or kGpu if that cannot be told.
Bottleneck kernel_limit(Family family, double average, double fill);

/// The same from measurements while the kernel ran, each as a share of what the device can do, 0 … 1:
/// multiprocessors that had a warp, the busiest arithmetic pipe, the memory's bandwidth.
Bottleneck measured_limit(double average, double active, double arithmetic, double memory);

/// Kernel time by what limits it.
struct KernelLimits {
  std::uint64_t compute = 0;
  std::uint64_t memory = 0;
  std::uint64_t latency = 0;
  std::uint64_t unknown = 0;
  std::uint64_t off_tensor_cores = 0;  ///< of `compute`: known not to run on tensor cores
  std::uint64_t measured = 0;          ///< of total(), the time judged by measured_limit()
  void add(Bottleneck limit, std::uint64_t time, bool off_tensor_cores);
  void merge(const KernelLimits& more);
  std::uint64_t total() const { return compute + memory + latency + unknown; }
};

/// A part of the time that one remedy addresses. Nanoseconds.
struct BottleneckPart {
  Bottleneck kind = Bottleneck::kNone;
  std::uint64_t time = 0;
  std::uint64_t gain = 0;  ///< the most that the remedy could save
};

struct Diagnosis {
  Bottleneck verdict = Bottleneck::kNone;
  std::uint64_t device_time = 0;
  std::uint64_t compute_time = 0;  ///< at least one kernel ran that is not a collective's
  /// The most that the verdict's remedies could save. None: nothing bounds it, which is not the same as 0.
  std::optional<std::uint64_t> gain;
  /// The time that is not compute time, by kind, largest first; kinds without time are left out. For a mixed
  /// verdict, the kinds that make it so come first.
  std::vector<BottleneckPart> parts;
  std::size_t leading = 0;  ///< how many of the first `parts` the verdict is about; 0 if GPU-bound

  double share(std::uint64_t time) const {
    return device_time == 0 ? 0.0 : static_cast<double>(time) / static_cast<double>(device_time);
  }
};

/// Of `parts`, the time of that kind.
std::uint64_t time_of(const Diagnosis& diagnosis, Bottleneck kind);

/// `multiprocessors`: the device's; 0: not known.
Diagnosis diagnose(const DeviceTimes& times, const KernelLimits& limits, int multiprocessors = 0);

}  // namespace inject
