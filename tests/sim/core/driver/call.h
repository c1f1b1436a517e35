// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What every driver call does: it counts, fails on demand, and is seen by the subscriber.
#pragma once

#include <cupti.h>

#include "tests/sim/core/driver.h"
#include "tests/sim/core/trace.h"

#pragma GCC visibility push(hidden)
namespace inject::sim::drv::impl {

inline constexpr const char* kLibrary = "libcuda.so.1";

bool is_initialised();

/// `params`: the structure that the vendor has for the call's parameters, or null. `symbol`: the kernel that
/// it launches, or null. `needs_init`: it fails before cuInit, and once a context is left with an error.
template <class Body>
CUresult call(Function& function, const void* params, const char* symbol, bool needs_init, Body&& body) {
  int fault = function.enter();
  if (needs_init && !is_initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (in_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
  CUresult result = CUDA_SUCCESS;
  trace::ApiCall api(function, params, &result, symbol);
  result = fault != 0 ? static_cast<CUresult>(fault) : body();
  if (result == CUDA_SUCCESS && needs_init) result = sticky_error();
  return result;
}

}  // namespace inject::sim::drv::impl
#pragma GCC visibility pop

#define DRIVER_FUNCTION(name)                        \
  static constinit ::inject::sim::FunctionSlot slot; \
  ::inject::sim::Function& function =                \
      slot.get(::inject::sim::drv::impl::kLibrary, #name, ::inject::sim::Domain::kDriver)
