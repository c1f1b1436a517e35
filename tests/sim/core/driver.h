// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver API. libcuda.so.1 exports these under their names; the simulated runtime calls them, so that
// driver callbacks fire inside runtime calls as they do on the real one.
#pragma once

#include <cuda.h>
#include <cudaProfiler.h>

#include "tests/sim/arity.h"
#include "tests/sim/core/device.h"

// Exported by every driver for programs built against older headers, which alone declare them.
extern "C" {
CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev);
CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out, size_t* numDependencies_out);
}

namespace inject::sim::drv {

#define SIM_DRIVER(name, arity) decltype(::name) name;
#define SIM_DRIVER_TWINS(name, twin, arity) decltype(::name) name, twin;
#include "tests/sim/core/driver.def"

// A call with either default stream, for callers that are twins themselves.
#define SIM_DRIVER(name, arity)
#define SIM_DRIVER_TWINS(name, twin, arity)                                                  \
  inline CUresult name(bool per_thread, SIM_PARAMETERS_##arity(decltype(::name))) {          \
    return per_thread ? drv::twin(SIM_ARGUMENTS_##arity) : drv::name(SIM_ARGUMENTS_##arity); \
  }
#include "tests/sim/core/driver.def"

/// Not a vendor function: what cuInit and the first call of the runtime need. Loads the injection library.
CUresult initialise();
/// Not a vendor function either: NVML takes the lock that cuInit takes. `entered` is called with the lock
/// held and says whether NVML fails.
int initialise_nvml(int (*entered)());

/// A copy whose shape the vendor's arguments describe in other ways; the names and parameters are for the
/// callbacks.
CUresult copy_on_stream(Stream* stream, const CopyWork& work, bool synchronous);

}  // namespace inject::sim::drv
