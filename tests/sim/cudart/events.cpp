// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The runtime's calls on events.
#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/impl.h"

namespace inject::sim::rt::impl {

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return from_driver(drv::cuEventCreate(event, CU_EVENT_DEFAULT));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return from_driver(drv::cuEventCreate(event, flags));
}

cudaError_t cudaEventRecord(bool per_thread, cudaEvent_t event, cudaStream_t stream) {
  return from_driver(drv::cuEventRecord(per_thread, event, driver_stream(stream)));
}

cudaError_t cudaEventRecordWithFlags(bool per_thread, cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return from_driver(drv::cuEventRecord(per_thread, event, driver_stream(stream)));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return from_driver(drv::cuEventQuery(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return from_driver(drv::cuEventSynchronize(event));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return from_driver(drv::cuEventElapsedTime_v2(ms, start, end));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return from_driver(drv::cuEventDestroy_v2(event));
}

}  // namespace inject::sim::rt::impl
