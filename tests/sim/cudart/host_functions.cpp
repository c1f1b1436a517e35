// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Functions of the program that a stream calls.
#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/impl.h"

namespace inject::sim::rt::impl {

cudaError_t cudaLaunchHostFunc(bool per_thread, cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return from_driver(drv::cuLaunchHostFunc(per_thread, driver_stream(stream), fn, userData));
}

cudaError_t cudaStreamAddCallback(bool per_thread, cudaStream_t stream, cudaStreamCallback_t callback,
                                  void* userData, unsigned int flags) {
  return from_driver(drv::cuStreamAddCallback(per_thread, driver_stream(stream),
                                              reinterpret_cast<CUstreamCallback>(callback), userData, flags));
}

}  // namespace inject::sim::rt::impl
