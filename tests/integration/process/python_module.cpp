// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// CUDA for python_victim.py, through ctypes: a library linked with the runtime, as an extension module is.
#include <cuda_profiler_api.h>

#include "tests/integration/process/victim.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int module_open() {
  return cudaProfilerStart();
}

EXPORT int module_close() {
  return cudaProfilerStop();
}

EXPORT void module_flush() {
  victim::flush_windows();
}

EXPORT int module_work(const char* name, int count) {
  const cudaError_t usable = cudaFree(nullptr);
  if (usable != cudaSuccess) return usable;
  victim::launch(victim::kernel(name), count);
  return cudaDeviceSynchronize();
}
