// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Memsets, of rows and planes.
#include "tests/sim/core/driver/arguments.h"
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv::impl {
namespace {

CUresult set(CUstream handle, bool per_thread, SetWork work, bool synchronous) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (synchronous && capture_forbids_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Stream* stream = find_stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  work.async = !synchronous;
  return enqueue(stream, work);  // not waited for, as on the device
}

}  // namespace

CUresult cuMemsetD8_v2(bool per_thread, CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return set(nullptr, per_thread, set_work(dstDevice, uc, 1, N), true);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return set(nullptr, false, set_work(dstDevice, us, 2, N), true);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return set(nullptr, false, set_work(dstDevice, ui, 4, N), true);
}

CUresult cuMemsetD8Async(bool per_thread, CUdeviceptr dstDevice, unsigned char uc, size_t N,
                         CUstream hStream) {
  return set(hStream, per_thread, set_work(dstDevice, uc, 1, N), false);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return set(hStream, false, set_work(dstDevice, us, 2, N), false);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return set(hStream, false, set_work(dstDevice, ui, 4, N), false);
}

CUresult cuMemsetD2D8_v2(bool per_thread, CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                         size_t Width, size_t Height) {
  SetWork work = set_work(dstDevice, uc, 1, Width);
  work.height = Height;
  work.pitch = dstPitch;
  return set(nullptr, per_thread, work, true);
}

CUresult cuMemsetD2D8Async(bool per_thread, CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                           size_t Width, size_t Height, CUstream hStream) {
  SetWork work = set_work(dstDevice, uc, 1, Width);
  work.height = Height;
  work.pitch = dstPitch;
  return set(hStream, per_thread, work, false);
}

}  // namespace inject::sim::drv::impl
