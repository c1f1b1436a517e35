// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the runtime's arguments and the driver's results are for the other.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/sim/core/driver.h"

namespace inject::sim::rt {

inline cudaError_t from_driver(CUresult result) {
  return static_cast<cudaError_t>(result);
}

inline CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

inline CUstream driver_stream(cudaStream_t stream) {
  return reinterpret_cast<CUstream>(stream);
}

CUDA_MEMCPY3D copy_3d(const cudaMemcpy3DParms& p);
CUDA_MEMCPY3D_PEER copy_3d(const cudaMemcpy3DPeerParms& p);

}  // namespace inject::sim::rt
