// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver loads CUDA_INJECTION64_PATH at its initialisation, once; a child forked afterwards cannot use
// CUDA.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {
int failures = 0;
void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "failed: %s\n", what);
  ++failures;
}
}  // namespace

int main() {
  setenv("CUDA_INJECTION64_PATH", SIM_INJECTION_PROBE, 1);
  expect(dlopen(SIM_INJECTION_PROBE, RTLD_NOW | RTLD_NOLOAD) == nullptr, "not loaded before the first call");
  int runtime = 0;
  expect(cudaRuntimeGetVersion(&runtime) == cudaSuccess, "cudaRuntimeGetVersion");
  expect(dlopen(SIM_INJECTION_PROBE, RTLD_NOW | RTLD_NOLOAD) == nullptr,
         "a version query initialises nothing");

  expect(cudaFree(nullptr) == cudaSuccess, "cudaFree");
  void* probe = dlopen(SIM_INJECTION_PROBE, RTLD_NOW | RTLD_NOLOAD);
  expect(probe != nullptr, "loaded by the first call that needs a device");
  auto* count = probe != nullptr ? static_cast<int*>(dlsym(probe, "injection_count")) : nullptr;
  expect(count != nullptr && *count == 1, "initialised once");
  expect(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr, "the runtime has loaded the driver");
  expect(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  expect(count != nullptr && *count == 1, "and not again");

  pid_t child = fork();
  if (child == 0) {
    void* memory = nullptr;
    _exit(cudaMalloc(&memory, 16) == cudaErrorInitializationError ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "cudaErrorInitializationError in a forked child");
  return failures == 0 ? 0 : 1;
}
