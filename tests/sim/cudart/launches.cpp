// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Launches of kernels.
#include <vector>

#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/call.h"
#include "tests/sim/cudart/impl.h"
#include "tests/sim/cudart/registration.h"

namespace inject::sim::rt::impl {
namespace {

struct LaunchConfiguration {
  dim3 grid;
  dim3 block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};

// Leaked, as this_thread() is.
std::vector<LaunchConfiguration>& configurations() {
  thread_local auto& instance = *new std::vector<LaunchConfiguration>;
  return instance;
}

cudaError_t launch(Kernel* kernel, dim3 grid, dim3 block, void** args, std::size_t shared,
                   cudaStream_t stream, bool per_thread) {
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  auto function = reinterpret_cast<CUfunction>(kernel);
  CUresult result =
      drv::cuLaunchKernel(per_thread, function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                          static_cast<unsigned>(shared), driver_stream(stream), args, nullptr);
  return result == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration : from_driver(result);
}

// The headers describe no parameters for it; they are those of cudaLaunchKernel.
cudaError_t launch_handle(Function& function, bool per_thread, cudaKernel_t kernel, dim3 grid, dim3 block,
                          void** args, std::size_t shared, cudaStream_t stream) {
  const cudaLaunchKernel_v7000_params params{kernel, grid, block, args, shared, stream};
  auto* target = reinterpret_cast<Kernel*>(kernel);
  return call(
      function, &params, Needs::kContext,
      [&] { return launch(target, grid, block, args, shared, stream, per_thread); },
      target != nullptr ? target->name : nullptr);
}

}  // namespace

cudaError_t cudaLaunchKernel(bool per_thread, const void* func, dim3 gridDim, dim3 blockDim, void** args,
                             size_t sharedMem, cudaStream_t stream) {
  return launch(find_kernel(func), gridDim, blockDim, args, sharedMem, stream, per_thread);
}

cudaError_t cudaLaunchKernelExC(bool per_thread, const cudaLaunchConfig_t* config, const void* func,
                                void** args) {
  Kernel* kernel = find_kernel(func);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  CUlaunchConfig driver_config{};
  driver_config.gridDimX = config->gridDim.x;
  driver_config.gridDimY = config->gridDim.y;
  driver_config.gridDimZ = config->gridDim.z;
  driver_config.blockDimX = config->blockDim.x;
  driver_config.blockDimY = config->blockDim.y;
  driver_config.blockDimZ = config->blockDim.z;
  driver_config.sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes);
  driver_config.hStream = driver_stream(config->stream);
  return from_driver(
      drv::cuLaunchKernelEx(per_thread, &driver_config, reinterpret_cast<CUfunction>(kernel), args, nullptr));
}

cudaError_t cudaLaunchCooperativeKernel(bool per_thread, const void* func, dim3 gridDim, dim3 blockDim,
                                        void** args, size_t sharedMem, cudaStream_t stream) {
  Kernel* kernel = find_kernel(func);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  return from_driver(drv::cuLaunchCooperativeKernel(
      per_thread, reinterpret_cast<CUfunction>(kernel), gridDim.x, gridDim.y, gridDim.z, blockDim.x,
      blockDim.y, blockDim.z, static_cast<unsigned>(sharedMem), driver_stream(stream), args));
}

}  // namespace inject::sim::rt::impl

using namespace inject::sim;
using namespace inject::sim::rt;

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                     struct CUstream_st* stream) {
  impl::configurations().push_back({gridDim, blockDim, sharedMem, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem, void* stream) {
  if (impl::configurations().empty()) return keep(cudaErrorMissingConfiguration);
  auto configuration = impl::configurations().back();
  impl::configurations().pop_back();
  *gridDim = configuration.grid;
  *blockDim = configuration.block;
  *sharedMem = configuration.shared;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                               size_t sharedMem, cudaStream_t stream) {
  RUNTIME_FUNCTION(__cudaLaunchKernel);
  return impl::launch_handle(function, false, kernel, gridDim, blockDim, args, sharedMem, stream);
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                                    size_t sharedMem, cudaStream_t stream) {
  RUNTIME_FUNCTION(__cudaLaunchKernel_ptsz);
  return impl::launch_handle(function, true, kernel, gridDim, blockDim, args, sharedMem, stream);
}
}
