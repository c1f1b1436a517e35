// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/cudnn_arguments.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "libinject/capture/hooks/cudnn_sizes.h"
#include "libinject/capture/hooks/real_symbol.h"
#include "libinject/capture/hooks/tf32.h"
#include "libinject/model/graph_operations.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace inject {

namespace {

// The library's own functions: hooks would record our queries.
#define GETTER(name) constinit SameLibraryFunction<decltype(::name)> name##_beside(#name)
GETTER(cudnnGetTensorNdDescriptor);
GETTER(cudnnGetFilterNdDescriptor);
GETTER(cudnnGetConvolutionNdDescriptor);
GETTER(cudnnGetConvolutionGroupCount);
GETTER(cudnnGetConvolutionMathType);
GETTER(cudnnGetActivationDescriptor);
GETTER(cudnnGetRNNDescriptor_v8);
GETTER(cudnnGetRNNDataDescriptor);
GETTER(cudnnGetAttnDescriptor);
GETTER(cudnnGetSeqDataDescriptor);
#undef GETTER

constexpr int kMaxDimensions = 5;  // maximum for a convolution

DataType data_type_of(cudnnDataType_t type) noexcept {
  switch (type) {
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_FAST_FLOAT_FOR_FP8:
      return DataType::kF32;
    case CUDNN_DATA_DOUBLE:
      return DataType::kF64;
    case CUDNN_DATA_HALF:
      return DataType::kF16;
    case CUDNN_DATA_BFLOAT16:
      return DataType::kBf16;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_INT8x4:
    case CUDNN_DATA_INT8x32:
      return DataType::kI8;
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_UINT8x4:
      return DataType::kU8;
    case CUDNN_DATA_INT32:
      return DataType::kI32;
    case CUDNN_DATA_INT64:
      return DataType::kI64;
    case CUDNN_DATA_BOOLEAN:
      return DataType::kBool;
    case CUDNN_DATA_FP8_E4M3:
      return DataType::kF8E4M3;
    case CUDNN_DATA_FP8_E5M2:
      return DataType::kF8E5M2;
    default:
      return DataType::kOther;
  }
}

/// The type in which products are summed up; for fp32, what the math mode permits.
ComputeType compute_type_of(cudnnDataType_t compute, DataType operand, cudnnMathType_t math) noexcept {
  switch (compute) {
    case CUDNN_DATA_FLOAT:
      if (operand != DataType::kF32 || math == CUDNN_FMA_MATH) return ComputeType::kF32;
      return math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ? ComputeType::kF32F16 : tf32_if_allowed();
    case CUDNN_DATA_DOUBLE:
      return ComputeType::kF64;
    case CUDNN_DATA_HALF:
      return ComputeType::kF16;
    case CUDNN_DATA_INT32:
      return ComputeType::kI32;
    default:
      return ComputeType::kOther;
  }
}

struct Tensor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int rank = 0;
  std::array<int, kMaxDimensions> size{};
  std::array<int, kMaxDimensions> stride{};

  bool read(void* real, cudnnTensorDescriptor_t descriptor) noexcept {
    auto* get = cudnnGetTensorNdDescriptor_beside.get(real);
    return descriptor != nullptr && get != nullptr &&
           get(descriptor, kMaxDimensions, &type, &rank, size.data(), stride.data()) ==
               CUDNN_STATUS_SUCCESS &&
           rank > 0 && rank <= kMaxDimensions;
  }
  std::uint8_t layout() const noexcept {
    const auto dimensions = static_cast<std::size_t>(rank);
    return tensor_layout(std::span<const int>(size).first(dimensions),
                         std::span<const int>(stride).first(dimensions));
  }
  void add_to(TensorBytes& bytes) const noexcept {
    bytes.add(data_type_of(type), std::span<const int>(size).first(static_cast<std::size_t>(rank)),
              std::span<const int>());
  }
};

