// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the program's kernels are, and how many of their blocks fit.
#include <algorithm>

#include "tests/sim/cudart/impl.h"
#include "tests/sim/cudart/registration.h"

namespace inject::sim::rt::impl {
namespace {

// On a multiprocessor, of a kernel with 32 registers a thread and no static shared memory, as all kernels
// here are: the 64 warps fit with their registers, and a block's shared memory, with 1 KiB for the driver,
// comes in units of 128 bytes.
int resident_blocks(int block_size, std::size_t shared_bytes) {
  if (block_size > 1024 || shared_bytes > (227 << 10)) return 0;
  const int by_warps = 64 / ((block_size + 31) / 32);
  const std::size_t shared = (shared_bytes + (1 << 10) + 127) / 128 * 128;
  return std::min({32, by_warps, static_cast<int>((228 << 10) / shared)});
}

}  // namespace

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attr, const void* func) {
  if (find_kernel(func) == nullptr) return cudaErrorInvalidDeviceFunction;
  *attr = {};
  attr->maxThreadsPerBlock = 1024;
  attr->numRegs = 32;
  attr->binaryVersion = attr->ptxVersion = 90;
  return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char** name, const void* func) {
  Kernel* kernel = find_kernel(func);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  *name = kernel->name;
  return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t* kernelPtr, const void* entryFuncAddr) {
  Kernel* kernel = find_kernel(entryFuncAddr);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  *kernelPtr = reinterpret_cast<cudaKernel_t>(kernel);
  return cudaSuccess;
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* functionPtr, const void* symbolPtr) {
  Kernel* kernel = find_kernel(symbolPtr);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  *functionPtr = reinterpret_cast<cudaFunction_t>(kernel);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, const void*, int blockSize,
                                                          size_t dynamicSMemSize) {
  if (blockSize <= 0) return cudaErrorInvalidValue;
  *numBlocks = resident_blocks(blockSize, dynamicSMemSize);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, const void*, int blockSize,
                                                                   size_t dynamicSMemSize, unsigned int) {
  if (blockSize <= 0) return cudaErrorInvalidValue;
  *numBlocks = resident_blocks(blockSize, dynamicSMemSize);
  return cudaSuccess;
}

}  // namespace inject::sim::rt::impl
