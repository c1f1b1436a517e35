// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

namespace inject {

/// What an operation of a cuDNN graph does; a bit of `fused` and `operations` in call shapes. Stored in
/// records: values must not change.
enum class GraphOperation : std::uint8_t {
  kConvolution = 0,
  kConvolutionDataGradient,
  kConvolutionFilterGradient,
  kMatmul,
  kBias,  ///< a sum with an operand smaller than the result
  kAdd,
  kMultiply,
  kRelu,
  kGelu,
  kSwish,
  kSigmoid,
  kTanh,
  kElu,
  kActivationGradient,
  kPointwise,  ///< any other
  kReduction,
  kStatistics,  ///< sums for a normalization
  kNormalization,
  kNormalizationGradient,
  kNormalizationFinish,  ///< computed from the sums
  kPooling,
  kPoolingGradient,
  kConcat,
  kReshape,
  kRandom,
  kSoftmax,
  kAttention,
  kAttentionGradient,
  kPagedLoad,
  kScaling,  ///< blockwise quantization and dequantization
  kExperts,  ///< products of a mixture of experts
  kOther,
};
inline constexpr unsigned kGraphOperations = static_cast<unsigned>(GraphOperation::kOther) + 1;
static_assert(kGraphOperations <= 32);

constexpr std::uint32_t operation_bit(GraphOperation operation) {
  return 1u << static_cast<unsigned>(operation);
}

constexpr std::string_view graph_operation_name(GraphOperation operation) {
  constexpr std::string_view kNames[] = {"conv",
                                         "conv data gradient",
                                         "conv filter gradient",
                                         "matmul",
                                         "bias",
                                         "add",
                                         "mul",
                                         "relu",
                                         "gelu",
                                         "swish",
                                         "sigmoid",
                                         "tanh",
                                         "elu",
                                         "activation gradient",
                                         "pointwise",
                                         "reduction",
                                         "statistics",
                                         "norm",
                                         "norm gradient",
                                         "norm finish",
                                         "pooling",
                                         "pooling gradient",
                                         "concat",
                                         "reshape",
                                         "random",
                                         "softmax",
                                         "attention",
                                         "attention gradient",
                                         "paged load",
                                         "scaling",
                                         "experts",
                                         "other"};
  static_assert(std::size(kNames) == kGraphOperations);
  return kNames[static_cast<unsigned>(operation)];
}

}  // namespace inject