std::uint32_t activation_of(void* real, cudnnActivationDescriptor_t descriptor) noexcept {
  auto* get = cudnnGetActivationDescriptor_beside.get(real);
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_IDENTITY;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  double coefficient = 0;
  if (descriptor == nullptr || get == nullptr ||
      get(descriptor, &mode, &nan, &coefficient) != CUDNN_STATUS_SUCCESS) {
    return 0;
  }
  switch (mode) {
    case CUDNN_ACTIVATION_IDENTITY:
      return 0;
    case CUDNN_ACTIVATION_RELU:
    case CUDNN_ACTIVATION_CLIPPED_RELU:
      return operation_bit(GraphOperation::kRelu);
    case CUDNN_ACTIVATION_SIGMOID:
      return operation_bit(GraphOperation::kSigmoid);
    case CUDNN_ACTIVATION_TANH:
      return operation_bit(GraphOperation::kTanh);
    case CUDNN_ACTIVATION_ELU:
      return operation_bit(GraphOperation::kElu);
    case CUDNN_ACTIVATION_SWISH:
      return operation_bit(GraphOperation::kSwish);
    default:
      return operation_bit(GraphOperation::kPointwise);
  }
}

/// True if the operand multiplied by it counts: if no second operand is wanted, the factor is 0.
bool is_factor(const void* factor, cudnnDataType_t type) noexcept {
  double number = 0;
  if (factor == nullptr) return false;
  if (type == CUDNN_DATA_DOUBLE) {
    std::memcpy(&number, factor, sizeof number);
    return number != 0;
  }
  float single = 0;
  std::memcpy(&single, factor, sizeof single);
  return single != 0;
}

}  // namespace

void set_convolution_shape(CallFrame& frame, void* real, const ConvolutionCall& call) noexcept {
  auto* get_filter = cudnnGetFilterNdDescriptor_beside.get(real);
  auto* get_convolution = cudnnGetConvolutionNdDescriptor_beside.get(real);
  auto* get_groups = cudnnGetConvolutionGroupCount_beside.get(real);
  auto* get_math = cudnnGetConvolutionMathType_beside.get(real);
  if (call.x == nullptr || call.w == nullptr || call.y == nullptr || call.convolution == nullptr ||
      get_filter == nullptr || get_convolution == nullptr || get_groups == nullptr || get_math == nullptr) {
    return;
  }
  Tensor x;
  Tensor y;
  if (!x.read(real, call.x) || !y.read(real, call.y)) return;
  cudnnDataType_t filter_type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  int filter_rank = 0;
  std::array<int, kMaxDimensions> filter{};
  if (get_filter(call.w, kMaxDimensions, &filter_type, &format, &filter_rank, filter.data()) !=
      CUDNN_STATUS_SUCCESS) {
    return;
  }
  int dimensions = 0;
  std::array<int, 3> pad{};
  std::array<int, 3> stride{};
  std::array<int, 3> dilation{};
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  int groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  if (get_convolution(call.convolution, 3, &dimensions, pad.data(), stride.data(), dilation.data(), &mode,
                      &compute) != CUDNN_STATUS_SUCCESS ||
      get_groups(call.convolution, &groups) != CUDNN_STATUS_SUCCESS ||
      get_math(call.convolution, &math) != CUDNN_STATUS_SUCCESS) {
    return;
  }
  if (dimensions < 1 || dimensions > 3 || x.rank != dimensions + 2 || y.rank != x.rank ||
      filter_rank != x.rank) {
    return;
  }
  const auto spatial = static_cast<std::size_t>(dimensions);
  ConvolutionShape shape;
  shape.direction = call.direction;
  shape.dimensions = static_cast<std::uint8_t>(dimensions);
  shape.x = data_type_of(x.type);
  shape.w = data_type_of(filter_type);
  shape.y = data_type_of(y.type);
  shape.compute = compute_type_of(compute, shape.x, math);
  shape.layout = x.layout() != 0 ? x.layout() : y.layout();
  TensorBytes bytes;
  x.add_to(bytes);
  y.add_to(bytes);
  bytes.add(shape.w, std::span<const int>(filter).first(static_cast<std::size_t>(filter_rank)),
            std::span<const int>());
  if (call.fused) {
    // Without a descriptor, the rank is 0 and the sum unknown.
    const auto add = [&](GraphOperation operation, cudnnTensorDescriptor_t descriptor) {
      Tensor operand;
      if (!operand.read(real, descriptor)) operand.rank = 0;
      operand.add_to(bytes);
      shape.fused |= operation_bit(operation);
    };
    shape.fused = activation_of(real, call.activation);
    add(GraphOperation::kBias, call.bias);
    if (is_factor(call.sum, y.type)) add(GraphOperation::kAdd, call.z);
  }
  shape.bytes = bytes.sum();
  shape.engine = call.algorithm;
  shape.legacy = 1;
  shape.n = clamped<std::uint32_t>(x.size[0]);
  shape.c = clamped<std::uint32_t>(x.size[1]);
  shape.k = clamped<std::uint32_t>(filter[0]);
  shape.groups = std::max<std::uint32_t>(1, clamped<std::uint32_t>(groups));
  set_last_dimensions(shape.in, std::span<const int>(x.size).subspan(2, spatial));
  set_last_dimensions(shape.filter, std::span<const int>(filter).subspan(2, spatial));
  set_last_dimensions(shape.out, std::span<const int>(y.size).subspan(2, spatial));
  set_last_dimensions(shape.pad, std::span<const int>(pad).first(spatial));
  set_last_dimensions(shape.stride, std::span<const int>(stride).first(spatial));
  set_last_dimensions(shape.dilation, std::span<const int>(dilation).first(spatial));
  frame.shape(shape);
}

