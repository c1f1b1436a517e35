// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/replay/shape_check.h"

namespace inject::recovery {

namespace {

bool is_type(DataType type) {
  return type <= kLastDataType;
}
bool is_type(ComputeType type) {
  return type <= ComputeType::kOther;
}
template <typename... Types>
bool are_types(Types... types) {
  return (is_type(types) && ...);
}
bool is_operation(char op, std::uint32_t groups) {
  return op == 'N' || op == 'T' || op == 'C' || (op == 0 && groups > 1);
}

// All small counts and sizes are accepted; values computed from them are checked for overflow only as far as
// real calls require.
constexpr std::int64_t kMax = std::int64_t{1} << 40;
bool is_size(std::int64_t size) {
  return size >= -kMax && size <= kMax;
}

}  // namespace

bool is_shape(const CallShape& shape) {
  switch (shape.kind()) {
    case ShapeKind::kGemm: {
      const auto s = shape.as<GemmShape>();
      return is_operation(s.op_a, s.groups) && is_operation(s.op_b, s.groups) &&
             are_types(s.a, s.b, s.c, s.d, s.compute) && s.align_a <= 4 && s.align_b <= 4 && s.align_c <= 4 &&
             is_size(s.m) && is_size(s.n) && is_size(s.k) && is_size(s.lda) && is_size(s.ldb) &&
             is_size(s.ldc);
    }
    case ShapeKind::kConvolution: {
      const auto s = shape.as<ConvolutionShape>();
      return s.direction <= 3 && s.dimensions <= 3 && s.layout <= 2 && are_types(s.x, s.w, s.y, s.compute);
    }
    case ShapeKind::kAttention: {
      const auto s = shape.as<AttentionShape>();
      return s.direction <= 2 && are_types(s.type, s.compute);
    }
    case ShapeKind::kNormalization: {
      const auto s = shape.as<NormalizationShape>();
      return s.direction <= 3 && s.mode <= 5 && s.layout <= 2 && s.dimensions <= 5 && is_type(s.type);
    }
    case ShapeKind::kRnn: {
      const auto s = shape.as<RnnShape>();
      return s.direction <= 3 && s.cell <= 4 && s.bidirectional <= 1 && s.algorithm <= 4 &&
             s.tensor_math <= 4 && are_types(s.type, s.compute);
    }
    case ShapeKind::kCollective: {
      const auto s = shape.as<CollectiveShape>();
      return s.operation <= Collective::kScatter && s.role <= GroupRole::kDifferent;
    }
    case ShapeKind::kOtherGraph:
      return true;
    case ShapeKind::kOperator:  // only of named launches, which are in no file
    case ShapeKind::kNone:
      break;
  }
  return false;
}

}  // namespace inject::recovery
