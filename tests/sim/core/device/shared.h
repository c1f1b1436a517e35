// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the parts of the devices have from one another and nobody else may call: not exported from
// libcudasim.so. The caller holds world(), but for capture_node().
#pragma once

#include "tests/sim/core/device.h"

#pragma GCC visibility push(hidden)
namespace inject::sim::internal {

/// Those that are alive.
const std::set<Context*>& contexts();
void release_memory_of(Context* context);

/// What work that is submitted to the stream at `now` has to wait for.
std::vector<OpRef> dependencies(const Stream& stream, Nanoseconds now);

/// A new node of the graph that the stream is captured into; null if it is not captured.
Node* capture_node(Stream* stream, CUgraphNodeType type);

/// The graph is being launched: cuptiFinalize breaks it if CUPTI records kernels now.
void note_graph_launch(GraphExec& graph);

}  // namespace inject::sim::internal
#pragma GCC visibility pop
