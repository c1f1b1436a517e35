// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What cudart.cpp and cudart/ do not define.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include "tests/sim/defaults.h"

namespace {
constexpr const char* kLibrary = SIM_CUDART_SONAME;
constexpr inject::sim::Domain kDomain = inject::sim::Domain::kRuntime;

template <class... A>
int sim_default_work(const inject::sim::Function& function, inject::sim::SimCategory, A... arguments) {
  // A handle to be created comes back through the first argument.
  if constexpr (sizeof...(A) > 0) {
    auto first = std::get<0>(std::tuple<A...>(arguments...));
    if constexpr (std::is_pointer_v<decltype(first)>) {
      using Pointed = std::remove_pointer_t<decltype(first)>;
      if constexpr (std::is_pointer_v<Pointed> && !std::is_const_v<Pointed>)
        if (first != nullptr && function.name.find("Create") != std::string::npos)
          *first = reinterpret_cast<Pointed>(inject::sim::new_handle());
    }
  }
  return 0;
}
}  // namespace

// Declared for nvcc's own code alone.
extern "C" {
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                               size_t sharedMem, cudaStream_t stream);
}

#include "libinject/model/cudart.def"
