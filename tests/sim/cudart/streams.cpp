// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The runtime's calls on streams.
#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/impl.h"

namespace inject::sim::rt::impl {

cudaError_t cudaStreamCreate(cudaStream_t* pStream) {
  return from_driver(drv::cuStreamCreate(pStream, CU_STREAM_DEFAULT));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  return from_driver(drv::cuStreamCreate(pStream, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int priority) {
  return from_driver(drv::cuStreamCreateWithPriority(pStream, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return from_driver(drv::cuStreamDestroy_v2(driver_stream(stream)));
}

cudaError_t cudaStreamSynchronize(bool per_thread, cudaStream_t stream) {
  return from_driver(drv::cuStreamSynchronize(per_thread, driver_stream(stream)));
}

cudaError_t cudaStreamQuery(bool per_thread, cudaStream_t stream) {
  return from_driver(drv::cuStreamQuery(per_thread, driver_stream(stream)));
}

cudaError_t cudaStreamWaitEvent(bool per_thread, cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return from_driver(drv::cuStreamWaitEvent(per_thread, driver_stream(stream), event, flags));
}

cudaError_t cudaStreamGetFlags(cudaStream_t hStream, unsigned int* flags) {
  return from_driver(drv::cuStreamGetFlags(driver_stream(hStream), flags));
}

cudaError_t cudaStreamGetPriority(cudaStream_t hStream, int* priority) {
  return from_driver(drv::cuStreamGetPriority(driver_stream(hStream), priority));
}

cudaError_t cudaStreamGetId(cudaStream_t hStream, unsigned long long* streamId) {
  return from_driver(drv::cuStreamGetId(driver_stream(hStream), streamId));
}

}  // namespace inject::sim::rt::impl
