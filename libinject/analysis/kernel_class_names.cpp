// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <iterator>

#include "libinject/analysis/kernel_class.h"

namespace inject {

namespace {

// In the order of Family.
constexpr char kFamilyNames[][44] = {
    "GEMM",
    "convolution implicit GEMM",
    "convolution implicit GEMM forward",
    "convolution implicit GEMM data gradient",
    "convolution implicit GEMM filter gradient",
    "convolution GEMM",
    "convolution GEMM forward",
    "convolution GEMM data gradient",
    "convolution GEMM filter gradient",
    "convolution Winograd",
    "convolution Winograd forward",
    "convolution Winograd data gradient",
    "convolution Winograd filter gradient",
    "convolution FFT",
    "convolution FFT forward",
    "convolution FFT data gradient",
    "convolution FFT filter gradient",
    "convolution direct",
    "convolution direct forward",
    "convolution direct data gradient",
    "convolution direct filter gradient",
    "convolution other",
    "convolution other forward",
    "convolution other data gradient",
    "convolution other filter gradient",
    "pooling forward",
    "pooling backward",
    "normalization",
    "softmax",
    "attention",
    "loss",
    "elementwise",
    "reduction",
    "embedding",
    "optimizer",
    "RNN cell",
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "broadcast",
    "reduce",
    "send/receive",
    "collective other",
    "layout change",
    "copy",
    "other",
};
static_assert(std::size(kFamilyNames) == kFamilies);

}  // namespace

std::string_view family_name(Family family) noexcept {
  return family < Family::kOther ? kFamilyNames[static_cast<std::size_t>(family)] : "other";
}

std::string_view algorithm_name(ConvolutionAlgorithm algorithm) noexcept {
  switch (algorithm) {
    case ConvolutionAlgorithm::kImplicitGemm:
      return "implicit GEMM";
    case ConvolutionAlgorithm::kGemm:
      return "GEMM";
    case ConvolutionAlgorithm::kWinograd:
      return "Winograd";
    case ConvolutionAlgorithm::kFft:
      return "FFT";
    case ConvolutionAlgorithm::kDirect:
      return "direct";
    case ConvolutionAlgorithm::kOther:
      break;
  }
  return "other";
}

std::string_view direction_name(ConvolutionDirection direction) noexcept {
  switch (direction) {
    case ConvolutionDirection::kForward:
      return "forward";
    case ConvolutionDirection::kDataGradient:
      return "data gradient";
    case ConvolutionDirection::kFilterGradient:
      return "filter gradient";
    case ConvolutionDirection::kUnknown:
      break;
  }
  return "unknown";
}

std::string_view tensor_cores_name(TensorCores cores) noexcept {
  switch (cores) {
    case TensorCores::kUsed:
      return "yes";
    case TensorCores::kNotUsed:
      return "no";
    case TensorCores::kUnknown:
      break;
  }
  return "unknown";
}

std::string_view operand_name(Operand operand) noexcept {
  switch (operand) {
    case Operand::kFp64:
      return "fp64";
    case Operand::kFp32:
      return "fp32";
    case Operand::kTf32:
      return "tf32";
    case Operand::kFp16:
      return "fp16";
    case Operand::kBf16:
      return "bf16";
    case Operand::kFp8:
      return "fp8";
    case Operand::kFp4:
      return "fp4";
    case Operand::kInt8:
      return "int8";
    case Operand::kUnknown:
      break;
  }
  return {};
}

}  // namespace inject
