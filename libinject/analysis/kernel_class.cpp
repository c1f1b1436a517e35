// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/kernel_class.h"

#include "libinject/analysis/kernel_rules.h"
#include "libinject/analysis/name_words.h"

namespace inject {

namespace {

/// Families that compute nothing that a tensor core could.
constexpr FamilySet kWithoutProducts = kPoolings | kCollectives | Family::kNormalization | Family::kSoftmax |
                                       Family::kLoss | Family::kElementwise | Family::kReduction |
                                       Family::kEmbedding | Family::kOptimizer | Family::kLayoutChange |
                                       Family::kCopy;
constexpr FamilySet kProductFamilies = kConvolutions | Family::kGemm | Family::kAttention | Family::kRnnCell;

Family family_by_name(std::string_view name) {
  const FamilyRule* rule = first_match(family_rules(), name);
  if (rule == nullptr) return Family::kOther;
  if (!is_convolution(rule->family)) return rule->family;
  const DirectionRule* direction = first_match(direction_rules(), name);
  return convolution_family(algorithm_of(rule->family),
                            direction != nullptr ? direction->direction : ConvolutionDirection::kUnknown);
}

}  // namespace

Family family_of(std::string_view name, Category innermost_call) noexcept {
  const Family by_name = family_by_name(name.substr(0, kMaxClassifiedLength));
  for (const CallRule& rule : call_rules()) {
    if (rule.call != innermost_call) continue;
    if (rule.by_name.contains(by_name)) return by_name;
    if (!is_convolution(rule.family)) return rule.family;
    if (by_name != Family::kGemm) return rule.family;
    // Complex products inside a convolution belong to its FFTs.
    const bool complex =
        name.find("cgemm") != std::string_view::npos || name.find("gemm_cf32") != std::string_view::npos;
    return complex ? Family::kConvFft : Family::kConvGemm;
  }
  return by_name;
}

ConvolutionAlgorithm algorithm_of(Family family) noexcept {
  if (!is_convolution(family)) return ConvolutionAlgorithm::kOther;
  return static_cast<ConvolutionAlgorithm>(
      (static_cast<std::size_t>(family) - static_cast<std::size_t>(Family::kConvImplicitGemm)) /
      kConvolutionDirections);
}

ConvolutionAlgorithm convolution_algorithm_of(std::string_view name) noexcept {
  return algorithm_of(family_of(name, Category::kConv));
}

TensorCoreUse tensor_cores_of(std::string_view name) noexcept {
  name = name.substr(0, kMaxClassifiedLength);
  if (const CoresRule* rule = first_match(cores_rules(), name); rule != nullptr) {
    if (rule->cores == TensorCores::kUnknown) return {};
    const OperandRule* operand = rule->multiplies ? first_match(operand_rules(), name) : nullptr;
    return {rule->cores, operand != nullptr ? operand->operand : Operand::kUnknown};
  }
  if (kWithoutProducts.contains(family_by_name(name))) return {TensorCores::kNotUsed, Operand::kUnknown};
  return {};
}

ProductRole product_role_of(std::string_view name) noexcept {
  name = name.substr(0, kMaxClassifiedLength);
  if (const CoresRule* rule = first_match(cores_rules(), name); rule != nullptr) {
    if (rule->cores == TensorCores::kUnknown) return ProductRole::kUnknown;
    return rule->multiplies ? ProductRole::kMultiplies : ProductRole::kHelps;
  }
  const Family family = family_by_name(name);
  if (kWithoutProducts.contains(family)) return ProductRole::kHelps;
  return kProductFamilies.contains(family) ? ProductRole::kMultiplies : ProductRole::kUnknown;
}

}  // namespace inject
