// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Memory over time: plain data (docs/memory.md).
#pragma once

#include <cstdint>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// From its first change (or reading) until the next interval begins.
struct MemoryInterval {
  Nanoseconds begin = 0;
  Nanoseconds last_at = 0;  ///< its last change, or reading
  std::uint64_t lowest = 0;
  std::uint64_t highest = 0;
  Nanoseconds highest_at = 0;  ///< the first time
  std::uint64_t last = 0;      ///< from `last_at` on
  std::uint32_t window = 0;    ///< in which all its changes came; 0: in none, or in several

  bool operator==(const MemoryInterval&) const = default;
};

/// A reading of memory in use holds for so long. Later it may be something else, even if the next reading
/// finds the same.
inline constexpr Nanoseconds kReadingHolds = kSecond;

struct MemoryLine {
  enum class Of : std::uint8_t {
    kInUse,           ///< the device's, by all processes, as it was read from time to time
    kAllocated,       ///< by this process through the CUDA runtime, with each change
    kTorchReserved,   ///< by PyTorch's caching allocator, as it reports with each allocation and free
    kTorchAllocated,  ///< of that, to tensors
  };
  std::uint32_t device = 0;  ///< or one of MemoryUse's numbers (record/memory_use.h)
  Of of{};
  std::vector<MemoryInterval> intervals;  ///< in order of time
};

}  // namespace inject
