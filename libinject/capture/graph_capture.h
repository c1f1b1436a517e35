// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Where in the program each kernel of a CUDA graph was captured (docs/code.md). Captures are rare, and mostly
// happen before any window, so CUPTI does not see them; hooks do. Before and after each call that may have
// been captured, the driver is queried for the nodes on which the stream's next node will depend: the nodes
// that the call added are on the paths from the former to the latter. Their types are read when the capture
// ends.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace inject {

/// Looks up the driver functions needed. Not before the driver is loaded; no dl* call.
void find_graph_functions() noexcept;

// The program has done this, successfully.
void capture_began(CUstream stream) noexcept;
/// Called also if it failed. `graph`: null for the one that was captured into.
void capture_ended(CUstream stream, bool successfully, CUgraph graph) noexcept;
void graph_copied(CUgraph graph, CUgraph original) noexcept;
/// Also called when one is updated.
void graph_instantiated(CUgraphExec executable, CUgraph graph) noexcept;
// The program is about to do this.
void graph_destroyed(CUgraph graph) noexcept;
void executable_destroyed(CUgraphExec executable) noexcept;
void stream_destroyed(CUstream stream) noexcept;
/// The program is about to reset a device.
void streams_destroyed() noexcept;

/// The nodes on which the next work captured into a stream will depend.
struct CaptureTail {
  static constexpr std::uint32_t kMost = 16;
  CUgraph graph = nullptr;  ///< null: the stream is not being captured, or depends on more nodes
  std::uint32_t count = 0;
  std::array<CUgraphNode, kMost> nodes;
};

/// A program call made while capturing (kControlCapture); constructed before it is made. If it launches into
/// a stream that is being captured, its nodes get the thread's current place.
class CapturableCall {
 public:
  /// `stream`: the call's stream argument, nothing if it has none; `launched`: a graph that it launches.
  explicit CapturableCall(std::optional<CUstream> stream, CUgraphExec launched = nullptr) noexcept;
  void made() noexcept;

 private:
  CaptureTail tail_after() const;

  CUstream stream_ = nullptr;
  CUgraphExec launched_;
  bool guessed_ = false;  ///< the stream is not the call's argument
  std::uint32_t period_ = 0;
  CaptureTail before_;
};

}  // namespace inject
