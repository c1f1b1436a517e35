// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/shape_work.h"

#include "libinject/analysis/flops.h"

namespace inject {

namespace {

/// The replacement on a device without the unit.
Arithmetic without_tensor_cores(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kFp64Tensor ? Arithmetic::kFp64 : Arithmetic::kFp32;
}

ShapeWork work(std::optional<std::uint64_t> flops, std::uint64_t bytes, DataType type, ComputeType compute) {
  const bool known = flops && *flops != kTooLarge;
  return {known ? *flops : 0, bytes != kTooLarge ? bytes : 0, type, compute, known};
}

}  // namespace

FlopSum FlopCount::total() const {
  FlopSum sum = 0;
  for (const FlopSum flops : by) sum += flops;
  return sum;
}

std::optional<double> FlopCount::least_time(const DeviceSpecs& device) const {
  double seconds = 0;
  for (std::size_t i = 0; i < by.size(); ++i) {
    if (by[i] == 0) continue;
    if (i == kArithmetics) return std::nullopt;
    const auto arithmetic = static_cast<Arithmetic>(i);
    auto peak = peak_flops(device, arithmetic);
    if (!peak && arithmetic_support(device, arithmetic) == ArithmeticSupport::kNo)
      peak = peak_flops(device, without_tensor_cores(arithmetic));
    if (!peak) return std::nullopt;
    seconds += static_cast<double>(by[i]) / *peak;
  }
  return seconds;
}

std::optional<Arithmetic> tensor_arithmetic(DataType type, ComputeType compute) noexcept {
  switch (type) {
    case DataType::kF16:
    case DataType::kC32:
      return compute == ComputeType::kF16 ? Arithmetic::kFp16TensorFp16Sums : Arithmetic::kFp16Tensor;
    case DataType::kBf16:
    case DataType::kCBf16:
      return Arithmetic::kBf16Tensor;
    case DataType::kF8E4M3:
    case DataType::kF8E5M2:
      return Arithmetic::kFp8;
    case DataType::kI8:
    case DataType::kU8:
      // Accumulation in fp32 implies products in fp32.
      if (compute == ComputeType::kI32 || compute == ComputeType::kUnknown) return Arithmetic::kInt8;
      return std::nullopt;
    case DataType::kF64:
    case DataType::kC128:
      // Which products emulate fp64 is unknown.
      if (compute == ComputeType::kOther) return std::nullopt;
      return Arithmetic::kFp64Tensor;
    case DataType::kF32:
    case DataType::kC64:
      if (compute == ComputeType::kF32F16) return Arithmetic::kFp16Tensor;
      if (compute == ComputeType::kF32Bf16) return Arithmetic::kBf16Tensor;
      if (compute == ComputeType::kF32Tf32) return Arithmetic::kTf32;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<Arithmetic> best_arithmetic(DataType type, ComputeType compute) noexcept {
  const bool fp32 = (type == DataType::kF32 || type == DataType::kC64) && compute != ComputeType::kOther;
  const auto on_tensor_cores = tensor_arithmetic(type, compute);
  return !on_tensor_cores && fp32 ? Arithmetic::kFp32 : on_tensor_cores;
}

std::optional<Arithmetic> best_arithmetic(const ShapeWork& work) noexcept {
  return work.block_scaled ? std::nullopt : best_arithmetic(work.type, work.compute);
}

std::optional<Arithmetic> arithmetic_of(const ShapeWork& work, TensorCores cores,
                                        const DeviceSpecs& device) noexcept {
  const auto on_tensor_cores = tensor_arithmetic(work.type, work.compute);
  const bool fp32 = work.type == DataType::kF32 || work.type == DataType::kC64;
  const bool fp64 = work.type == DataType::kF64 || work.type == DataType::kC128;
  if (work.block_scaled || ((fp32 || fp64) && work.compute == ComputeType::kOther)) return std::nullopt;
  if (cores == TensorCores::kUsed) {
    // A library may use tf32 without being told to.
    if (!on_tensor_cores && fp32) return Arithmetic::kTf32;
    return on_tensor_cores;
  }
  if (cores == TensorCores::kUnknown && on_tensor_cores) {
    const ArithmeticSupport able = arithmetic_support(device, *on_tensor_cores);
    if (able == ArithmeticSupport::kYes) return on_tensor_cores;
    if (able == ArithmeticSupport::kUnknown) return std::nullopt;
  }
  switch (work.type) {
    case DataType::kF64:
    case DataType::kC128:
      return Arithmetic::kFp64;
    case DataType::kF32:
    case DataType::kC64:
    case DataType::kBf16:
      return Arithmetic::kFp32;
    case DataType::kF16:
      return work.compute == ComputeType::kF16 ? Arithmetic::kFp16 : Arithmetic::kFp32;
    default:
      return std::nullopt;
  }
}

ShapeWork model_work_of(const CallShape& shape) noexcept {
  if (shape.kind() != ShapeKind::kAttention) return work_of(shape);
  auto attention = shape.as<AttentionShape>();
  attention.flags &= ~(kAttentionCausal | kAttentionBottomRight | kAttentionShifted);
  return work_of(attention);
}

ShapeWork work_of(const CallShape& shape) noexcept {
  switch (shape.kind()) {
    case ShapeKind::kGemm: {
      const auto gemm = shape.as<GemmShape>();
      ShapeWork product = work(gemm.flops, gemm.bytes, gemm.a, gemm.compute);
      product.block_scaled = (gemm.flags & kGemmBlockScaled) != 0;
      return product;
    }
    case ShapeKind::kConvolution: {
      const auto convolution = shape.as<ConvolutionShape>();
      const DataType type = convolution.direction == 2 ? convolution.y : convolution.x;
      return work(convolution_flops(convolution), convolution.bytes, type, convolution.compute);
    }
    case ShapeKind::kAttention: {
      const auto attention = shape.as<AttentionShape>();
      return work(attention_flops(attention), attention.bytes, attention.type, attention.compute);
    }
    case ShapeKind::kRnn: {
      const auto rnn = shape.as<RnnShape>();
      return work(rnn_flops(rnn), rnn_bytes(rnn), rnn.type, rnn.compute);
    }
    case ShapeKind::kOperator: {
      const auto op = shape.as<OperatorShape>();
      const bool may_be_tf32 = op.type == DataType::kF32 || op.type == DataType::kF64;
      return work(op.flops, 0, op.type, may_be_tf32 ? ComputeType::kOther : ComputeType::kUnknown);
    }
    default:
      return {};
  }
}

}  // namespace inject
