// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Copies.
#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/impl.h"
#include "tests/sim/cudart/registration.h"

namespace inject::sim::rt::impl {
namespace {

cudaError_t copy(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind, bool per_thread) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return from_driver(drv::cuMemcpyHtoD_v2(per_thread, address(dst), src, count));
    case cudaMemcpyDeviceToHost:
      return from_driver(drv::cuMemcpyDtoH_v2(per_thread, dst, address(src), count));
    case cudaMemcpyDeviceToDevice:
      return from_driver(drv::cuMemcpyDtoD_v2(per_thread, address(dst), address(src), count));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return from_driver(drv::cuMemcpy(per_thread, address(dst), address(src), count));
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t copy_async(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind,
                       cudaStream_t stream, bool per_thread) {
  CUstream on = driver_stream(stream);
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return from_driver(drv::cuMemcpyHtoDAsync_v2(per_thread, address(dst), src, count, on));
    case cudaMemcpyDeviceToHost:
      return from_driver(drv::cuMemcpyDtoHAsync_v2(per_thread, dst, address(src), count, on));
    case cudaMemcpyDeviceToDevice:
      return from_driver(drv::cuMemcpyDtoDAsync_v2(per_thread, address(dst), address(src), count, on));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return from_driver(drv::cuMemcpyAsync(per_thread, address(dst), address(src), count, on));
  }
  return cudaErrorInvalidMemcpyDirection;
}

CUDA_MEMCPY2D copy_2d(void* dst, std::size_t dpitch, const void* src, std::size_t spitch, std::size_t width,
                      std::size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = address(src);
  copy.dstDevice = address(dst);
  copy.srcPitch = spitch;
  copy.dstPitch = dpitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

cudaError_t part_of_variable(const void* symbol, std::size_t offset, std::size_t count, Variable& variable) {
  if (!find_variable(symbol, variable)) return cudaErrorInvalidSymbol;
  return offset + count <= variable.bytes ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t cudaMemcpy(bool per_thread, void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  return copy(dst, src, count, kind, per_thread);
}

cudaError_t cudaMemcpyAsync(bool per_thread, void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy_async(dst, src, count, kind, stream, per_thread);
}

cudaError_t cudaMemcpy2D(bool per_thread, void* dst, size_t dpitch, const void* src, size_t spitch,
                         size_t width, size_t height, cudaMemcpyKind) {
  CUDA_MEMCPY2D work = copy_2d(dst, dpitch, src, spitch, width, height);
  return from_driver(drv::cuMemcpy2DUnaligned_v2(per_thread, &work));
}

cudaError_t cudaMemcpy2DAsync(bool per_thread, void* dst, size_t dpitch, const void* src, size_t spitch,
                              size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  CUDA_MEMCPY2D work = copy_2d(dst, dpitch, src, spitch, width, height);
  return from_driver(drv::cuMemcpy2DAsync_v2(per_thread, &work, driver_stream(stream)));
}

cudaError_t cudaMemcpy3D(bool per_thread, const cudaMemcpy3DParms* p) {
  auto copy = copy_3d(*p);
  return from_driver(drv::cuMemcpy3D_v2(per_thread, &copy));
}

cudaError_t cudaMemcpy3DPeer(bool per_thread, const cudaMemcpy3DPeerParms* p) {
  auto copy = copy_3d(*p);
  return from_driver(drv::cuMemcpy3DPeer(per_thread, &copy));
}

cudaError_t cudaMemcpy3DAsync(bool per_thread, const cudaMemcpy3DParms* p, cudaStream_t stream) {
  auto copy = copy_3d(*p);
  return from_driver(drv::cuMemcpy3DAsync_v2(per_thread, &copy, driver_stream(stream)));
}

cudaError_t cudaMemcpy3DPeerAsync(bool per_thread, const cudaMemcpy3DPeerParms* p, cudaStream_t stream) {
  auto copy = copy_3d(*p);
  return from_driver(drv::cuMemcpy3DPeerAsync(per_thread, &copy, driver_stream(stream)));
}

cudaError_t cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice, size_t count) {
  return from_driver(drv::cuMemcpyPeer(address(dst), primary_context(dstDevice)->handle(), address(src),
                                       primary_context(srcDevice)->handle(), count));
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, size_t count,
                                cudaStream_t stream) {
  return from_driver(drv::cuMemcpyPeerAsync(address(dst), primary_context(dstDevice)->handle(), address(src),
                                            primary_context(srcDevice)->handle(), count,
                                            driver_stream(stream)));
}

cudaError_t cudaMemcpyToSymbol(bool per_thread, const void* symbol, const void* src, size_t count,
                               size_t offset, cudaMemcpyKind kind) {
  Variable variable;
  if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
  return copy(static_cast<std::byte*>(variable.device) + offset, src, count, kind, per_thread);
}

cudaError_t cudaMemcpyFromSymbol(bool per_thread, void* dst, const void* symbol, size_t count, size_t offset,
                                 cudaMemcpyKind kind) {
  Variable variable;
  if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
  return copy(dst, static_cast<const std::byte*>(variable.device) + offset, count, kind, per_thread);
}

cudaError_t cudaMemcpyToSymbolAsync(bool per_thread, const void* symbol, const void* src, size_t count,
                                    size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  Variable variable;
  if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
  return copy_async(static_cast<std::byte*>(variable.device) + offset, src, count, kind, stream, per_thread);
}

cudaError_t cudaMemcpyFromSymbolAsync(bool per_thread, void* dst, const void* symbol, size_t count,
                                      size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  Variable variable;
  if (cudaError_t error = part_of_variable(symbol, offset, count, variable)) return error;
  return copy_async(dst, static_cast<const std::byte*>(variable.device) + offset, count, kind, stream,
                    per_thread);
}

cudaError_t cudaGetSymbolAddress(void** devPtr, const void* symbol) {
  Variable variable;
  if (!find_variable(symbol, variable)) return cudaErrorInvalidSymbol;
  *devPtr = variable.device;
  return cudaSuccess;
}

cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
  Variable variable;
  if (!find_variable(symbol, variable)) return cudaErrorInvalidSymbol;
  *size = variable.bytes;
  return cudaSuccess;
}

}  // namespace inject::sim::rt::impl
