// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/base/time.h"
#include "libinject/capture/cupti/driver_functions.h"

namespace inject {

/// The launching side of attribution: called on the program's threads by the driver callbacks, around every
/// launch, copy and memset, with the correlation id that the device's record will carry. Passes the id to the
/// hooked runtime call around it, or publishes a separate record if the caller brought its own runtime
/// (cuBLAS, cuDNN, NCCL, JAX, static cudart, the driver API).
class LaunchObserver {
 public:
  /// `correlation_data` is CUPTI's 64-bit slot from enter to leave of the same call.
  [[gnu::hot]] static void enter(DriverCall call, std::uint32_t correlation, std::uint64_t stream,
                                 std::uint64_t* correlation_data) noexcept;
  /// When the hooked call to which enter() will pass the id began; 0 if there is none.
  static Nanoseconds call_begin() noexcept;
  /// `work`: kCallNoWork, kCallGraph with what identifies the graph, or neither.
  struct Work {
    std::uint8_t flags = 0;
    std::uint16_t graph = 0;
  };
  [[gnu::hot]] static void leave(Work work, std::uint32_t cbid, std::uint32_t correlation,
                                 std::uint64_t stream, int status,
                                 const std::uint64_t* correlation_data) noexcept;

  /// A driver function that submits nothing: a copy of zero bytes, or with INJECT_API=full any other.
  static void enter_plain(std::uint64_t* correlation_data) noexcept;
  static void leave_plain(std::uint32_t cbid, int status, const std::uint64_t* correlation_data) noexcept;

  /// A graph node was created on this thread: the launch around it, if any, is being captured.
  static void graph_node_created() noexcept;
  /// True if this thread is launching a kernel inside a window. CUPTI also reports nodes that do not come
  /// from a captured call, for instance when a graph is instantiated.
  static bool captures_kernel() noexcept;
  /// A kernel's node was created with this id, in a launch that is being captured.
  static void kernel_captured(std::uint64_t node) noexcept;
  static void graph_node_cloned(std::uint64_t node, std::uint64_t original) noexcept;
};

}  // namespace inject
