// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The program of the integration tests registers kernels that have a name but no code, which the simulated
// CUDA accepts and the real one does not. Here the linker's --wrap redirects its launches to the kernels of
// the same names in kernels.cu.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "tests/gpu/contract/kernels.h"
#include "tests/sim/cudasim.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" {
void** __real___cudaRegisterFatBinary(void* binary);
void __real___cudaRegisterFatBinaryEnd(void** handle);
void __real___cudaRegisterFunction(void** handle, const char* stub, char* device_stub, const char* name,
                                   int limit, uint3* thread, uint3* block, dim3* block_size, dim3* grid_size,
                                   int* warp);
cudaError_t __real___cudaGetKernel(cudaKernel_t* kernel, const void* stub);
cudaError_t __real_cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments,
                                    std::size_t shared, cudaStream_t stream);
}

namespace {

std::mutex mutex;

// Maps the program's own stubs to those of kernels.cu.
std::map<const void*, const void*>& stubs() {
  static auto* kept = new std::map<const void*, const void*>;
  return *kept;
}

const void* real_stub(const void* stub) {
  const std::lock_guard lock(mutex);
  const auto found = stubs().find(stub);
  return found == stubs().end() ? stub : found->second;
}

[[noreturn]] void only_simulated(const char* function) {
  std::fprintf(stderr, "script: %s needs the simulated CUDA\n", function);
  std::_Exit(99);
}

}  // namespace

extern "C" {

// A null binary or handle is the program's; others are from kernels.cu.
void** __wrap___cudaRegisterFatBinary(void* binary) {
  return binary == nullptr ? nullptr : __real___cudaRegisterFatBinary(binary);
}

void __wrap___cudaRegisterFatBinaryEnd(void** handle) {
  if (handle != nullptr) __real___cudaRegisterFatBinaryEnd(handle);
}

void __wrap___cudaRegisterFunction(void** handle, const char* stub, char* device_stub, const char* name,
                                   int limit, uint3* thread, uint3* block, dim3* block_size, dim3* grid_size,
                                   int* warp) {
  if (handle != nullptr) {
    __real___cudaRegisterFunction(handle, stub, device_stub, name, limit, thread, block, block_size,
                                  grid_size, warp);
    return;
  }
  // "_Z6insidev" is the kernel `inside`.
  std::string plain(name);
  plain = plain.substr(plain.find_first_not_of("0123456789", 2));
  plain.pop_back();
  const void* real = contract::stub_of(plain.c_str());
  if (real == nullptr) {
    std::fprintf(stderr, "script: kernels.cu has no kernel %s\n", plain.c_str());
    std::_Exit(99);
  }
  const std::lock_guard lock(mutex);
  stubs()[stub] = real;
}

cudaError_t __wrap___cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  return __real___cudaGetKernel(kernel, real_stub(stub));
}

cudaError_t __wrap_cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments,
                                    std::size_t shared, cudaStream_t stream) {
  return __real_cudaLaunchKernel(real_stub(stub), grid, block, arguments, shared, stream);
}

// The program's calls to libcudasim, which a machine with a GPU does not have. Hidden, so that the simulation
// does not call them.
#pragma GCC visibility push(hidden)
int cudasim_set_fault(const char*, const char*) {
  only_simulated("fault");
}
void cudasim_set_kernel_duration(const char*, uint64_t) {
  only_simulated("duration");
}
uint64_t cudasim_call_count(const char*) {
  only_simulated("until_calls");
}
uint64_t cudasim_records_pending(void) {
  only_simulated("until_delivered");
}
#pragma GCC visibility pop
}
// NOLINTEND(bugprone-reserved-identifier)
