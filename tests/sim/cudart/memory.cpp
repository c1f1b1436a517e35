// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The runtime's calls that allocate, register and free memory, or ask about it.
#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/impl.h"

namespace inject::sim::rt::impl {

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  return from_driver(drv::cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(devPtr), size));
}

cudaError_t cudaMallocPitch(void** devPtr, size_t* pitch, size_t width, size_t height) {
  return from_driver(
      drv::cuMemAllocPitch_v2(reinterpret_cast<CUdeviceptr*>(devPtr), pitch, width, height, 4));
}

cudaError_t cudaMallocManaged(void** devPtr, size_t size, unsigned int flags) {
  return from_driver(drv::cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(devPtr), size, flags));
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
  return from_driver(drv::cuMemAllocHost_v2(ptr, size));
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int flags) {
  return from_driver(drv::cuMemHostAlloc(pHost, size, flags));
}

cudaError_t cudaMallocAsync(bool per_thread, void** devPtr, size_t size, cudaStream_t hStream) {
  return from_driver(
      drv::cuMemAllocAsync(per_thread, reinterpret_cast<CUdeviceptr*>(devPtr), size, driver_stream(hStream)));
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* pitchedDevPtr, cudaExtent extent) {
  CUdeviceptr memory = 0;
  std::size_t pitch = 0;
  cudaError_t error =
      from_driver(drv::cuMemAllocPitch_v2(&memory, &pitch, extent.width, extent.height * extent.depth, 4));
  if (error == cudaSuccess)
    *pitchedDevPtr = {reinterpret_cast<void*>(memory), pitch, extent.width, extent.height};
  return error;
}

// A pool is a name: what is allocated from one is allocated as any other.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int device) {
  if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
  *memPool = reinterpret_cast<cudaMemPool_t>(primary_context(device));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* memPool, int device) {
  if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
  *memPool = reinterpret_cast<cudaMemPool_t>(primary_context(device));
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(bool per_thread, void** ptr, size_t size, cudaMemPool_t,
                                    cudaStream_t stream) {
  return from_driver(
      drv::cuMemAllocAsync(per_thread, reinterpret_cast<CUdeviceptr*>(ptr), size, driver_stream(stream)));
}

cudaError_t cudaFree(void* devPtr) {
  return from_driver(drv::cuMemFree_v2(address(devPtr)));
}

cudaError_t cudaFreeAsync(bool per_thread, void* devPtr, cudaStream_t hStream) {
  return from_driver(drv::cuMemFreeAsync(per_thread, address(devPtr), driver_stream(hStream)));
}

cudaError_t cudaFreeHost(void* ptr) {
  return from_driver(drv::cuMemFreeHost(ptr));
}

cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int flags) {
  return from_driver(drv::cuMemHostRegister_v2(ptr, size, flags));
}

cudaError_t cudaHostUnregister(void* ptr) {
  return from_driver(drv::cuMemHostUnregister(ptr));
}

cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags) {
  return from_driver(
      drv::cuMemHostGetDevicePointer_v2(reinterpret_cast<CUdeviceptr*>(pDevice), pHost, flags));
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return from_driver(drv::cuMemGetInfo_v2(free, total));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  *attributes = {};
  Allocation found;
  if (!find_allocation(ptr, found)) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;
    return cudaSuccess;
  }
  attributes->type = found.type == MemoryType::kPinned    ? cudaMemoryTypeHost
                     : found.type == MemoryType::kManaged ? cudaMemoryTypeManaged
                                                          : cudaMemoryTypeDevice;
  attributes->device = found.device;
  attributes->devicePointer = const_cast<void*>(ptr);
  attributes->hostPointer = found.type == MemoryType::kDevice ? nullptr : const_cast<void*>(ptr);
  return cudaSuccess;
}

}  // namespace inject::sim::rt::impl
