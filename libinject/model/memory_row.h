// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "libinject/base/time.h"

namespace inject {

/// The allocation functions of the CUDA runtime.
enum class AllocationApi : std::uint8_t {
  kMalloc,
  kMallocPitch,
  kMalloc3D,
  kMallocAsync,
  kMallocAsyncPtsz,
  kMallocFromPoolAsync,
  kMallocFromPoolAsyncPtsz,
  kMallocArray,
  kMalloc3DArray,
  kMallocMipmappedArray,
  kMallocManaged,
  kMallocHost,
  kHostAlloc,
};
inline constexpr std::size_t kAllocationApis = 13;

enum class AllocationKind : std::uint8_t { kDevice, kManaged, kPinnedHost };

std::string_view allocation_name(AllocationApi api) noexcept;
constexpr AllocationKind allocation_kind(AllocationApi api) noexcept {
  return api >= AllocationApi::kMallocHost      ? AllocationKind::kPinnedHost
         : api == AllocationApi::kMallocManaged ? AllocationKind::kManaged
                                                : AllocationKind::kDevice;
}

/// Counts for one function on one device, or for all functions.
struct MemoryCounts {
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;  ///< of these allocations
  std::uint64_t allocated = 0;
  std::uint64_t live = 0;
  std::uint64_t peak = 0;   ///< of `live`
  Nanoseconds peak_at = 0;  ///< when the peak was first reached; 0: never, since it is 0
  std::uint64_t largest = 0;
  std::uint64_t failed = 0;
  std::uint64_t failed_bytes = 0;  ///< requested by failed calls
  std::uint64_t largest_failed = 0;
  std::uint64_t last_failed = 0;
};

struct MemoryRow {
  std::uint32_t device = 0;          ///< or one of MemoryUse's numbers (record/memory_use.h)
  std::optional<AllocationApi> api;  ///< empty: all functions together
  MemoryCounts counts;
};

}  // namespace inject
