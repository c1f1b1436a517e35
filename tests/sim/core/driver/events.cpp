// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver's calls on events.
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv::impl {

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *phEvent = reinterpret_cast<CUevent>(create_event(current_context(), Flags));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  Event* event = find_event(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  destroy_event(event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(bool per_thread, CUevent hEvent, CUstream hStream) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Event* event = find_event(hEvent);
  Stream* stream = find_stream(hStream, per_thread);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return record_event(event, stream);
}

CUresult cuEventQuery(CUevent hEvent) {
  Event* event = find_event(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return event->op == nullptr || event->op->ended_by(now_ns()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent hEvent) {
  Event* event = find_event(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  timeline::wait(event->op);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  Event* start = find_event(hStart);
  Event* end = find_event(hEnd);
  if (start == nullptr || end == nullptr || start->op == nullptr || end->op == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  Nanoseconds now = now_ns();
  if (!start->op->ended_by(now) || !end->op->ended_by(now)) return CUDA_ERROR_NOT_READY;
  auto elapsed = static_cast<std::int64_t>(end->op->end.load() - start->op->end.load());
  *pMilliseconds = static_cast<float>(static_cast<double>(elapsed) * 1e-6);
  return CUDA_SUCCESS;
}

}  // namespace inject::sim::drv::impl
