// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/library.h"

#include <cuda_runtime_api.h>
#include <cupti.h>

#include "tests/sim/core/driver.h"
#include "tests/sim/core/trace.h"

namespace inject::sim::library {

int launch(const char* kernel, unsigned grid, unsigned block, CUstream stream) {
  static constinit FunctionSlot slot;
  Function& function = slot.get("static cudart", "cudaLaunchKernel", Domain::kRuntime);
  function.enter();
  if (CUresult result = drv::initialise(); result != CUDA_SUCCESS) return static_cast<int>(result);
  Kernel& target = kernel_by_name(kernel);
  const cudaLaunchKernel_v7000_params params{&target, dim3(grid), dim3(block), nullptr, 0, stream};
  int result = 0;
  trace::ApiCall api(function, &params, &result, kernel);
  if (current_context() == nullptr) set_current_context(primary_context(0));
  result = static_cast<int>(drv::cuLaunchKernel(reinterpret_cast<CUfunction>(&target), grid, 1, 1, block, 1,
                                                1, 0, stream, nullptr, nullptr));
  return result;
}

int add_to_graph(const char* kernel, unsigned grid, unsigned block, CUgraph graph) {
  if (CUresult result = drv::initialise(); result != CUDA_SUCCESS) return static_cast<int>(result);
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = reinterpret_cast<CUfunction>(&kernel_by_name(kernel));
  node.gridDimX = grid;
  node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = block;
  node.blockDimY = node.blockDimZ = 1;
  CUgraphNode added = nullptr;
  return static_cast<int>(drv::cuGraphAddKernelNode_v2(&added, graph, nullptr, 0, &node));
}

}  // namespace inject::sim::library
