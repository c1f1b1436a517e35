// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/tensor_eligibility.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "libinject/analysis/shape_work.h"

namespace inject {

namespace {

/// The alignment required by tensor cores' loads, of addresses and of contiguous rows.
constexpr std::uint64_t kLoadBytes = 16;

bool is_fp8(DataType type) {
  return type == DataType::kF8E4M3 || type == DataType::kF8E5M2;
}

/// Sizes and addresses that are not aligned, such as "M = 1001, lda = 1001".
class Misaligned {
 public:
  /// `elements` are contiguous.
  void check(std::string_view name, std::int64_t elements, DataType type) {
    if (static_cast<std::uint64_t>(elements) * data_type_bits(type) % (8 * kLoadBytes) == 0) return;
    add(std::string(name) + " = " + std::to_string(elements));
  }
  void add(std::string_view item) {
    if (text_.find(item) != std::string::npos) return;  // a size may be misaligned for two matrices
    if (!text_.empty()) text_ += ", ";
    text_ += item;
  }
  TensorEligibility eligibility(Eligible wrong = Eligible::kMisaligned) const {
    if (text_.empty()) return {Eligible::kYes, {}};
    return {wrong, "not multiples of 16 bytes: " + text_, true};
  }

 private:
  std::string text_;
};

/// Why the eligibility of a type is unknown; empty if it is known.
std::string_view unlisted(DataType type) {
  if (data_type_bits(type) == 0) return "type not known";
  switch (type) {
    // Which devices support these is not recorded here.
    case DataType::kF4:
    case DataType::kF6:
    case DataType::kF8E8M0:
    case DataType::kC8I:
      return data_type_name(type);
    default:
      return {};
  }
}

/// Whether the device's tensor cores multiply elements of this type.
TensorEligibility type_eligibility(DataType type, ComputeType compute, const DeviceSpecs& device) {
  if (const std::string_view why = unlisted(type); !why.empty())
    return {Eligible::kUnknown, std::string(why)};
  if (compute == ComputeType::kOther) return {Eligible::kUnknown, "compute type not known"};
  const std::optional<Arithmetic> arithmetic = tensor_arithmetic(type, compute);
  if (!arithmetic) {
    if ((type == DataType::kI8 || type == DataType::kU8) && compute == ComputeType::kF32)
      return {Eligible::kNo, "int8 summed up in fp32"};
    if (type == DataType::kF32 || type == DataType::kC64) {
      const bool tf32 = arithmetic_support(device, Arithmetic::kTf32) == ArithmeticSupport::kYes;
      return {Eligible::kNo, tf32 ? "fp32, and tf32 is not allowed" : "fp32"};
    }
    return {Eligible::kNo, "no tensor cores for " + std::string(data_type_name(type))};
  }
  if (device.multiprocessors == 0) return {Eligible::kUnknown, "device not known"};
  switch (arithmetic_support(device, *arithmetic)) {
    case ArithmeticSupport::kNo:
      return {Eligible::kNo, "the device has none for " + std::string(data_type_name(type))};
    case ArithmeticSupport::kUnknown:
      return {Eligible::kUnknown, "device not known"};
    case ArithmeticSupport::kYes:
      break;
  }
  return {Eligible::kYes, {}};
}

/// The compute type of an operation in a graph is what its engine does, so an fp32 engine off the tensor
/// cores does not show whether it might have used them.
bool hides_tf32(DataType type, ComputeType compute, const DeviceSpecs& device) {
  return type == DataType::kF32 && compute == ComputeType::kF32 &&
         arithmetic_support(device, Arithmetic::kTf32) == ArithmeticSupport::kYes;
}

TensorEligibility tf32_not_known() {
  return {Eligible::kUnknown, "fp32, and whether tf32 is allowed is not known"};
}

}  // namespace

std::string_view eligible_name(Eligible eligible) noexcept {
  switch (eligible) {
    case Eligible::kYes:
      return "yes";
    case Eligible::kMisaligned:
      return "misaligned";
    case Eligible::kNo:
      return "no";
    case Eligible::kUnknown:
      break;
  }
  return "unknown";
}

TensorEligibility tensor_eligibility(const GemmShape& shape, const DeviceSpecs& device) {
  const bool typed = data_type_bits(shape.a) != 0 && data_type_bits(shape.b) != 0;
  if (typed && (shape.flags & kGemmBlockScaled) != 0) return {Eligible::kUnknown, "scaled by blocks"};
  for (const DataType type : {shape.a, shape.b}) {
    if (const std::string_view why = unlisted(type); !why.empty())
      return {Eligible::kUnknown, std::string(why)};
  }
  const bool both_fp8 = is_fp8(shape.a) && is_fp8(shape.b);
  if (shape.a != shape.b && !both_fp8 && shape.compute != ComputeType::kOther)
    return {Eligible::kNo, "A and B are of different types"};
  TensorEligibility by_type = type_eligibility(shape.a, shape.compute, device);
  if (by_type.eligible != Eligible::kYes) return by_type;
  const bool sized = shape.m > 0 && shape.n > 0 && shape.k > 0;
  if (sized && std::min(shape.m, shape.n) == 1) return {Eligible::kNo, "a matrix-vector product"};
  // fp64 is loaded in whole elements of 8 bytes.
  if (tensor_arithmetic(shape.a, shape.compute) == Arithmetic::kFp64Tensor) return by_type;
  if (shape.groups > 1 &&
      (!sized || shape.lda == 0 || shape.ldb == 0 || shape.ldc == 0 || shape.op_a == 0 || shape.op_b == 0))
    return {Eligible::kUnknown, "its groups differ"};
  if ((shape.flags & kGemmOtherOrder) != 0) return {Eligible::kUnknown, "matrices are not all column-major"};

  Misaligned wrong;
  const auto check = [&wrong](const char* name, std::int64_t size, DataType type) {
    if (size > 0) wrong.check(name, size, type);
  };
  const DataType result = shape.d != DataType::kUnknown ? shape.d : shape.c;
  const bool a_plain = shape.op_a == 'N';
  const bool b_plain = shape.op_b == 'N';
  // The contiguous direction of each matrix (they are column-major) and the strides between columns.
  check(a_plain ? "M" : "K", a_plain ? shape.m : shape.k, shape.a);
  check(b_plain ? "K" : "N", b_plain ? shape.k : shape.n, shape.b);
  check("M", shape.m, result);
  check("lda", shape.lda, shape.a);
  check("ldb", shape.ldb, shape.b);
  check("ldc", shape.ldc, result);
  // log2 of the alignment; 0 also stands for a call whose addresses are on the device (batched by pointers).
  const auto address = [&wrong](const char* name, std::uint8_t log2) {
    if (log2 != 0 && log2 < 4) wrong.add(std::string("address of ") + name);
  };
  address("A", shape.align_a);
  address("B", shape.align_b);
  address("C", shape.align_c);
  // cuBLASLt has no fp8 kernels for anything else.
  return wrong.eligibility(is_fp8(shape.a) ? Eligible::kNo : Eligible::kMisaligned);
}

std::pair<DataType, DataType> multiplied_types(const ConvolutionShape& shape) noexcept {
  constexpr std::uint8_t kDataGradient = 2;
  constexpr std::uint8_t kFilterGradient = 3;
  return {shape.direction == kDataGradient ? shape.y : shape.x,
          shape.direction == kFilterGradient ? shape.y : shape.w};
}

TensorEligibility tensor_eligibility(const ConvolutionShape& shape, const DeviceSpecs& device) {
  const auto [type, other] = multiplied_types(shape);
  if (type != other && data_type_bits(type) != 0 && data_type_bits(other) != 0)
    return {Eligible::kUnknown, "operands are of different types"};
  if (shape.legacy == 0 && hides_tf32(type, shape.compute, device)) return tf32_not_known();
  // cuDNN's documentation does not mention fp64.
  if (type == DataType::kF64 || type == DataType::kC128) return {Eligible::kUnknown, "fp64"};
  TensorEligibility by_type = type_eligibility(type, shape.compute, device);
  if (by_type.eligible != Eligible::kYes) return by_type;
  // An older function's descriptor may request FMA. That is kept for fp32 only, as the compute type.
  if (shape.legacy != 0 && type != DataType::kF32) return {Eligible::kUnknown, "math type not known"};
  Misaligned wrong;
  const std::uint32_t groups = std::max(shape.groups, 1u);
  const char* const each = groups > 1 ? " / groups" : "";
  for (const auto& [name, channels] : {std::pair("C", shape.c), std::pair("K", shape.k)})
    wrong.check(std::string(name) + each, channels / groups, type);
  return wrong.eligibility();
}

TensorEligibility tensor_eligibility(const AttentionShape& shape, const DeviceSpecs& device) {
  if (hides_tf32(shape.type, shape.compute, device)) return tf32_not_known();
  TensorEligibility by_type = type_eligibility(shape.type, shape.compute, device);
  if (by_type.eligible != Eligible::kYes) return by_type;
  // Older functions have none, and may request FMA.
  if (shape.engine < 0) return {Eligible::kUnknown, "engine not known"};
  Misaligned wrong;
  wrong.check("D", shape.head_size, shape.type);
  wrong.check("D Value", shape.value_head_size, shape.type);
  return wrong.eligibility();
}

TensorEligibility tensor_eligibility(const RnnShape& shape, const DeviceSpecs& device) {
  constexpr std::uint8_t kDefaultMath = 1;
  constexpr std::uint8_t kFmaMath = 4;
  if (shape.tensor_math == kFmaMath) return {Eligible::kNo, "the descriptor's math type is FMA"};
  TensorEligibility by_type = type_eligibility(shape.type, shape.compute, device);
  if (by_type.eligible != Eligible::kYes) return by_type;
  // For fp32, the compute type decides.
  if (shape.tensor_math <= kDefaultMath && shape.type != DataType::kF32)
    return {Eligible::kUnknown, "the descriptor does not ask for tensor operations"};
  if (tensor_arithmetic(shape.type, shape.compute) == Arithmetic::kFp64Tensor) return by_type;
  Misaligned wrong;
  wrong.check("Input Size", shape.input_size, shape.type);
  wrong.check("Hidden Size", shape.hidden_size, shape.type);
  wrong.check("Projection Size", shape.projection_size, shape.type);
  return wrong.eligibility();
}

}  // namespace inject
