// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Errors: the last one of each thread, their names and texts. CUPTI sees none of these calls.
#include "tests/sim/core/driver.h"
#include "tests/sim/cudart/call.h"

using namespace inject::sim;
using namespace inject::sim::rt;

extern "C" {

cudaError_t cudaGetLastError(void) {
  RUNTIME_FUNCTION(cudaGetLastError);
  function.enter();
  cudaError_t error = this_thread().last_error;
  this_thread().last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  RUNTIME_FUNCTION(cudaPeekAtLastError);
  function.enter();
  return this_thread().last_error;
}

const char* cudaGetErrorString(cudaError_t error) {
  RUNTIME_FUNCTION(cudaGetErrorString);
  function.enter();
  const char* text = nullptr;
  drv::cuGetErrorString(static_cast<CUresult>(error), &text);
  return text;
}

const char* cudaGetErrorName(cudaError_t error) {
  RUNTIME_FUNCTION(cudaGetErrorName);
  function.enter();
  const char* text = nullptr;
  drv::cuGetErrorName(static_cast<CUresult>(error), &text);
  return text;
}
}
