// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Memsets.
#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/impl.h"

namespace inject::sim::rt::impl {

cudaError_t cudaMemset(bool per_thread, void* devPtr, int value, size_t count) {
  return from_driver(
      drv::cuMemsetD8_v2(per_thread, address(devPtr), static_cast<unsigned char>(value), count));
}

cudaError_t cudaMemsetAsync(bool per_thread, void* devPtr, int value, size_t count, cudaStream_t stream) {
  return from_driver(drv::cuMemsetD8Async(per_thread, address(devPtr), static_cast<unsigned char>(value),
                                          count, driver_stream(stream)));
}

cudaError_t cudaMemset2D(bool per_thread, void* devPtr, size_t pitch, int value, size_t width,
                         size_t height) {
  return from_driver(drv::cuMemsetD2D8_v2(per_thread, address(devPtr), pitch,
                                          static_cast<unsigned char>(value), width, height));
}

cudaError_t cudaMemset2DAsync(bool per_thread, void* devPtr, size_t pitch, int value, size_t width,
                              size_t height, cudaStream_t stream) {
  return from_driver(drv::cuMemsetD2D8Async(per_thread, address(devPtr), pitch,
                                            static_cast<unsigned char>(value), width, height,
                                            driver_stream(stream)));
}

// A box whose slices follow one another: rows of one plane.
cudaError_t cudaMemset3D(bool per_thread, cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent) {
  return from_driver(drv::cuMemsetD2D8_v2(per_thread, address(pitchedDevPtr.ptr), pitchedDevPtr.pitch,
                                          static_cast<unsigned char>(value), extent.width,
                                          extent.height * extent.depth));
}

// A box whose slices follow one another: rows of one plane.
cudaError_t cudaMemset3DAsync(bool per_thread, cudaPitchedPtr pitchedDevPtr, int value, cudaExtent extent,
                              cudaStream_t stream) {
  return from_driver(drv::cuMemsetD2D8Async(per_thread, address(pitchedDevPtr.ptr), pitchedDevPtr.pitch,
                                            static_cast<unsigned char>(value), extent.width,
                                            extent.height * extent.depth, driver_stream(stream)));
}

}  // namespace inject::sim::rt::impl
