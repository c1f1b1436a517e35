// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver's calls that allocate, register and free memory, or ask about it.
#include "tests/sim/core/driver/arguments.h"
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv::impl {
namespace {

CUresult allocate_to(CUdeviceptr* out, std::size_t bytes, MemoryType type) {
  Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory = allocate(bytes, type, context);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = address(memory);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *total = kDeviceMemory;
  *free = kDeviceMemory - used_bytes(current_context()->device);
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  if (capture_forbids_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return allocate_to(dptr, bytesize, MemoryType::kDevice);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int) {
  *pPitch = (WidthInBytes + 511) / 512 * 512;
  return allocate_to(dptr, *pPitch * Height, MemoryType::kDevice);
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int) {
  return allocate_to(dptr, bytesize, MemoryType::kManaged);
}

CUresult cuMemAllocAsync(bool, CUdeviceptr* dptr, size_t bytesize, CUstream) {
  return allocate_to(dptr, bytesize, MemoryType::kDevice);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  if (dptr == 0) return CUDA_SUCCESS;
  if (current_context() != nullptr && !capture_forbids_unsafe_call())
    timeline::wait(context_tail(current_context()));  // a free waits for the device, as on the real one
  return release(pointer(dptr), MemoryType::kDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(bool, CUdeviceptr dptr, CUstream) {
  return release(pointer(dptr), MemoryType::kDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return allocate_to(reinterpret_cast<CUdeviceptr*>(pp), bytesize, MemoryType::kPinned);
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int) {
  return allocate_to(reinterpret_cast<CUdeviceptr*>(pp), bytesize, MemoryType::kPinned);
}

CUresult cuMemFreeHost(void* p) {
  if (p == nullptr) return CUDA_SUCCESS;
  return release(p, MemoryType::kPinned) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return register_host(p, bytesize, current_context()) ? CUDA_SUCCESS
                                                       : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* p) {
  return unregister_host(p) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int) {
  *pdptr = address(p);
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Allocation found;
  if (!find_allocation(pointer(ptr), found)) return CUDA_ERROR_INVALID_VALUE;
  bool host = found.type == MemoryType::kPinned;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = found.context->handle();
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<CUmemorytype*>(data) = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = found.device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(data) = found.type == MemoryType::kManaged ? 1 : 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace inject::sim::drv::impl
