// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A library that uses CUDA while the loader is loading it.
#include <cuda_runtime_api.h>

#include <thread>

namespace {

// The loader holds its lock while this waits.
[[gnu::constructor]] void construct() {
  std::thread([] { cudaGetLastError(); }).join();
}

[[gnu::destructor]] void destruct() {
  cudaPeekAtLastError();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int plugin_call() {
  int device = -1;
  return cudaGetDevice(&device) == cudaSuccess && device == 0 ? 0 : 1;
}
