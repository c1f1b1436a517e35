// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Reports the runtime's calls that allocate and free to record/memory_use.h, whether a window is open or not:
// observers (observers.h), which their shims always call. For cudart.cpp alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "libinject/capture/driver.h"
#include "libinject/capture/hooks/observers.h"
#include "libinject/record/memory_use.h"

namespace inject {

/// Saturating product: sizes are the program's, valid or not.
inline std::uint64_t product(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? ~std::uint64_t{0} : result;
}

inline void note_allocation(AllocationApi api, const void* address, std::uint64_t bytes) noexcept {
  memory_use.allocated(api, address, bytes, current_device());
}

inline void note_failure(AllocationApi api, std::uint64_t bytes) noexcept {
  memory_use.failed(api, bytes, current_device());
}

/// True if allocations are counted; the call's `status` is 0 if CUDA is certainly initialised, even if the
/// driver has not notified us.
inline bool counts_memory(int status) noexcept {
  return memory_use.active() || (status == 0 && on_uncounted_allocation() && memory_use.active());
}

/// Output arguments are read only if the call has succeeded, and so has written them; another preloaded
/// library may return success without.
inline void note_call(AllocationApi api, int status, void** address, std::uint64_t bytes) noexcept {
  if (!counts_memory(status)) return;
  if (status != 0) {
    note_failure(api, bytes);
  } else if (address != nullptr) {
    note_allocation(api, *address, bytes);
  }
}

/// The bytes of an array's elements; 0 for formats whose size is not the sum of their channels
/// (block-compressed, planar). The device rounds up and pads, so the array takes more.
inline void note_array(AllocationApi api, int status, const void* const* array,
                       const cudaChannelFormatDesc* format, std::uint64_t width, std::uint64_t height,
                       std::uint64_t depth) noexcept {
  if (!memory_use.active()) return;
  // Other failures may be due to a format that can't be read.
  std::uint64_t bytes = 0;
  if ((status == 0 || status == cudaErrorMemoryAllocation) && format != nullptr &&
      format->f <= cudaChannelFormatKindFloat) {
    const int bits = format->x + format->y + format->z + format->w;
    const std::uint64_t elements = product(product(width, height == 0 ? 1 : height), depth == 0 ? 1 : depth);
    if (bits > 0) bytes = product(elements, static_cast<std::uint64_t>(bits) / 8);
  }
  if (status != 0) {
    note_failure(api, bytes);
  } else if (array != nullptr) {
    note_allocation(api, *array, bytes);
  }
}

template <AllocationApi api>
struct SizedAllocation {
  static void after(void*, int status, void** address, std::size_t size) noexcept {
    note_call(api, status, address, size);
  }
  // cudaMallocManaged, cudaHostAlloc
  static void after(void*, int status, void** address, std::size_t size, unsigned) noexcept {
    note_call(api, status, address, size);
  }
  // cudaMallocAsync, cudaMallocFromPoolAsync
  static void after(void*, int status, void** address, std::size_t size, cudaStream_t) noexcept {
    note_call(api, status, address, size);
  }
  static void after(void*, int status, void** address, std::size_t size, cudaMemPool_t,
                    cudaStream_t) noexcept {
    note_call(api, status, address, size);
  }
};

template <>
struct Observer<kFn_cudaMalloc> : SizedAllocation<AllocationApi::kMalloc> {};
template <>
struct Observer<kFn_cudaMallocAsync> : SizedAllocation<AllocationApi::kMallocAsync> {};
template <>
struct Observer<kFn_cudaMallocAsync_ptsz> : SizedAllocation<AllocationApi::kMallocAsyncPtsz> {};
template <>
struct Observer<kFn_cudaMallocFromPoolAsync> : SizedAllocation<AllocationApi::kMallocFromPoolAsync> {};
template <>
struct Observer<kFn_cudaMallocFromPoolAsync_ptsz> : SizedAllocation<AllocationApi::kMallocFromPoolAsyncPtsz> {
};
template <>
struct Observer<kFn_cudaMallocManaged> : SizedAllocation<AllocationApi::kMallocManaged> {};
template <>
struct Observer<kFn_cudaMallocHost> : SizedAllocation<AllocationApi::kMallocHost> {};
template <>
struct Observer<kFn_cudaHostAlloc> : SizedAllocation<AllocationApi::kHostAlloc> {};

template <>
struct Observer<kFn_cudaMallocPitch> {
  static void after(void*, int status, void** address, const std::size_t* pitch, std::size_t width,
                    std::size_t height) noexcept {
    if (!counts_memory(status)) return;
    note_call(AllocationApi::kMallocPitch, status, address,
              product(status == 0 && pitch != nullptr ? *pitch : width, height));
  }
};

template <>
struct Observer<kFn_cudaMalloc3D> {
  static void after(void*, int status, cudaPitchedPtr* memory, cudaExtent extent) noexcept {
    if (!memory_use.active()) return;
    const std::uint64_t rows = product(extent.height, extent.depth);
    if (status != 0) {
      note_failure(AllocationApi::kMalloc3D, product(extent.width, rows));
    } else if (memory != nullptr) {
      note_allocation(AllocationApi::kMalloc3D, memory->ptr, product(memory->pitch, rows));
    }
  }
};

template <>
struct Observer<kFn_cudaMallocArray> {
  static void after(void*, int status, cudaArray_t* array, const cudaChannelFormatDesc* format,
                    std::size_t width, std::size_t height, unsigned) noexcept {
    note_array(AllocationApi::kMallocArray, status, reinterpret_cast<void**>(array), format, width, height,
               1);
  }
};

template <>
struct Observer<kFn_cudaMalloc3DArray> {
  static void after(void*, int status, cudaArray_t* array, const cudaChannelFormatDesc* format,
                    cudaExtent extent, unsigned) noexcept {
    note_array(AllocationApi::kMalloc3DArray, status, reinterpret_cast<void**>(array), format, extent.width,
               extent.height, extent.depth);
  }
};

// Size unknown: the levels share one layout.
template <>
struct Observer<kFn_cudaMallocMipmappedArray> {
  static void after(void*, int status, cudaMipmappedArray_t* array, const cudaChannelFormatDesc*, cudaExtent,
                    unsigned, unsigned) noexcept {
    note_call(AllocationApi::kMallocMipmappedArray, status, reinterpret_cast<void**>(array), 0);
  }
};

struct FreeObserver {
  static void before(const void* address) noexcept {
    if (memory_use.active()) memory_use.freeing(address);
  }
  static void after(void*, int status, const void* address) noexcept {
    if (memory_use.active()) {
      memory_use.freed(address, status == 0);
    } else if (status == 0) {
      on_uncounted_allocation();  // cudaFree(0) is the first call of many programs
    }
  }
  // cudaFreeAsync: from here on, the address may be reused, in the stream's order.
  static void before(const void* address, cudaStream_t) noexcept { before(address); }
  static void after(void* real, int status, const void* address, cudaStream_t) noexcept {
    after(real, status, address);
  }
};

template <>
struct Observer<kFn_cudaFree> : FreeObserver {};
template <>
struct Observer<kFn_cudaFreeAsync> : FreeObserver {};
template <>
struct Observer<kFn_cudaFreeAsync_ptsz> : FreeObserver {};
template <>
struct Observer<kFn_cudaFreeHost> : FreeObserver {};
template <>
struct Observer<kFn_cudaFreeArray> : FreeObserver {};
template <>
struct Observer<kFn_cudaFreeMipmappedArray> : FreeObserver {};

template <>
struct Observer<kFn_cudaDeviceReset> {
  static void before() noexcept {
    streams_destroyed();
    if (memory_use.active()) memory_use.resetting(current_device());
  }
  static void after(void*, int status) noexcept {
    if (memory_use.active()) memory_use.reset(status == 0);
  }
};

}  // namespace inject
