// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>

#include "libinject/base/time.h"
#include "libinject/record/thread_registry.h"

namespace inject {

/// What launches are attributed to.
struct LaunchNames {
  bool operators = false;  ///< PyTorch's
  bool stacks = false;     ///< Python's
};

/// Whether any of these is available.
bool launches_can_be_named(LaunchNames names) noexcept;
/// Names launches from now on, until the next call. One caller at a time.
void name_launches(LaunchNames names) noexcept;
/// Sets what work captured into graphs is attributed to, at any time; nothing until this has been
/// called.
void name_captures(LaunchNames names) noexcept;
/// Whether captures are to be named.
bool captures_are_named() noexcept;
/// The program has started to capture graphs, or no longer does.
void set_capturing(bool capturing) noexcept;
/// Stops all naming: the process is exiting, or is a forked child.
void forget_launch_names() noexcept;

/// The place from which the calling thread launches (Core::places); 0 if it is not known. Takes a few
/// microseconds.
std::uint32_t launch_place(ThreadState& thread) noexcept;

/// The operator call in which the calling thread launches, packed.
std::uint64_t launch_operator_call(const ThreadState& thread) noexcept;

/// What a launching program thread was doing, while launches are named.
struct StackSample {
  Nanoseconds time = 0;
  std::uint32_t thread = 0;  ///< its index
  std::uint32_t stack = 0;   ///< node of the innermost frame
};
/// Takes a sample now. Empty if no thread runs Python, or its stack can't be read. Only on our own thread.
std::optional<StackSample> sample_stack() noexcept;

}  // namespace inject
