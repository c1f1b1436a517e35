// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Where in the program each kernel of a CUDA graph was captured (docs/code.md). Captures are rare, and mostly
// before any window, so CUPTI sees nothing of them; hooks do. Before and after each call that may have been
// captured, the driver is asked which nodes of the graph the stream's next node will wait for: the nodes that
// the call added are on the paths from the former to the latter. Their types are read when the capture ends.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace inject {

/// Finds what is asked of the driver. Not before it is loaded; no dl* call.
void find_graph_functions() noexcept;

// What the program has done, successfully.
void capture_began(CUstream stream) noexcept;
/// This one also where it was not. `graph`: null for the one that was captured into.
void capture_ended(CUstream stream, bool successfully, CUgraph graph) noexcept;
void graph_copied(CUgraph graph, CUgraph original) noexcept;
/// Also where one is updated.
void graph_instantiated(CUgraphExec executable, CUgraph graph) noexcept;
// … or is about to do.
void graph_destroyed(CUgraph graph) noexcept;
void executable_destroyed(CUgraphExec executable) noexcept;

/// What is captured into a stream next waits for these nodes.
struct CaptureTail {
  static constexpr std::uint32_t kMost = 16;
  CUgraph graph = nullptr;  ///< null: the stream is not captured, or waits for more nodes
  std::uint32_t count = 0;
  std::array<CUgraphNode, kMost> nodes;
};

/// A call of the program's while it captures (kControlCapture), before and after it is made. Where it
/// launches into a stream that is captured, its nodes are in the place that the thread is at.
class CapturableCall {
 public:
  /// `stream`: that it has as an argument; `launched`: a graph that it launches.
  explicit CapturableCall(CUstream stream, CUgraphExec launched = nullptr) noexcept;
  void made() noexcept;

 private:
  CUstream stream_;
  CUgraphExec launched_;
  CaptureTail before_;
};

}  // namespace inject