void set_normalization_shape(CallFrame& frame, void* real, std::uint8_t direction, cudnnTensorDescriptor_t x,
                             int fused) noexcept {
  Tensor tensor;
  if (!tensor.read(real, x)) return;
  NormalizationShape shape;
  shape.direction = direction;
  shape.mode = 1;
  shape.type = data_type_of(tensor.type);
  shape.layout = tensor.layout();
  shape.dimensions = static_cast<std::uint8_t>(tensor.rank);
  for (std::size_t i = 0; i < shape.dimensions; ++i) shape.size[i] = clamped<std::uint32_t>(tensor.size[i]);
  // The activation is always a ReLU.
  if (fused >= 1) {
    shape.fused |=
        operation_bit(direction == 2 ? GraphOperation::kActivationGradient : GraphOperation::kRelu);
  }
  if (fused >= 2) shape.fused |= operation_bit(GraphOperation::kAdd);
  frame.shape(shape);
}

void set_rnn_shape(CallFrame& frame, void* real, std::uint8_t direction, cudnnRNNDescriptor_t rnn,
                   cudnnRNNDataDescriptor_t x) noexcept {
  auto* get_rnn = cudnnGetRNNDescriptor_v8_beside.get(real);
  auto* get_data = cudnnGetRNNDataDescriptor_beside.get(real);
  if (rnn == nullptr || x == nullptr || get_rnn == nullptr || get_data == nullptr) return;
  cudnnRNNAlgo_t algorithm = CUDNN_RNN_ALGO_STANDARD;
  cudnnRNNMode_t cell = CUDNN_RNN_RELU;
  cudnnRNNBiasMode_t bias = CUDNN_RNN_NO_BIAS;
  cudnnDirectionMode_t directions = CUDNN_UNIDIRECTIONAL;
  cudnnRNNInputMode_t input = CUDNN_LINEAR_INPUT;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  std::int32_t input_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t projection_size = 0;
  std::int32_t layers = 0;
  cudnnDropoutDescriptor_t dropout = nullptr;
  std::uint32_t flags = 0;
  if (get_rnn(rnn, &algorithm, &cell, &bias, &directions, &input, &type, &compute, &math, &input_size,
              &hidden_size, &projection_size, &layers, &dropout, &flags) != CUDNN_STATUS_SUCCESS) {
    return;
  }
  cudnnDataType_t data_type = CUDNN_DATA_FLOAT;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int length = 0;
  int batch = 0;
  int width = 0;
  constexpr int kMaxLengths = RnnShape::kMaxSequences;
  std::array<int, kMaxLengths> lengths;  // NOLINT(cppcoreguidelines-pro-type-member-init): written below
  double fill = 0;                       // has the data's type
  if (get_data(x, &data_type, &layout, &length, &batch, &width, kMaxLengths, lengths.data(), &fill) !=
          CUDNN_STATUS_SUCCESS ||
      length < 0 || batch < 0) {
    return;
  }
  RnnShape shape;
  shape.direction = direction;
  shape.cell = static_cast<std::uint8_t>(static_cast<unsigned>(cell) < 4 ? cell + 1 : 0);
  shape.bidirectional = directions == CUDNN_BIDIRECTIONAL ? 1 : 0;
  shape.algorithm = static_cast<std::uint8_t>(static_cast<unsigned>(algorithm) < 4 ? algorithm + 1 : 0);
  shape.type = data_type_of(type);
  shape.compute = compute_type_of(compute, shape.type, math);
  shape.tensor_math = static_cast<std::uint8_t>(static_cast<unsigned>(math) < 4 ? math + 1 : 0);
  shape.layers = clamped<std::uint32_t>(layers);
  shape.input_size = input == CUDNN_SKIP_INPUT ? 0 : clamped<std::uint32_t>(input_size);
  shape.hidden_size = clamped<std::uint32_t>(hidden_size);
  // As large as the state: no projection.
  shape.projection_size = projection_size == hidden_size ? 0 : clamped<std::uint32_t>(projection_size);
  shape.length = clamped<std::uint32_t>(length);
  shape.batch = clamped<std::uint32_t>(batch);
  if (batch <= kMaxLengths) {
    // The descriptor's own length may include padding.
    shape.length = 0;
    for (int i = 0; i < batch; ++i) {
      const auto steps = clamped<std::uint32_t>(lengths[static_cast<std::size_t>(i)]);
      shape.length = std::max(shape.length, steps);
      shape.steps += steps;
    }
  }
  frame.shape(shape);
}

