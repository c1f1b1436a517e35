// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string_view>

#include "libinject/capture/python/frame_reader.h"
#include "libinject/record/code_places.h"

namespace inject {

/// The name of the node under which the innermost frames of a deep stack are kept.
inline constexpr std::string_view kOuterFrames = "[outer frames]";

/// Whether stacks are read; not by default.
void read_stacks(bool read) noexcept;
/// innermost_frame() while they are, else none.
PythonFrame stack_frame() noexcept;

/// The stack that ends with the calling thread's innermost_frame(), and the PyTorch modules whose calls it
/// is in; these are not known if it is deeper than 128 frames. Empty without a frame; also unknown
/// if `places` has no room.
CodeContext code_context(PythonFrame innermost, CodePlaces& places) noexcept;

/// A node of the backward pass, in which Python runs.
struct BackwardNode {
  const void* frame = nullptr;  ///< the innermost one as it began; null on a thread that had none
  CodeContext forward;          ///< of the operator that it is the backward pass of
};

/// The same in such a node, which may make a part of the forward pass again: modules count only if they were
/// called in it, and belong to that of the forward pass, or to one which that is in. On autograd's own
/// threads the stack of the forward pass comes before theirs.
CodeContext code_context(PythonFrame innermost, CodePlaces& places, const BackwardNode& node) noexcept;

}  // namespace inject
