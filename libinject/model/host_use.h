// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How much of the host the process's threads and child processes used in a window (docs/processors.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// What a thread or a child process is there for, as far as its name tells.
enum class HostRole : std::uint8_t {
  kMain,           ///< the process's first thread
  kAutograd,       ///< PyTorch's, of the backward pass
  kNccl,           ///< NCCL's own, and PyTorch's that watch over it
  kPinMemory,      ///< PyTorch's, which copies batches into pinned memory
  kOurs,           ///< libinject's
  kDriver,         ///< the CUDA driver's own
  kOtherThread,    ///< any other
  kRest,           ///< of the process, what is not in the rows above: threads that ended, or found no room
  kProcess,        ///< the process: the sum of those above
  kLoaderWorker,   ///< a child process without CUDA that goes by the program's name, or by a loader's
  kCudaChild,      ///< a child process that uses CUDA
  kOtherChild,     ///< any other
  kEndedChildren,  ///< of children that ended, what they took after the last reading
};
inline constexpr std::size_t kHostRoles = 13;
inline constexpr bool is_thread(HostRole role) {
  return role < HostRole::kRest;
}

/// What is counted of each. Times in nanoseconds.
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

/// Amounts, each empty where it can't be read.
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

/// Moments at which the training thread waited in a fetch of a loader with workers, by what these did.
struct LoaderMoments {
  std::uint64_t all = 0;
  std::uint64_t asleep = 0;   ///< no worker ran or was ready to
  std::uint64_t blocked = 0;  ///< … and at least one was in uninterruptible sleep, as for a disk

  bool operator==(const LoaderMoments&) const = default;
};

/// Between two readings, near the edges of a window.
struct HostWindow {
  std::uint32_t window = 0;
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  Nanoseconds reading = 0;  ///< how long these two readings took together
  std::vector<HostRoleUse> roles;
  std::uint64_t affinity = 0;           ///< processors that the main thread may run on; 0: not known
  std::uint64_t quota_thousandths = 0;  ///< of a processor, by control groups; 0: no limit
  // Of loader workers that did anything between two readings:
  std::uint64_t worker_life = 0;  ///< their lifetimes, added up
  std::uint64_t worker_time = 0;  ///< processor time in these
  std::uint64_t worker_wait = 0;  ///< … and time in the run queue
  LoaderMoments moments;

  Nanoseconds span() const { return end - begin; }
  bool operator==(const HostWindow&) const = default;
};

/// How the readings went.
struct HostReadings {
  std::uint64_t readings = 0;
  std::uint64_t windows_not_read = 0;  ///< too short, or too close together
  std::uint64_t threads_beyond = 0;    ///< at most at once, for which there was no room
  std::uint64_t children_beyond = 0;   ///< likewise
  Nanoseconds processor_time = 0;      ///< of all readings

  bool operator==(const HostReadings&) const = default;
};

}  // namespace inject