void set_attention_shape(CallFrame& frame, void* real, std::uint8_t direction,
                         cudnnAttnDescriptor_t attention, cudnnSeqDataDescriptor_t queries,
                         cudnnSeqDataDescriptor_t keys) noexcept {
  auto* get_attention = cudnnGetAttnDescriptor_beside.get(real);
  auto* get_data = cudnnGetSeqDataDescriptor_beside.get(real);
  if (attention == nullptr || queries == nullptr || keys == nullptr || get_attention == nullptr ||
      get_data == nullptr) {
    return;
  }
  unsigned mode = 0;
  int heads = 0;
  double scale = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  cudnnDropoutDescriptor_t dropout = nullptr;
  cudnnDropoutDescriptor_t later_dropout = nullptr;
  int q = 0, k = 0, v = 0;
  int projected_q = 0, projected_k = 0, projected_v = 0, projected_o = 0;
  int max_q = 0, max_k = 0, max_batch = 0, max_beam = 0;
  if (get_attention(attention, &mode, &heads, &scale, &type, &compute, &math, &dropout, &later_dropout, &q,
                    &k, &v, &projected_q, &projected_k, &projected_v, &projected_o, &max_q, &max_k,
                    &max_batch, &max_beam) != CUDNN_STATUS_SUCCESS) {
    return;
  }
  using Sizes = std::array<int, CUDNN_SEQDATA_DIM_COUNT>;
  const auto sizes_of = [&](cudnnSeqDataDescriptor_t descriptor, Sizes& sizes) {
    cudnnDataType_t data_type = CUDNN_DATA_FLOAT;
    int rank = 0;
    std::array<cudnnSeqDataAxis_t, CUDNN_SEQDATA_DIM_COUNT> axes{};
    std::size_t lengths = 0;
    double fill = 0;
    return get_data(descriptor, &data_type, &rank, CUDNN_SEQDATA_DIM_COUNT, sizes.data(), axes.data(),
                    &lengths, 0, nullptr, &fill) == CUDNN_STATUS_SUCCESS;
  };
  Sizes query_sizes{};
  Sizes key_sizes{};
  if (!sizes_of(queries, query_sizes) || !sizes_of(keys, key_sizes)) return;
  AttentionShape shape;
  shape.direction = direction;
  shape.type = data_type_of(type);
  shape.compute = compute_type_of(compute, shape.type, math);
  // Each sequence has its own length.
  shape.flags = kAttentionRagged | (dropout != nullptr ? kAttentionDropout : 0u);
  if (projected_q > 0 || projected_k > 0 || projected_v > 0 || projected_o > 0)
    shape.flags |= kAttentionProjected;
  shape.batch = clamped<std::uint32_t>(std::int64_t{query_sizes[CUDNN_SEQDATA_BATCH_DIM]} *
                                       query_sizes[CUDNN_SEQDATA_BEAM_DIM]);
  shape.heads = clamped<std::uint32_t>(heads);
  shape.kv_heads = shape.heads;
  shape.query_length = clamped<std::uint32_t>(query_sizes[CUDNN_SEQDATA_TIME_DIM]);
  shape.key_length = clamped<std::uint32_t>(key_sizes[CUDNN_SEQDATA_TIME_DIM]);
  shape.head_size = clamped<std::uint32_t>(projected_q > 0 ? projected_q : q);
  shape.value_head_size = clamped<std::uint32_t>(projected_v > 0 ? projected_v : v);
  frame.shape(shape);
}

}  // namespace inject
