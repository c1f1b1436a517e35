// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Copies, of rows, planes and boxes.
#include "tests/sim/core/driver/arguments.h"
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv {

CUresult copy_on_stream(Stream* stream, const CopyWork& work, bool synchronous) {
  if (synchronous && capture_forbids_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (work.bytes() != 0 && (work.target == nullptr || work.source == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  CopyWork copy = work;
  copy.async = !synchronous;
  OpRef op;
  CUresult result = enqueue(stream, copy, &op);
  if (result != CUDA_SUCCESS || op == nullptr) return result;
  // A copy out of the device into pageable memory has arrived when the call returns, asynchronous or not.
  Allocation found;
  bool pageable_target = !find_allocation(work.target, found);
  if (synchronous || pageable_target) timeline::wait(op);
  return result;
}

namespace impl {
namespace {

CUresult copy(CUstream handle, bool per_thread, void* target, const void* source, std::size_t bytes,
              bool synchronous) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CopyWork work;
  work.target = target;
  work.source = source;
  work.width = bytes;
  return copy_on_stream(stream, work, synchronous);
}

// A plane or a box.
template <class Params>
CUresult copy_shape(CUstream handle, bool per_thread, const Params* params, bool synchronous) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (params == nullptr || params->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
      params->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = find_stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return copy_on_stream(stream, copy_work(*params), synchronous);
}

}  // namespace

CUresult cuMemcpy(bool per_thread, CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy(nullptr, per_thread, pointer(dst), pointer(src), ByteCount, true);
}

CUresult cuMemcpyHtoD_v2(bool per_thread, CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return copy(nullptr, per_thread, pointer(dstDevice), srcHost, ByteCount, true);
}

CUresult cuMemcpyDtoH_v2(bool per_thread, void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy(nullptr, per_thread, dstHost, pointer(srcDevice), ByteCount, true);
}

CUresult cuMemcpyDtoD_v2(bool per_thread, CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy(nullptr, per_thread, pointer(dstDevice), pointer(srcDevice), ByteCount, true);
}

CUresult cuMemcpyAsync(bool per_thread, CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
                       CUstream hStream) {
  return copy(hStream, per_thread, pointer(dst), pointer(src), ByteCount, false);
}

CUresult cuMemcpyHtoDAsync_v2(bool per_thread, CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return copy(hStream, per_thread, pointer(dstDevice), srcHost, ByteCount, false);
}

CUresult cuMemcpyDtoHAsync_v2(bool per_thread, void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy(hStream, per_thread, dstHost, pointer(srcDevice), ByteCount, false);
}

CUresult cuMemcpyDtoDAsync_v2(bool per_thread, CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy(hStream, per_thread, pointer(dstDevice), pointer(srcDevice), ByteCount, false);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  return copy_shape(nullptr, false, pCopy, true);
}

CUresult cuMemcpy2DUnaligned_v2(bool per_thread, const CUDA_MEMCPY2D* pCopy) {
  return copy_shape(nullptr, per_thread, pCopy, true);
}

CUresult cuMemcpy2DAsync_v2(bool per_thread, const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return copy_shape(hStream, per_thread, pCopy, false);
}

CUresult cuMemcpy3D_v2(bool per_thread, const CUDA_MEMCPY3D* pCopy) {
  return copy_shape(nullptr, per_thread, pCopy, true);
}

CUresult cuMemcpy3DAsync_v2(bool per_thread, const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return copy_shape(hStream, per_thread, pCopy, false);
}

CUresult cuMemcpy3DPeer(bool per_thread, const CUDA_MEMCPY3D_PEER* pCopy) {
  return copy_shape(nullptr, per_thread, pCopy, true);
}

CUresult cuMemcpy3DPeerAsync(bool per_thread, const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return copy_shape(hStream, per_thread, pCopy, false);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext, size_t ByteCount) {
  return copy(nullptr, false, pointer(dstDevice), pointer(srcDevice), ByteCount, true);
}

CUresult cuMemcpyPeerAsync(bool per_thread, CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice,
                           CUcontext, size_t ByteCount, CUstream hStream) {
  return copy(hStream, per_thread, pointer(dstDevice), pointer(srcDevice), ByteCount, false);
}

}  // namespace impl
}  // namespace inject::sim::drv
