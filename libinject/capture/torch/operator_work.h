// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a PyTorch operator computes, derived from the sizes of its inputs: matrix products and attention,
// counted as torch.utils.flop_counter counts them. A multiply-add is two operations; attention counts every
// pair of a query and a key, even if it is causal, and its backward pass five products where the forward pass
// has two, because the scores are recomputed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "libinject/model/call_shape.h"

namespace inject {

/// An input of an operator.
struct OperatorInput {
  enum class Kind : std::uint8_t {
    kOther,   ///< neither of these, or a tensor whose sizes are unknown
    kNone,    ///< left out by the caller
    kTensor,  ///< dense, with memory of its own
  };
  static constexpr std::size_t kMostDimensions = 5;

  Kind kind = Kind::kOther;
  DataType type = DataType::kUnknown;
  std::uint8_t dimensions = 0;
  std::array<std::uint32_t, kMostDimensions> sizes{};
};

/// How an operator's inputs are read, for an operator known to operator_formula().
struct OperatorFormula {
  enum class Kind : std::uint8_t {
    kProduct,         ///< of two matrices, or of as many in two batches
    kAttention,       ///< batch, heads, length, head size
    kOtherAttention,  ///< batch, length, heads, head size
  };
  static constexpr std::uint8_t kNoInput = 255;

  std::string_view name;
  Kind kind = Kind::kProduct;
  bool is_backward = false;
  /// The first matrix, followed by the second one, or the queries, followed by keys and values; in the
  /// backward pass, the output's gradient precedes them.
  std::uint8_t first = 0;
  /// If one of these inputs is given, the sizes have another meaning: sequences are packed or have their own
  /// lengths, or only nearby keys count.
  std::array<std::uint8_t, 4> absent{kNoInput, kNoInput, kNoInput, kNoInput};

  static constexpr std::size_t kMostInputs = 20;
  /// With more inputs, it is another version of the operator, of which nothing is known.
  std::uint8_t most_inputs = kMostInputs;
};

/// Null for all other operators.
const OperatorFormula* operator_formula(std::string_view name) noexcept;

/// `inputs`: all, most_inputs at most. `flops` is 0 if the inputs are not as expected.
OperatorShape operator_work(const OperatorFormula& formula, std::span<const OperatorInput> inputs) noexcept;

/// Converts a c10::ScalarType; kUnknown for types for which products are not known.
DataType data_type_of_torch(std::uint16_t type) noexcept;

}  // namespace inject
