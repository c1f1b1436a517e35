// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The capture of streams into graphs.
#include <mutex>
#include <utility>

#include "tests/sim/core/driver/impl.h"
#include "tests/sim/core/trace.h"

namespace inject::sim::drv::impl {
namespace {

CUstreamCaptureStatus status_of(const Stream& stream) {
  return stream.capture != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult capture_status(CUstream handle, bool per_thread, CUstreamCaptureStatus* status) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const Stream* stream = find_stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(world());
  *status = status_of(*stream);
  return CUDA_SUCCESS;
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, size_t* count) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const Stream* stream = find_stream(handle, false);
  if (stream == nullptr) {
    trace::note_misuse();  // the real one reads what the handle points to
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const std::lock_guard lock(world());
  *status = status_of(*stream);
  if (*status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_SUCCESS;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = stream->capture->graph->handle();
  if (dependencies != nullptr)
    *dependencies = reinterpret_cast<const CUgraphNode*>(stream->capture_tail.data());
  if (count != nullptr) *count = stream->capture_tail.size();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuStreamIsCapturing(bool per_thread, CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return capture_status(hStream, per_thread, captureStatus);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out, size_t* numDependencies_out) {
  return capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out, const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  if (edgeData_out != nullptr) *edgeData_out = nullptr;
  return capture_info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode mode_of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(*mode, mode_of_thread);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(bool per_thread, CUstream hStream, CUstreamCaptureMode mode) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(hStream, per_thread);
  return stream != nullptr ? begin_capture(stream, mode) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamEndCapture(bool per_thread, CUstream hStream, CUgraph* phGraph) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(hStream, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Graph* captured = nullptr;
  CUresult result = end_capture(stream, &captured);
  if (phGraph != nullptr) *phGraph = captured != nullptr ? captured->handle() : nullptr;
  return result;
}

}  // namespace inject::sim::drv::impl
