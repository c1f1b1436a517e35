// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

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
/// No longer, as the process exits, or is a forked child.
void forget_launch_names() noexcept;

/// The place of what the calling thread launches (Core::places); 0 if nothing is known of it. Takes some
/// microseconds.
std::uint32_t launch_place(ThreadState& thread) noexcept;

}  // namespace inject
