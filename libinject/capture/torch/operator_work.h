// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What an operator of PyTorch's computes, by the sizes of its inputs: products of matrices and attention,
// counted as torch.utils.flop_counter counts them. A multiply-add is two operations; attention counts every
// pair of a query and a key, also where it is causal, and its backward pass five products where the forward
// pass has two, since the scores are computed again.
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
    kOther,   ///< neither of these, or a tensor whose sizes can't be told
    kNone,    ///< left out by the caller
    kTensor,  ///< dense, with memory of its own
  };
  static constexpr std::size_t kMostDimensions = 5;

  Kind kind = Kind::kOther;
  DataType type = DataType::kUnknown;
  std::uint8_t dimensions = 0;
  std::array<std::uint32_t, kMostDimensions> sizes{};
};

/// How an operator's inputs are read; one of those that operator_formula() knows.
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
  /// The first matrix, which the second one follows, or the queries, which keys and values follow; in the
  /// backward pass the output's gradient comes before them.
  std::uint8_t first = 0;
  /// If one of these is given the sizes are not what they seem: sequences are packed or have lengths of their
  /// own, or only keys that are near count.
  std::array<std::uint8_t, 4> absent{kNoInput, kNoInput, kNoInput, kNoInput};

  static constexpr std::size_t kMostInputs = 20;
  /// With more than that it is another version of the operator, of which nothing is known.
  std::uint8_t most_inputs = kMostInputs;
};

/// Null for all other operators.
const OperatorFormula* operator_formula(std::string_view name) noexcept;

/// `inputs`: all, most_inputs at most. `flops` is 0 where the inputs are not as they should be.
OperatorShape operator_work(const OperatorFormula& formula, std::span<const OperatorInput> inputs) noexcept;

/// Of c10::ScalarType; kUnknown for types that products are not known of.
DataType data_type_of_torch(std::uint16_t type) noexcept;

}  // namespace inject
