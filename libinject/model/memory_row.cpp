// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/model/memory_row.h"

#include <array>

namespace inject {

std::string_view allocation_name(AllocationApi api) noexcept {
  constexpr std::array<std::string_view, kAllocationApis> kNames{"cudaMalloc",
                                                                 "cudaMallocPitch",
                                                                 "cudaMalloc3D",
                                                                 "cudaMallocAsync",
                                                                 "cudaMallocAsync_ptsz",
                                                                 "cudaMallocFromPoolAsync",
                                                                 "cudaMallocFromPoolAsync_ptsz",
                                                                 "cudaMallocArray",
                                                                 "cudaMalloc3DArray",
                                                                 "cudaMallocMipmappedArray",
                                                                 "cudaMallocManaged",
                                                                 "cudaMallocHost",
                                                                 "cudaHostAlloc"};
  static_assert(!kNames.back().empty());
  return kNames[static_cast<std::size_t>(api)];
}

}  // namespace inject
