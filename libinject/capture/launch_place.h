// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>

#include "libinject/base/time.h"
#include "libinject/record/thread_registry.h"

namespace inject {

/// What launches are named by.
struct LaunchNames {
  bool operators = false;  ///< PyTorch's
  bool stacks = false;     ///< Python's
};

/// Whether any of that is there.
bool launches_can_be_named(LaunchNames names) noexcept;
/// From here on, until the next call. One caller at a time.
void name_launches(LaunchNames names) noexcept;
/// By what the work is named that is captured into graphs, whenever that is: of nothing until this has been
/// called.
void name_captures(LaunchNames names) noexcept;
/// Whether any is to be.
bool captures_are_named() noexcept;
/// The program captures graphs now, or no longer.
void set_capturing(bool capturing) noexcept;
/// No longer, as the process exits, or is a forked child.
void forget_launch_names() noexcept;

/// The place of what the calling thread launches (Core::places); 0 if nothing is known of it. Takes some
/// microseconds.
std::uint32_t launch_place(ThreadState& thread) noexcept;

/// The operator's call that the calling thread's launch is made in, packed.
std::uint64_t launch_operator_call(const ThreadState& thread) noexcept;

/// What a thread of the program that launches was doing, while launches are named.
struct StackSample {
  Nanoseconds time = 0;
  std::uint32_t thread = 0;  ///< its index
  std::uint32_t stack = 0;   ///< node of the innermost frame
};
/// Now. Empty if no thread runs Python, or its stack can't be told. On our own thread, one at a time.
std::optional<StackSample> sample_stack() noexcept;

}  // namespace inject
