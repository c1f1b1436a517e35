// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>

namespace inject {

/// Set in the number of a window while the iterations that follow it are named: their launches belong to no
/// window, and carry a CodePlace instead of a range.
inline constexpr std::uint32_t kNamingWindow = 1u << 31;

constexpr bool is_naming(std::uint32_t window) {
  return (window & kNamingWindow) != 0;
}
/// The window that is open, 0 if none is.
constexpr std::uint32_t open_window(std::uint32_t window) {
  return is_naming(window) ? 0 : window;
}

enum class CodeNodeKind : std::uint8_t { kFrame, kModule, kOperator };

/// A frame of a Python stack, a module or an operator: with its parents a stack, a path, a chain. Names are
/// ids in Core::names.
struct CodeNode {
  CodeNodeKind kind = CodeNodeKind::kFrame;
  std::uint32_t parent = 0;  ///< the node around it; 0: none
  std::uint32_t name = 0;    ///< the function; the module's path below its parent; the operator
  std::uint32_t detail = 0;  ///< the file; the module's class
  std::uint32_t line = 0;    ///< the frame's; 0 if there is none

  bool operator==(const CodeNode&) const = default;
};

/// Which part of a training step launched the work.
enum class CodePhase : std::uint8_t {
  kOther,      ///< none of the following, as for gradients that are set to zero
  kForward,    ///< in an operator, or a module
  kBackward,   ///< in the backward pass
  kRecompute,  ///< the forward pass again, inside of the backward pass
  kOptimizer,  ///< in an optimizer's step
};
inline constexpr std::size_t kCodePhases = 5;

/// Where in the program work was launched. In the backward pass stack and module are those of the operator of
/// the forward pass that it is the backward pass of.
struct CodePlace {
  std::uint32_t stack = 0;   ///< the innermost Python frame's node; 0 if there is none
  std::uint32_t module = 0;  ///< the innermost module's
  std::uint32_t op = 0;      ///< the innermost operator's
  CodePhase phase = CodePhase::kOther;

  bool operator==(const CodePlace&) const = default;
};

/// Set in the number of a place that lacks something: the launch was made in an operator that had begun
/// before launches were named, or in the backward pass of one. It counts where no complete one is known.
inline constexpr std::uint32_t kIncompletePlace = 1u << 31;

/// Of it, what the interpreter tells.
struct CodeContext {
  std::uint32_t stack = 0;
  std::uint32_t module = 0;

  bool operator==(const CodeContext&) const = default;
};

}  // namespace inject
