// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Memory over time: plain data (docs/memory.md).
#pragma once

#include <cstdint>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// Lasts from its first change (or reading) until the next interval begins.
struct MemoryInterval {
  Nanoseconds begin = 0;
  Nanoseconds last_at = 0;  ///< time of its last change, or reading
  std::uint64_t lowest = 0;
  std::uint64_t highest = 0;
  Nanoseconds highest_at = 0;  ///< the first time
  std::uint64_t last = 0;      ///< the value from `last_at` on
  std::uint32_t window = 0;    ///< window of all its changes; 0: none, or several

  bool operator==(const MemoryInterval&) const = default;
};

/// How long a reading of memory in use remains valid. Afterwards the value may be different, even if the next
/// reading finds the same.
inline constexpr Nanoseconds kReadingHolds = kSecond;

struct MemoryLine {
  enum class Of : std::uint8_t {
    kInUse,           ///< on the device, by all processes, read periodically
    kAllocated,       ///< by this process through the CUDA runtime, at each change
    kTorchReserved,   ///< by PyTorch's caching allocator, as reported at each allocation and free
    kTorchAllocated,  ///< of that, to tensors
  };
  std::uint32_t device = 0;  ///< or one of MemoryUse's numbers (record/memory_use.h)
  Of of{};
  std::vector<MemoryInterval> intervals;  ///< in order of time
};

}  // namespace inject
