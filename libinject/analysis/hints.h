// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Hints on how to make a library call faster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace inject {

enum class HintKind : std::uint8_t {
  kNarrow,         ///< M or N of a product, or a recurrent layer's batch, below 32
  kMultiples,      ///< sizes that are not multiples of what the type needs
  kTf32,           ///< fp32 that could be tf32
  kTransposition,  ///< another pair of op(A), op(B) is faster by more than 10 % at the same size
  kCombine,        ///< several small products with a common operand
  kLayout,         ///< the call's kernels change the tensors' layout
  kAlgorithm,      ///< another algorithm is faster by more than 10 % at the same size
};

struct Hint {
  HintKind kind;
  std::string text;
};

/// The texts, separated by "; ".
std::string join_hints(const std::vector<Hint>& hints);

/// Below this size, a tile of a product's result is mostly empty, and each element of the large operand is
/// used too few times to balance the rates of memory and arithmetic.
inline constexpr std::int64_t kNarrow = 32;

/// An alternative is worth mentioning if its rate is at least this many times as high.
inline constexpr double kFasterBy = 1.10;

}  // namespace inject
