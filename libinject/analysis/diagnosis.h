// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What limits a program, from how its device spent its time: docs/diagnosis.md has the rules.
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
  kGpu,   ///< by kernels whose limit is unknown
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
/// The remedy, in one line; empty if there is none.
std::string_view bottleneck_advice(Bottleneck bottleneck);

/// What limits a kernel (not a collective's) of this family that ran for `average` nanoseconds per launch,
/// with a block on `fill` (at most 1) of the device's multiprocessors: kGpuCompute, kGpuMemory, kGpuLatency,
/// or kGpu if it cannot be determined.
Bottleneck kernel_limit(Family family, double average, double fill);

/// The same from measurements taken while the kernel ran, each as a share of the device's maximum, 0 … 1:
/// multiprocessors that had a warp, the busiest arithmetic pipe, memory bandwidth.
Bottleneck measured_limit(double average, double active, double arithmetic, double memory);

/// Kernel time by what limits it.
struct KernelLimits {
  std::uint64_t compute = 0;
  std::uint64_t memory = 0;
  std::uint64_t latency = 0;
  std::uint64_t unknown = 0;
  std::uint64_t off_tensor_cores = 0;  ///< of `compute`: time known not to use tensor cores
  std::uint64_t measured = 0;          ///< of total(), the time classified by measured_limit()
  void add(Bottleneck limit, std::uint64_t time, bool off_tensor_cores);
  void merge(const KernelLimits& more);
  std::uint64_t total() const { return compute + memory + latency + unknown; }
};

/// A part of the device time that one remedy addresses, in nanoseconds.
struct BottleneckPart {
  Bottleneck kind = Bottleneck::kNone;
  std::uint64_t time = 0;
  std::uint64_t gain = 0;  ///< the most that the remedy could save
};

struct Diagnosis {
  Bottleneck verdict = Bottleneck::kNone;
  std::uint64_t device_time = 0;
  std::uint64_t compute_time = 0;  ///< at least one kernel ran that is not a collective's
  /// The most that the verdict's remedies could save. Empty: there is no bound, which is different from 0.
  std::optional<std::uint64_t> gain;
  /// The time that is not compute time, by kind, largest first, without kinds that have no time. For a mixed
  /// verdict, the kinds that caused it come first.
  std::vector<BottleneckPart> parts;
  std::size_t leading = 0;  ///< number of `parts`, from the first, that the verdict refers to; 0 if GPU-bound

  double share(std::uint64_t time) const {
    return device_time == 0 ? 0.0 : static_cast<double>(time) / static_cast<double>(device_time);
  }
};

/// The time of the part of that kind; 0 if there is none.
std::uint64_t time_of(const Diagnosis& diagnosis, Bottleneck kind);

/// `multiprocessors`: of the device; 0: unknown.
Diagnosis diagnose(const DeviceTimes& times, const KernelLimits& limits, int multiprocessors = 0);

}  // namespace inject
