// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver API. libcuda.so.1 exports these under their names; the simulated runtime calls them, so that
// driver callbacks fire inside runtime calls as they do on the real one.
#pragma once

#include <cuda.h>
#include <cudaProfiler.h>

#include "tests/sim/core/device.h"

// Exported by every driver for programs built against older headers, which alone declare them.
extern "C" {
CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev);
CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out, size_t* numDependencies_out);
}

namespace inject::sim::drv {

#define SIM_DRIVER(name, declared_as, arity) decltype(::declared_as) name;
#include "tests/sim/core/driver.def"

/// Not a vendor function: what cuInit and the first call of the runtime need. Loads the injection library.
CUresult initialise();

/// A copy whose shape the vendor's arguments describe in other ways; the names and parameters are for the
/// callbacks.
CUresult copy_on_stream(Stream* stream, const CopyWork& work, bool synchronous);

}  // namespace inject::sim::drv
