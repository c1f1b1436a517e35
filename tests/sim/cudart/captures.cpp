// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The capture of streams into graphs.
#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/impl.h"

namespace inject::sim::rt::impl {

cudaError_t cudaStreamBeginCapture(bool per_thread, cudaStream_t stream, cudaStreamCaptureMode mode) {
  return from_driver(drv::cuStreamBeginCapture_v2(per_thread, driver_stream(stream),
                                                  static_cast<CUstreamCaptureMode>(mode)));
}

cudaError_t cudaStreamEndCapture(bool per_thread, cudaStream_t stream, cudaGraph_t* pGraph) {
  return from_driver(drv::cuStreamEndCapture(per_thread, driver_stream(stream), pGraph));
}

cudaError_t cudaStreamIsCapturing(bool per_thread, cudaStream_t stream,
                                  cudaStreamCaptureStatus* pCaptureStatus) {
  return from_driver(drv::cuStreamIsCapturing(per_thread, driver_stream(stream),
                                              reinterpret_cast<CUstreamCaptureStatus*>(pCaptureStatus)));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return from_driver(drv::cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
}

#if SIM_CUDART_MAJOR >= 13
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* captureStatus_out,
                                     unsigned long long* id_out, cudaGraph_t* graph_out,
                                     const cudaGraphNode_t** dependencies_out,
                                     const cudaGraphEdgeData** edgeData_out, size_t* numDependencies_out) {
  cuuint64_t id = 0;
  CUresult result = drv::cuStreamGetCaptureInfo_v3(
      driver_stream(stream), reinterpret_cast<CUstreamCaptureStatus*>(captureStatus_out), &id, graph_out,
      dependencies_out, reinterpret_cast<const CUgraphEdgeData**>(edgeData_out), numDependencies_out);
  if (id_out != nullptr) *id_out = id;
  return from_driver(result);
}
#endif

}  // namespace inject::sim::rt::impl
