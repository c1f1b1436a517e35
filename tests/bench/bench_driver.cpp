// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Launches empty kernels through the driver API, found by dlopen as Numba and JAX find it: no hook sees them.
// Prints one median time a launch, in nanoseconds. For what a held CUPTI subscription costs (bench.py, part
// `held`).
#include <cuda.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr const char* kEmptyKernel =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry empty()\n{\n  ret;\n}\n";

template <typename Function>
Function* find(void* driver, const char* name) {
  void* function = dlsym(driver, name);
  if (function == nullptr) {
    std::fprintf(stderr, "libcuda.so.1 has no %s\n", name);
    std::exit(1);
  }
  return reinterpret_cast<Function*>(function);
}

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

}  // namespace

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  auto* launch = find<decltype(cuLaunchKernel)>(driver, "cuLaunchKernel");
  auto* synchronize = find<CUresult()>(driver, "cuCtxSynchronize");
  check(find<decltype(cuInit)>(driver, "cuInit")(0), "cuInit");
  CUdevice device;
  check(find<decltype(cuDeviceGet)>(driver, "cuDeviceGet")(&device, 0), "cuDeviceGet");
  CUcontext context;
  check(find<decltype(cuDevicePrimaryCtxRetain)>(driver, "cuDevicePrimaryCtxRetain")(&context, device),
        "context");
  check(find<CUresult(CUcontext)>(driver, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  CUmodule module;
  check(find<decltype(cuModuleLoadData)>(driver, "cuModuleLoadData")(&module, kEmptyKernel),
        "cuModuleLoadData");
  CUfunction kernel;
  check(find<decltype(cuModuleGetFunction)>(driver, "cuModuleGetFunction")(&kernel, module, "empty"),
        "kernel");

  constexpr int kRounds = 40;
  constexpr int kLaunches = 10'000;
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = now();
    for (int i = 0; i < kLaunches; ++i) {
      check(launch(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
    }
    rounds.push_back((now() - begin) / kLaunches);
    check(synchronize(), "cuCtxSynchronize");
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  std::printf("%.1f\n", rounds[kRounds / 2]);
  return 0;
}
