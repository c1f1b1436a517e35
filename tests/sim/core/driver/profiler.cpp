// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Seen on hardware: CUPTI reports the profiler calls twice, one inside the other.
#include "tests/sim/core/driver/call.h"

namespace inject::sim::drv {

namespace {

CUresult report_twice(Function& function) {
  return impl::call(function, nullptr, nullptr, true, [&] {
    CUresult result = CUDA_SUCCESS;
    trace::ApiCall again(function, nullptr, &result);
    return result;
  });
}

}  // namespace

CUresult cuProfilerStart() {
  DRIVER_FUNCTION(cuProfilerStart);
  return report_twice(function);
}

CUresult cuProfilerStop() {
  DRIVER_FUNCTION(cuProfilerStop);
  return report_twice(function);
}

}  // namespace inject::sim::drv
