// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The host resources used by the process's threads and child processes in a window (docs/processors.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// The purpose of a thread or a child process, as far as its name indicates.
enum class HostRole : std::uint8_t {
  kMain,           ///< the process's first thread
  kAutograd,       ///< PyTorch's threads for the backward pass
  kNccl,           ///< NCCL's own threads, and PyTorch's that monitor it
  kPinMemory,      ///< PyTorch's thread that copies batches into pinned memory
  kOurs,           ///< libinject's
  kDriver,         ///< the CUDA driver's own
  kOtherThread,    ///< any other
  kRest,           ///< the rest of the process: threads that ended, or did not fit
  kProcess,        ///< the process: the sum of the above
  kLoaderWorker,   ///< a child process without CUDA that has the program's name, or a loader's
  kCudaChild,      ///< a child process that uses CUDA
  kOtherChild,     ///< any other
  kEndedChildren,  ///< what children that ended used after the last reading
};
inline constexpr std::size_t kHostRoles = 13;
inline constexpr bool is_thread(HostRole role) {
  return role < HostRole::kRest;
}

/// What is counted for each role. Times in nanoseconds.
enum class HostAmount : std::uint8_t {
  kProcessorTime,
  kVoluntarySwitches,
  kInvoluntarySwitches,
  kMinorFaults,
  kMajorFaults,
  kRunQueueWait,
  kReadBytes,
};
inline constexpr std::size_t kHostAmounts = 7;

/// Empty if one of them is.
inline void add_to(std::optional<std::uint64_t>& sum, const std::optional<std::uint64_t>& more) {
  if (!more) {
    sum.reset();
  } else if (sum) {
    *sum += *more;
  }
}

/// Amounts; empty where unreadable.
struct HostUse {
  std::array<std::optional<std::uint64_t>, kHostAmounts> amounts;

  const std::optional<std::uint64_t>& of(HostAmount amount) const {
    return amounts[static_cast<std::size_t>(amount)];
  }
  std::optional<std::uint64_t>& of(HostAmount amount) { return amounts[static_cast<std::size_t>(amount)]; }

  bool operator==(const HostUse&) const = default;
};

/// One role in one window.
struct HostRoleUse {
  HostRole role = HostRole::kMain;
  std::uint64_t count = 0;  ///< threads or processes
  HostUse use;

  bool operator==(const HostRoleUse&) const = default;
};

/// Moments at which the training thread waited in a fetch of a loader with workers, by the workers' state.
struct LoaderMoments {
  std::uint64_t all = 0;
  std::uint64_t asleep = 0;   ///< no worker was running or runnable
  std::uint64_t blocked = 0;  ///< … and at least one was in uninterruptible sleep, for example for a disk

  bool operator==(const LoaderMoments&) const = default;
};

/// Use of the host between two readings, near the edges of a window.
struct HostWindow {
  std::uint32_t window = 0;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  Nanoseconds reading = 0;  ///< total duration of these two readings
  std::vector<HostRoleUse> roles;
  /// Number of CPUs that the main thread may run on; 0: unknown, or not the same at all readings.
  std::uint64_t affinity = 0;
  /// Of a CPU, by control groups; 0: no limit; empty: not the same at all readings.
  std::optional<std::uint64_t> quota_thousandths = 0;
  // For loader workers that did anything between two readings:
  std::uint64_t workers = 0;      ///< the largest number of them at one reading
  std::uint64_t worker_life = 0;  ///< sum of their lifetimes
  std::uint64_t worker_time = 0;  ///< CPU time in these
  std::uint64_t worker_wait = 0;  ///< … and time in the run queue
  LoaderMoments moments;

  Nanoseconds span() const { return end - begin; }
  bool operator==(const HostWindow&) const = default;
};

/// Statistics of the readings.
struct HostReadings {
  std::uint64_t readings = 0;
  std::uint64_t windows_not_read = 0;  ///< too short, or too close together
  std::uint64_t threads_beyond = 0;    ///< maximum number at one time that did not fit
  std::uint64_t children_beyond = 0;   ///< likewise
  Nanoseconds processor_time = 0;      ///< CPU time of all readings

  bool operator==(const HostReadings&) const = default;
};

}  // namespace inject
