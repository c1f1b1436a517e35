// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Launches of kernels.
#include "tests/sim/core/driver/arguments.h"
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv::impl {
namespace {

CUresult launch(CUfunction function, Extent3 grid, Extent3 block, unsigned shared, CUstream handle,
                bool per_thread) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto threads = static_cast<std::int64_t>(block.x) * block.y * block.z;
  if (grid.x <= 0 || grid.y <= 0 || grid.z <= 0 || threads <= 0 || threads > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  KernelWork work{reinterpret_cast<Kernel*>(function), grid, block, shared};
  return enqueue(stream, work);
}

}  // namespace

CUresult cuLaunchKernel(bool per_thread, CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, void**,
                        void**) {
  return launch(f, extent(gridDimX, gridDimY, gridDimZ), extent(blockDimX, blockDimY, blockDimZ),
                sharedMemBytes, hStream, per_thread);
}

CUresult cuLaunchKernelEx(bool per_thread, const CUlaunchConfig* config, CUfunction f, void**, void**) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch(f, extent(config->gridDimX, config->gridDimY, config->gridDimZ),
                extent(config->blockDimX, config->blockDimY, config->blockDimZ), config->sharedMemBytes,
                config->hStream, per_thread);
}

CUresult cuLaunchCooperativeKernel(bool per_thread, CUfunction f, unsigned int gridDimX,
                                   unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream, void**) {
  return launch(f, extent(gridDimX, gridDimY, gridDimZ), extent(blockDimX, blockDimY, blockDimZ),
                sharedMemBytes, hStream, per_thread);
}

}  // namespace inject::sim::drv::impl
