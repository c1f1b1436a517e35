// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What every call of the runtime does: it counts, may fail on demand, is seen by CUPTI's subscriber, and
// leaves its error with the thread.
#pragma once

#include <cuda_runtime_api.h>
#include <cupti.h>

#include "tests/sim/core/base.h"
#include "tests/sim/core/device.h"
#include "tests/sim/core/trace.h"

namespace inject::sim::rt {

inline constexpr const char* kLibrary = SIM_CUDART_SONAME;

struct ThreadState {
  cudaError_t last_error = cudaSuccess;
  int device = 0;
};
ThreadState& this_thread();

/// Leaves the error with the thread.
cudaError_t keep(cudaError_t error);
/// The first call loads the driver, as the real runtime does, and initialises it.
cudaError_t initialise();
/// The thread's context becomes the device's primary context if it has none.
void need_context();
/// A device's primary context, created by the driver's call if need be.
sim::Context* retained_primary_context(int device);

enum class Needs { kNothing, kDriver, kContext };

template <class Body>
cudaError_t call(Function& function, const void* params, Needs needs, Body&& body,
                 const char* symbol = nullptr) {
  int fault = function.enter();
  if (needs != Needs::kNothing)
    if (cudaError_t error = initialise(); error != cudaSuccess) return keep(error);
  cudaError_t result = cudaSuccess;
  trace::ApiCall api(function, params, &result, symbol);
  if (fault != 0) {
    result = static_cast<cudaError_t>(fault);
  } else {
    if (needs == Needs::kContext) need_context();
    result = body();
  }
  return keep(result);
}

}  // namespace inject::sim::rt

#define RUNTIME_FUNCTION(name)                       \
  static constinit ::inject::sim::FunctionSlot slot; \
  ::inject::sim::Function& function =                \
      slot.get(::inject::sim::rt::kLibrary, #name, ::inject::sim::Domain::kRuntime)
