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
/// The open window, 0 if none is.
constexpr std::uint32_t open_window(std::uint32_t window) {
  return is_naming(window) ? 0 : window;
}

enum class CodeNodeKind : std::uint8_t { kFrame, kModule, kOperator };

/// A frame of a Python stack, a module or an operator; with its parents it forms a stack, a path, a chain.
/// Names are ids in Core::names.
struct CodeNode {
  CodeNodeKind kind = CodeNodeKind::kFrame;
  std::uint32_t parent = 0;  ///< the node around it; 0: none
  std::uint32_t name = 0;    ///< the function; the module's path below its parent; the operator
  std::uint32_t detail = 0;  ///< the file; the module's class
  std::uint32_t line = 0;    ///< of the frame; 0 if there is none

  bool operator==(const CodeNode&) const = default;
};

/// The part of a training step that launched the work.
enum class CodePhase : std::uint8_t {
  kOther,      ///< none of the following, for example setting gradients to zero
  kForward,    ///< in an operator, or a module
  kBackward,   ///< in the backward pass
  kRecompute,  ///< the forward pass again, within the backward pass
  kOptimizer,  ///< in an optimizer's step
};
inline constexpr std::size_t kCodePhases = 5;

/// Where in the program work was launched. In the backward pass, stack and module are those of the
/// corresponding operator of the forward pass.
struct CodePlace {
  std::uint32_t stack = 0;   ///< the innermost Python frame's node; 0 if there is none
  std::uint32_t module = 0;  ///< the innermost module's
  std::uint32_t op = 0;      ///< the innermost operator's
  CodePhase phase = CodePhase::kOther;
  bool module_unknown = false;  ///< there may be a module, and a stack if there is none
  bool may_recompute = false;   ///< in the backward pass, but may be the forward pass again
  /// No operator has begun on the thread since naming began: there may be one that began before.
  bool before_operators = false;

  bool operator==(const CodePlace&) const = default;
};

/// Set in the number of a place that may lack something: the launch may have been made in an operator that
/// had begun before launches were named, or in the backward pass of one. It is used only if no complete place
/// is known.
inline constexpr std::uint32_t kIncompletePlace = 1u << 31;

/// The operator call in which a launch was made, while launches are named: of the operators around the launch
/// whose sizes determine their work, the innermost one. Calls are numbered by thread.
struct OperatorCall {
  static constexpr std::uint32_t kNumbers = 1u << 24;
  static constexpr std::uint32_t kMostInside = (1u << 16) - 1;
  static constexpr std::uint32_t kMostLevels = (1u << 8) - 1;

  std::uint32_t outermost = 0;  ///< number of the outermost call, 1 … kNumbers - 1
  std::uint32_t inside = 0;     ///< number of calls begun inside that one, up to this one
  std::uint32_t level = 0;      ///< nesting depth of these calls around the launch; 0: none
  std::uint32_t shape = 0;      ///< what this call computes, in Core::shapes; ShapeTable::kOther: unknown

  bool operator==(const OperatorCall&) const = default;

  /// For a launch whose operator call is unknown.
  static constexpr OperatorCall unknown() { return {0, 0, kMostLevels, 0}; }
  constexpr bool is_unknown() const { return level == kMostLevels; }

  /// Packed into 64 bits; 0 if it does not fit.
  constexpr std::uint64_t packed() const {
    if (outermost >= kNumbers || inside > kMostInside || level > kMostLevels || shape > kMostInside) return 0;
    return std::uint64_t{outermost} << 40 | std::uint64_t{inside} << 24 | std::uint64_t{level} << 16 | shape;
  }
  static constexpr OperatorCall unpacked(std::uint64_t packed) {
    return {static_cast<std::uint32_t>(packed >> 40), static_cast<std::uint32_t>(packed >> 24 & kMostInside),
            static_cast<std::uint32_t>(packed >> 16 & kMostLevels),
            static_cast<std::uint32_t>(packed & kMostInside)};
  }
};

/// The part of a place that comes from the interpreter.
struct CodeContext {
  std::uint32_t stack = 0;
  std::uint32_t module = 0;
  const void* object = nullptr;  ///< the module object's address
  bool module_unknown = false;   ///< there may be a module

  bool operator==(const CodeContext&) const = default;
};

}  // namespace inject
