// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the simulated cuBLAS, cuBLASLt, cuDNN and NCCL launch with. The vendor's carry the runtime inside
// them: CUPTI sees their runtime calls, but no symbol is called that a preloaded library could take over.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace inject::sim::library {

/// Launches a kernel by that name on the stream of the current context (the device's primary one if there is
/// none). Returns 0 or a CUDA error.
int launch(const char* kernel, unsigned grid, unsigned block, CUstream stream);

/// Adds the kernel to the graph as a node of its own. Returns 0 or a CUDA error.
int add_to_graph(const char* kernel, unsigned grid, unsigned block, CUgraph graph);

}  // namespace inject::sim::library
