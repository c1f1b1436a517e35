// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Another preloaded library that has names of CUDA's, as torch_memory_saver does: passes calls on to the next
// library, and says at the end how many it has seen.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdio>

namespace {

struct Counts {
  std::atomic<int> allocations{0};
  std::atomic<int> frees{0};
  ~Counts() { std::fprintf(stderr, "interposer: %d %d\n", allocations.load(), frees.load()); }
} counts;

template <typename F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cudaMalloc(void** address, std::size_t bytes) {
  ++counts.allocations;
  return next<int(void**, std::size_t)>("cudaMalloc")(address, bytes);  // by a jump
}

EXPORT int cudaFree(void* address) {
  const int status = next<int(void*)>("cudaFree")(address);
  ++counts.frees;
  return status;
}
