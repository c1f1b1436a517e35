// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/cudnn_names.h"

namespace inject {

DataType cudnn_data_type(std::string_view name) noexcept {
  struct Entry {
    std::string_view name;
    DataType type;
  };
  constexpr Entry kTypes[] = {
      {"CUDNN_DATA_FLOAT", DataType::kF32},
      {"CUDNN_DATA_DOUBLE", DataType::kF64},
      {"CUDNN_DATA_HALF", DataType::kF16},
      {"CUDNN_DATA_BFLOAT16", DataType::kBf16},
      {"CUDNN_DATA_FP8_E4M3", DataType::kF8E4M3},
      {"CUDNN_DATA_FP8_E5M2", DataType::kF8E5M2},
      {"CUDNN_DATA_FP4_E2M1", DataType::kF4},
      {"CUDNN_DATA_FP8_E8M0", DataType::kF8E8M0},
      {"CUDNN_DATA_INT8", DataType::kI8},
      {"CUDNN_DATA_INT8x4", DataType::kI8},
      {"CUDNN_DATA_INT8x32", DataType::kI8},
      {"CUDNN_DATA_UINT8", DataType::kU8},
      {"CUDNN_DATA_UINT8x4", DataType::kU8},
      {"CUDNN_DATA_INT32", DataType::kI32},
      {"CUDNN_DATA_INT64", DataType::kI64},
      {"CUDNN_DATA_BOOLEAN", DataType::kBool},
      {"CUDNN_DATA_COMPLEX_FP32", DataType::kC64},
      {"CUDNN_DATA_COMPLEX_FP64", DataType::kC128},
      // Products of fp8 that are summed up in fp32 with reduced precision.
      {"CUDNN_DATA_FAST_FLOAT_FOR_FP8", DataType::kF32},
  };
  for (const Entry& entry : kTypes)
    if (entry.name == name) return entry.type;
  return name.empty() ? DataType::kUnknown : DataType::kOther;
}

GraphOperation cudnn_operation(std::string_view name) noexcept {
  struct Entry {
    std::string_view name;
    GraphOperation operation;
  };
  constexpr std::string_view kPrefix = "CUDNN_BACKEND_OPERATION_";
  constexpr std::string_view kSuffix = "_DESCRIPTOR";
  constexpr Entry kOperations[] = {
      {"CONVOLUTION_FORWARD", GraphOperation::kConvolution},
      {"CONVOLUTION_BACKWARD_DATA", GraphOperation::kConvolutionDataGradient},
      {"CONVOLUTION_BACKWARD_FILTER", GraphOperation::kConvolutionFilterGradient},
      {"MATMUL", GraphOperation::kMatmul},
      {"BLOCK_SCALE_MATMUL", GraphOperation::kMatmul},
      {"POINTWISE", GraphOperation::kPointwise},
      {"REDUCTION", GraphOperation::kReduction},
      {"GEN_STATS", GraphOperation::kStatistics},
      {"NORM_FORWARD", GraphOperation::kNormalization},
      {"NORM_BACKWARD", GraphOperation::kNormalizationGradient},
      {"BN_FINALIZE_STATISTICS", GraphOperation::kNormalizationFinish},
      {"BN_BWD_WEIGHTS", GraphOperation::kNormalizationFinish},
      {"RESAMPLE_FWD", GraphOperation::kPooling},
      {"RESAMPLE_BWD", GraphOperation::kPoolingGradient},
      {"CONCAT", GraphOperation::kConcat},
      {"RESHAPE", GraphOperation::kReshape},
      {"RNG", GraphOperation::kRandom},
      {"SOFTMAX", GraphOperation::kSoftmax},
      {"SDPA_FWD", GraphOperation::kAttention},
      {"SDPA_BWD", GraphOperation::kAttentionGradient},
      {"PAGED_CACHE_LOAD", GraphOperation::kPagedLoad},
      {"BLOCK_SCALE_QUANTIZE", GraphOperation::kScaling},
      {"BLOCK_SCALE_DEQUANTIZE", GraphOperation::kScaling},
      {"MOE_GROUPED_MATMUL", GraphOperation::kExperts},
  };
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  for (const Entry& entry : kOperations)
    if (entry.name == name) return entry.operation;
  return GraphOperation::kOther;
}

GraphOperation cudnn_pointwise_operation(std::string_view mode) noexcept {
  constexpr std::string_view kPrefix = "CUDNN_POINTWISE_";
  if (mode.starts_with(kPrefix)) mode.remove_prefix(kPrefix.size());
  if (mode.ends_with("_BWD")) return GraphOperation::kActivationGradient;
  if (mode == "ADD") return GraphOperation::kAdd;
  if (mode == "MUL") return GraphOperation::kMultiply;
  if (mode == "RELU_FWD") return GraphOperation::kRelu;
  if (mode == "GELU_FWD" || mode == "GELU_APPROX_TANH_FWD") return GraphOperation::kGelu;
  if (mode == "SWISH_FWD") return GraphOperation::kSwish;
  if (mode == "SIGMOID_FWD") return GraphOperation::kSigmoid;
  if (mode == "TANH_FWD") return GraphOperation::kTanh;
  if (mode == "ELU_FWD") return GraphOperation::kElu;
  return GraphOperation::kPointwise;
}

}  // namespace inject
