// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the vendor's arguments say, in the devices' terms.
#pragma once

#include <cuda.h>

#include "tests/sim/core/device.h"

#pragma GCC visibility push(hidden)
namespace inject::sim::drv::impl {

inline void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

inline CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

inline bool valid_device(CUdevice device) {
  return device >= 0 && device < settings().devices;
}

inline Extent3 extent(unsigned x, unsigned y, unsigned z) {
  return {static_cast<std::int32_t>(x), static_cast<std::int32_t>(y), static_cast<std::int32_t>(z)};
}

SetWork set_work(CUdeviceptr target, std::uint32_t value, unsigned element, std::size_t count);
CopyWork copy_work(const CUDA_MEMCPY2D& params);
CopyWork copy_work(const CUDA_MEMCPY3D& params);
CopyWork copy_work(const CUDA_MEMCPY3D_PEER& params);

}  // namespace inject::sim::drv::impl
#pragma GCC visibility pop
