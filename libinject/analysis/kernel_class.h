// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a kernel does, based on the library call that launched it and on its name. Names from the vendor's
// libraries and from frameworks are known; docs/gemm.md and the tables of kernel_rules.h say how they are
// read. tests/data/kernels holds names with what is known about them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "libinject/model/functions.h"

namespace inject {

/// kGemm is a plain matrix product: a 1 × 1 convolution, or a product with a matrix formed beforehand
/// (im2col).
enum class ConvolutionAlgorithm : std::uint8_t { kImplicitGemm, kGemm, kWinograd, kFft, kDirect, kOther };
inline constexpr std::size_t kConvolutionAlgorithms = 6;

enum class ConvolutionDirection : std::uint8_t { kUnknown, kForward, kDataGradient, kFilterGradient };
inline constexpr std::size_t kConvolutionDirections = 4;

/// Every kernel belongs to exactly one family.
enum class Family : std::uint8_t {
  kGemm,  // including matrix-vector products
  // Algorithm by direction, in the order of the two enums; convolution_family() relies on it.
  kConvImplicitGemm,
  kConvImplicitGemmForward,
  kConvImplicitGemmDataGradient,
  kConvImplicitGemmFilterGradient,
  kConvGemm,
  kConvGemmForward,
  kConvGemmDataGradient,
  kConvGemmFilterGradient,
  kConvWinograd,
  kConvWinogradForward,
  kConvWinogradDataGradient,
  kConvWinogradFilterGradient,
  kConvFft,
  kConvFftForward,
  kConvFftDataGradient,
  kConvFftFilterGradient,
  kConvDirect,
  kConvDirectForward,
  kConvDirectDataGradient,
  kConvDirectFilterGradient,
  kConvOther,
  kConvOtherForward,
  kConvOtherDataGradient,
  kConvOtherFilterGradient,
  kPoolingForward,
  kPoolingBackward,
  kNormalization,
  kSoftmax,
  kAttention,
  kLoss,
  kElementwise,
  kReduction,
  kEmbedding,
  kOptimizer,
  kRnnCell,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kSendReceive,
  kCollectiveOther,
  kLayoutChange,  // between channels first and channels last, channel padding, transpositions
  kCopy,
  kOther,
};
inline constexpr std::size_t kFamilies = static_cast<std::size_t>(Family::kOther) + 1;

constexpr Family convolution_family(ConvolutionAlgorithm algorithm, ConvolutionDirection direction) {
  return static_cast<Family>(static_cast<std::size_t>(Family::kConvImplicitGemm) +
                             static_cast<std::size_t>(algorithm) * kConvolutionDirections +
                             static_cast<std::size_t>(direction));
}

constexpr bool is_convolution(Family family) {
  return family >= Family::kConvImplicitGemm && family <= Family::kConvOtherFilterGradient;
}

constexpr bool is_collective(Family family) {
  return family >= Family::kAllReduce && family <= Family::kCollectiveOther;
}

/// The algorithm of a convolution family; kOther for all others.
ConvolutionAlgorithm algorithm_of(Family family) noexcept;

/// As family_sum.csv prints them: "GEMM", "convolution implicit GEMM data gradient", "all-reduce".
std::string_view family_name(Family family) noexcept;
std::string_view algorithm_name(ConvolutionAlgorithm algorithm) noexcept;
std::string_view direction_name(ConvolutionDirection direction) noexcept;

/// The family of a kernel with this name, mangled or not. `innermost_call`: the category of the innermost
/// library call around the launch, kOther if there is none. Searches tables: call it once per name and keep
/// the result.
Family family_of(std::string_view name, Category innermost_call = Category::kOther) noexcept;

/// For the name of a convolution's kernel; kOther if the name does not indicate it.
ConvolutionAlgorithm convolution_algorithm_of(std::string_view name) noexcept;

/// The algorithm of a call whose kernels indicate both: plain matrix products also occur in other algorithms.
constexpr ConvolutionAlgorithm combined_algorithm(ConvolutionAlgorithm one, ConvolutionAlgorithm other) {
  const bool less_specific = one == ConvolutionAlgorithm::kOther ||
                             (one == ConvolutionAlgorithm::kGemm && other != ConvolutionAlgorithm::kOther);
  return less_specific ? other : one;
}

/// kUnknown if neither the vendor nor the name says so.
enum class TensorCores : std::uint8_t { kUnknown, kNotUsed, kUsed };

/// The type that the kernel multiplies, which may be narrower than that of its matrices: fp32 matrices may be
/// multiplied as tf32.
enum class Operand : std::uint8_t { kUnknown, kFp64, kFp32, kTf32, kFp16, kBf16, kFp8, kFp4, kInt8 };

struct TensorCoreUse {
  TensorCores cores = TensorCores::kUnknown;
  Operand operand = Operand::kUnknown;

  friend bool operator==(const TensorCoreUse&, const TensorCoreUse&) = default;
};

/// Whether the kernel with this name does its arithmetic on tensor cores, and on which type.
TensorCoreUse tensor_cores_of(std::string_view name) noexcept;

/// A kernel's part in the products of the library call that launched it.
enum class ProductRole : std::uint8_t {
  kUnknown,
  kMultiplies,
  kHelps,  ///< changes layouts or types, pads, adds up partial sums; computes none of the products
};

/// The role of a kernel with this name inside a call that computes products.
ProductRole product_role_of(std::string_view name) noexcept;

/// "yes", "no", "unknown".
std::string_view tensor_cores_name(TensorCores cores) noexcept;

/// "fp16", …; empty for kUnknown.
std::string_view operand_name(Operand operand) noexcept;

/// Longer names are classified by their beginning: demangled templates repeat themselves.
inline constexpr std::size_t kMaxClassifiedLength = 4096;

}  // namespace inject
