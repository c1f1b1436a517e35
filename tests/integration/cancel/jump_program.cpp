// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Leaves a hooked call by siglongjmp, reuses the stack where its frame was, and launches a kernel with the
// driver API from there: nothing that the program keeps there may change.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <setjmp.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace {

sigjmp_buf before_the_call;

template <typename Function>
Function* driver(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* function = library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) std::_Exit(99);
  return function;
}
#define DRIVER(name) driver<decltype(::name)>(#name)

// The call's frame was further down the stack than this one: somewhere among these words.
__attribute__((noinline)) int words_changed(CUfunction function) {
  constexpr std::size_t kWords = 4096;
  // The value that a runtime call would have there if it has launched nothing yet.
  constexpr std::size_t kWord = std::size_t{1} << 32;
  volatile std::size_t words[kWords];
  for (std::size_t i = 0; i < kWords; ++i) words[i] = kWord;
  if (DRIVER(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS)
    return -1;
  int changed = 0;
  for (std::size_t i = 0; i < kWords; ++i) changed += words[i] != kWord;
  return changed;
}

}  // namespace

int main() {
  if (cudaFree(nullptr) != cudaSuccess) return 2;  // initialises CUDA, and the profiler with it
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  if (DRIVER(cuModuleLoadData)(&module, "") != CUDA_SUCCESS ||
      DRIVER(cuModuleGetFunction)(&function, module, "_Z5afterv") != CUDA_SUCCESS) {
    return 3;
  }
  std::signal(SIGALRM, [](int) { siglongjmp(before_the_call, 1); });
  // More jumps than there is room for open calls.
  static int jumps = 0;  // not on the stack, which the jump restores
  for (; jumps < 40; ++jumps) {
    if (sigsetjmp(before_the_call, 1) == 0) {
      cudaDeviceSynchronize();
      std::puts("returned");
    }
    if (const int changed = words_changed(function); changed != 0) {
      std::printf("%d words changed\n", changed);
      return 1;
    }
    // Called from the same place as the abandoned call, so it is not inside that one.
    cudaPeekAtLastError();
  }
  if (DRIVER(cuCtxSynchronize)() != CUDA_SUCCESS) return 4;
  std::puts("done");
  return 0;
}
