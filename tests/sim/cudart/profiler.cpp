// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The calls that bracket what a program wants profiled.
#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/impl.h"

namespace inject::sim::rt::impl {

cudaError_t cudaProfilerStart() {
  return from_driver(drv::cuProfilerStart());
}

cudaError_t cudaProfilerStop() {
  return from_driver(drv::cuProfilerStop());
}

}  // namespace inject::sim::rt::impl
