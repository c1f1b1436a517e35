// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string_view>

#include "libinject/capture/python/frame_reader.h"
#include "libinject/record/code_places.h"

namespace inject {

/// The name of the node under which the innermost frames of a deep stack are kept.
inline constexpr std::string_view kOuterFrames = "[outer frames]";

/// Sets whether stacks are read; initially not.
void read_stacks(bool read) noexcept;
/// innermost_frame() while stacks are read, else none.
PythonFrame stack_frame() noexcept;

/// The stack that ends with the calling thread's innermost_frame(), and the PyTorch modules in whose calls it
/// is; these are unknown if it is deeper than 128 frames. Empty without a frame; also unknown if `places` has
/// no room.
CodeContext code_context(PythonFrame innermost, CodePlaces& places) noexcept;

/// A node of the backward pass, in which Python runs.
struct BackwardNode {
  const void* frame = nullptr;  ///< the innermost one when it began; null on a thread that had none
  CodeContext forward;          ///< of the operator whose backward pass it is
};

/// The same in such a node, which may recompute a part of the forward pass: modules count only if they were
/// called in it, and are placed below that of the forward pass, or one that contains it. On autograd's own
/// threads, the stack of the forward pass precedes theirs.
CodeContext code_context(PythonFrame innermost, CodePlaces& places, const BackwardNode& node) noexcept;

}  // namespace inject
