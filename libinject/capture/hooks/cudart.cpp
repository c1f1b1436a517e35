// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include "libinject/capture/hooks/allocations.h"
#include "libinject/capture/hooks/shim.h"

// Deprecated functions are hooked too: programs still call them.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// Used only by compiled code: a header that nvcc includes has this declaration, no host header does.
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                          std::size_t shared_bytes, cudaStream_t stream);

namespace inject {

template <>
struct Missing<cudaError_t> {
  static cudaError_t value() noexcept { return cudaErrorSharedObjectSymbolNotFound; }
};

// cudaGetErrorName and cudaGetErrorString: callers print the result.
template <>
struct Missing<const char*> {
  static const char* value() noexcept { return "no CUDA runtime library is loaded"; }
};

}  // namespace inject

#define INJECT_HOOK_PTSZ(name, arity, category) \
  INJECT_CHECK_SPELLING(#name, name)            \
  INJECT_SHIM(name, name, arity)                \
  INJECT_SHIM(name##_ptsz, name, arity)
#define INJECT_HOOK_PTDS(name, arity, category) \
  INJECT_CHECK_SPELLING(#name, name)            \
  INJECT_SHIM(name, name, arity)                \
  INJECT_SHIM(name##_ptds, name, arity)
#include "libinject/model/cudart.def"
