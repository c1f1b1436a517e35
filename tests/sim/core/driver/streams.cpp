// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver's calls on streams.
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv::impl {

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *phStream = create_stream(current_context(), Flags, 0)->handle();
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *phStream = create_stream(current_context(), flags, priority)->handle();
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  Stream* stream = find_stream(hStream, false);
  if (stream == nullptr || stream->legacy) return CUDA_ERROR_INVALID_HANDLE;
  destroy_stream(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(bool per_thread, CUstream hStream) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(hStream, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr || capture_forbids_unsafe_call())
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  timeline::wait(stream_tail(stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(bool per_thread, CUstream hStream) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(hStream, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return stream_tail(stream)->ended_by(now_ns()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitEvent(bool per_thread, CUstream hStream, CUevent hEvent, unsigned int) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(hStream, per_thread);
  Event* event = find_event(hEvent);
  if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return wait_event(stream, event);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  Stream* stream = find_stream(hStream, false);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  Stream* stream = find_stream(hStream, false);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  Stream* stream = find_stream(hStream, false);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pctx = stream->context->handle();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  Stream* stream = find_stream(hStream, false);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *streamId = stream->id;
  return CUDA_SUCCESS;
}

}  // namespace inject::sim::drv::impl
