// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Launches kernels with few and many registers, with static and dynamic shared memory, with blocks of many
// sizes and grids around whole waves, each such launch once, between cudaProfilerStart and cudaProfilerStop.
// Before each launch it queries the CUDA runtime for the number of its blocks that fit on a multiprocessor.
//
// Prints one JSON object: the device's multiprocessors and threads, and the launches.
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <vector>

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

// Keeps N values in registers at the same time: each depends on its neighbour, and none is known before the
// kernel runs.
template <int N>
__device__ void keep_registers(float* data, int rounds) {
  float values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = data[i];
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = values[i] * values[(i + 1) % N] + 1.0f;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) data[i] = values[i];
}

// Uses N floats of static shared memory.
template <int N>
__device__ void use_shared(float* data, int rounds) {
  __shared__ float words[N];
  for (int i = static_cast<int>(threadIdx.x); i < N; i += static_cast<int>(blockDim.x)) words[i] = data[0];
  __syncthreads();
  if (rounds > 0) data[threadIdx.x % 2] = words[static_cast<unsigned>(rounds) % N];
}

}  // namespace

// Unmangled names, so that the program and the table use the same ones.
extern "C" {
__global__ void occupancy_empty(float*, int) {}
__global__ void occupancy_few(float* data, int rounds) {
  keep_registers<2>(data, rounds);
}
__global__ void __launch_bounds__(1024) occupancy_32(float* data, int rounds) {
  keep_registers<24>(data, rounds);
}
__global__ void __launch_bounds__(1024) occupancy_64(float* data, int rounds) {
  keep_registers<50>(data, rounds);
}
__global__ void __launch_bounds__(512) occupancy_128(float* data, int rounds) {
  keep_registers<100>(data, rounds);
}
__global__ void __launch_bounds__(256) occupancy_200(float* data, int rounds) {
  keep_registers<160>(data, rounds);
}
__global__ void __launch_bounds__(256) occupancy_255(float* data, int rounds) {
  keep_registers<245>(data, rounds);
}
__global__ void __launch_bounds__(1024, 2) occupancy_two_blocks(float* data, int rounds) {
  keep_registers<50>(data, rounds);
}
__global__ void occupancy_static_4k(float* data, int rounds) {
  use_shared<1024>(data, rounds);
}
__global__ void occupancy_static_25k(float* data, int rounds) {
  use_shared<6400>(data, rounds);
}
__global__ void occupancy_static_48k(float* data, int rounds) {
  use_shared<12288>(data, rounds);
}
}

int main() {
  using Kernel = void (*)(float*, int);
  struct Named {
    const char* name;
    Kernel kernel;
  };
  const Named kernels[] = {
      {"occupancy_empty", occupancy_empty},
      {"occupancy_few", occupancy_few},
      {"occupancy_32", occupancy_32},
      {"occupancy_64", occupancy_64},
      {"occupancy_128", occupancy_128},
      {"occupancy_200", occupancy_200},
      {"occupancy_255", occupancy_255},
      {"occupancy_two_blocks", occupancy_two_blocks},
      {"occupancy_static_4k", occupancy_static_4k},
      {"occupancy_static_25k", occupancy_static_25k},
      {"occupancy_static_48k", occupancy_static_48k},
  };
  const int blocks[] = {1, 31, 32, 33, 64, 96, 128, 160, 192, 250, 256, 320, 384, 512, 640, 768, 1000, 1024};

  int device = 0, multiprocessors = 0, threads = 0, warp = 0, optin = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
  check(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device), "threads");
  check(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, device), "warp size");
  check(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory");
  float* data = nullptr;
  check(cudaMalloc(&data, 4096), "cudaMalloc");
  check(cudaMemset(data, 0, 4096), "cudaMemset");

  struct Launch {
    Named kernel;
    cudaFuncAttributes attributes;
    int block, dynamic, resident, grid;
  };
  std::vector<Launch> launches;
  for (const Named& named : kernels) {
    const auto* function = reinterpret_cast<const void*>(named.kernel);
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, function), "cudaFuncGetAttributes");
    const int most = optin - static_cast<int>(attributes.sharedSizeBytes);
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
          "cudaFuncSetAttribute");
    const std::set<int> dynamics{0,         1,         1000,      8 * 1024,   12345,          31 * 1024,
                                 48 * 1024, 56 * 1024, 75 * 1024, 100 * 1024, 113 * 1024 + 1, most};
    for (const int dynamic : dynamics) {
      if (dynamic > most) continue;
      for (const int block : blocks) {
        if (block > attributes.maxThreadsPerBlock) continue;
        int resident = 0;
        check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function, block,
                                                            static_cast<std::size_t>(dynamic)),
              "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
        if (resident == 0) continue;  // it can't be launched
        // Less than a wave, exactly one, one and a block, two and a half; alternating, because the number of
        // rows is limited.
        const int wave = multiprocessors * resident;
        const int grids[] = {1, multiprocessors, wave, wave + 1, 2 * wave + wave / 2};
        launches.push_back({named, attributes, block, dynamic, resident, grids[launches.size() % 5]});
      }
    }
  }

  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaProfilerStart(), "cudaProfilerStart");
  for (const Launch& launch : launches) {
    launch.kernel.kernel<<<static_cast<unsigned>(launch.grid), static_cast<unsigned>(launch.block),
                           static_cast<std::size_t>(launch.dynamic)>>>(data, 1);
    check(cudaGetLastError(), launch.kernel.name);
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaProfilerStop(), "cudaProfilerStop");

  std::printf("{\"multiprocessors\": %d, \"threads\": %d, \"warp\": %d, \"optin\": %d, \"launches\": [\n",
              multiprocessors, threads, warp, optin);
  const char* separator = "";
  for (const Launch& launch : launches) {
    std::printf(
        "%s{\"name\": \"%s\", \"grid\": %d, \"block\": %d, \"registers\": %d, \"static\": %zu, \"dynamic\": "
        "%d, "
        "\"blocks\": %d}",
        separator, launch.kernel.name, launch.grid, launch.block, launch.attributes.numRegs,
        launch.attributes.sharedSizeBytes, launch.dynamic, launch.resident);
    separator = ",\n";
  }
  std::printf("\n]}\n");
  return 0;
}
