// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/torch/operator_work.h"

#include <initializer_list>

namespace inject {

namespace {

using Kind = OperatorFormula::Kind;
constexpr std::uint8_t kNo = OperatorFormula::kNoInput;

// By the schemas of PyTorch 2.4 and 2.11. If only the first inputs matter, later ones may differ.
constexpr OperatorFormula kFormulas[] = {
    {"aten::mm", Kind::kProduct, false, 0},
    {"aten::bmm", Kind::kProduct, false, 0},
    {"aten::addmm", Kind::kProduct, false, 1},
    {"aten::addmm_", Kind::kProduct, false, 1},
    {"aten::addbmm", Kind::kProduct, false, 1},
    {"aten::addbmm_", Kind::kProduct, false, 1},
    {"aten::baddbmm", Kind::kProduct, false, 1},
    {"aten::baddbmm_", Kind::kProduct, false, 1},
    {"aten::_addmm_activation", Kind::kProduct, false, 1},
    {"aten::_int_mm", Kind::kProduct, false, 0},
    {"aten::_scaled_mm", Kind::kProduct, false, 0},
    {"aten::_scaled_mm_v2", Kind::kProduct, false, 0},
    {"aten::_scaled_dot_product_flash_attention", Kind::kAttention, false, 0},
    {"aten::_scaled_dot_product_efficient_attention", Kind::kAttention, false, 0},
    {"aten::_scaled_dot_product_cudnn_attention", Kind::kAttention, false, 0},
    {"aten::_scaled_dot_product_fused_attention_overrideable", Kind::kAttention, false, 0},
    {"aten::_scaled_dot_product_flash_attention_backward", Kind::kAttention, true, 1},
    {"aten::_scaled_dot_product_efficient_attention_backward", Kind::kAttention, true, 1},
    {"aten::_scaled_dot_product_cudnn_attention_backward", Kind::kAttention, true, 1},
    {"aten::_scaled_dot_product_fused_attention_overrideable_backward", Kind::kAttention, true, 1},
    // cum_seq_q, window_size_left and _right, seqused_k; packed sequences have three dimensions.
    {"aten::_flash_attention_forward", Kind::kOtherAttention, false, 0, {3, 11, 12, 13}, 15},
    {"aten::_flash_attention_backward", Kind::kOtherAttention, true, 1, {15, 16, kNo, kNo}, 17},
    // cu_seqlens_q, seqlen_k, window_size
    {"aten::_efficient_attention_forward", Kind::kOtherAttention, false, 0, {4, 12, 13, kNo}, 14},
    {"aten::_efficient_attention_backward", Kind::kOtherAttention, true, 1, {6, 18, kNo, kNo}, 20},
};

/// 0 if it does not fit.
std::uint64_t exact_product(std::initializer_list<std::uint64_t> factors) noexcept {
  std::uint64_t product = 1;
  for (const std::uint64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) return 0;
  return product;
}

std::uint64_t matrix_work(const OperatorInput& a, const OperatorInput& b) noexcept {
  if (a.dimensions != b.dimensions) return 0;
  if (a.dimensions == 2 && a.sizes[1] == b.sizes[0])
    return exact_product({2, a.sizes[0], a.sizes[1], b.sizes[1]});
  if (a.dimensions == 3 && a.sizes[0] == b.sizes[0] && a.sizes[2] == b.sizes[1])
    return exact_product({2, a.sizes[0], a.sizes[1], a.sizes[2], b.sizes[2]});
  return 0;
}

/// Sizes of queries, keys, values or the output's gradient.
struct HeadSizes {
  HeadSizes(const OperatorInput& input, Kind kind) noexcept
      : batch(input.sizes[0]),
        heads(input.sizes[kind == Kind::kAttention ? 1 : 2]),
        length(input.sizes[kind == Kind::kAttention ? 2 : 1]),
        size(input.sizes[3]) {}
  std::uint32_t batch;
  std::uint32_t heads;
  std::uint32_t length;
  std::uint32_t size;
};

std::uint64_t attention_work(const OperatorFormula& formula, std::span<const OperatorInput> inputs) noexcept {
  for (const OperatorInput& input : inputs)
    if (input.dimensions != 4) return 0;
  const std::size_t first = formula.is_backward ? 1 : 0;
  const HeadSizes query(inputs[first], formula.kind);
  const HeadSizes key(inputs[first + 1], formula.kind);
  const HeadSizes value(inputs[first + 2], formula.kind);
  // Several query heads may share one key and value head.
  if (key.batch != query.batch || value.batch != query.batch || value.length != key.length ||
      key.size != query.size || key.heads == 0 || value.heads == 0 || query.heads % key.heads != 0 ||
      query.heads % value.heads != 0)
    return 0;
  if (formula.is_backward) {
    const HeadSizes gradient(inputs[0], formula.kind);
    if (gradient.batch != query.batch || gradient.heads != query.heads || gradient.length != query.length ||
        gradient.size != value.size)
      return 0;
  }
  const std::uint64_t depth = formula.is_backward
                                  ? 3 * std::uint64_t{query.size} + 2 * std::uint64_t{value.size}
                                  : std::uint64_t{query.size} + value.size;
  return exact_product({2, query.batch, query.heads, query.length, key.length, depth});
}

}  // namespace

const OperatorFormula* operator_formula(std::string_view name) noexcept {
  if (!name.starts_with("aten::")) return nullptr;
  for (const OperatorFormula& formula : kFormulas)
    if (formula.name == name) return &formula;
  return nullptr;
}

OperatorShape operator_work(const OperatorFormula& formula, std::span<const OperatorInput> inputs) noexcept {
  const std::size_t begin = formula.is_backward ? formula.first - std::size_t{1} : formula.first;
  const std::size_t operands = formula.kind == Kind::kProduct ? 2 : formula.is_backward ? 4 : 3;
  if (inputs.size() < begin + operands) return {};
  for (const std::uint8_t index : formula.absent)
    if (index < inputs.size() && inputs[index].kind != OperatorInput::Kind::kNone) return {};
  const auto multiplied = inputs.subspan(begin, operands);
  for (const OperatorInput& input : multiplied)
    if (input.kind != OperatorInput::Kind::kTensor || input.type == DataType::kUnknown) return {};
  OperatorShape shape;
  shape.flops = formula.kind == Kind::kProduct ? matrix_work(multiplied[0], multiplied[1])
                                               : attention_work(formula, multiplied);
  if (shape.flops != 0) shape.type = inputs[formula.first].type;
  return shape;
}

DataType data_type_of_torch(std::uint16_t type) noexcept {
  switch (type) {
    case 1:
      return DataType::kI8;
    case 5:
      return DataType::kF16;
    case 6:
      return DataType::kF32;
    case 7:
      return DataType::kF64;
    case 15:
      return DataType::kBf16;
    case 23:
      return DataType::kF8E5M2;
    case 24:
      return DataType::kF8E4M3;
    default:
      return DataType::kUnknown;
  }
}

}  // namespace inject
