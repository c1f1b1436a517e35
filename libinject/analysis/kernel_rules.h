// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The rules by which kernels are classified (analysis/kernel_class.h). Each table is in order of precedence:
// the first rule whose words all occur in the name applies (analysis/name_words.h). Rules apply to mangled
// and demangled names alike, so no word contains "::", "<" or "(".
#pragma once

#include <cstdint>
#include <span>

#include "libinject/analysis/kernel_class.h"
#include "libinject/model/functions.h"

namespace inject {

class FamilySet {
 public:
  constexpr FamilySet() = default;
  // NOLINTNEXTLINE(misc-explicit-constructor): a family is a set of one
  constexpr FamilySet(Family family) : bits_(std::uint64_t{1} << static_cast<unsigned>(family)) {}
  /// `first` and `last` are included.
  static constexpr FamilySet from_to(Family first, Family last) {
    FamilySet set;
    for (auto i = static_cast<unsigned>(first); i <= static_cast<unsigned>(last); ++i)
      set = set | static_cast<Family>(i);
    return set;
  }
  constexpr bool contains(Family family) const { return (bits_ & FamilySet(family).bits_) != 0; }
  friend constexpr FamilySet operator|(FamilySet one, FamilySet other) {
    one.bits_ |= other.bits_;
    return one;
  }

 private:
  std::uint64_t bits_ = 0;
};
static_assert(kFamilies <= 64);

inline constexpr FamilySet kConvolutions =
    FamilySet::from_to(Family::kConvImplicitGemm, Family::kConvOtherFilterGradient);
inline constexpr FamilySet kPoolings = FamilySet::from_to(Family::kPoolingForward, Family::kPoolingBackward);
inline constexpr FamilySet kCollectives = FamilySet::from_to(Family::kAllReduce, Family::kCollectiveOther);

// Words are stored in the rules themselves: pointers would have to be relocated in every process.

/// A kernel's family by its name; for convolutions, only the algorithm.
struct FamilyRule {
  char words[36];
  Family family;
};
std::span<const FamilyRule> family_rules() noexcept;

/// A convolution's direction by its kernel's name.
struct DirectionRule {
  char words[28];
  ConvolutionDirection direction;
};
std::span<const DirectionRule> direction_rules() noexcept;

/// What a library call implies: the family of its kernels, except those whose name indicates one of
/// `by_name`.
struct CallRule {
  Category call;
  Family family;
  FamilySet by_name;
};
std::span<const CallRule> call_rules() noexcept;

/// Whether a kernel uses tensor cores, by its name.
struct CoresRule {
  char words[36];
  TensorCores cores;
  bool multiplies = true;  ///< false: the types in the name are those of a product computed by other kernels
};
std::span<const CoresRule> cores_rules() noexcept;

/// What a kernel multiplies, by its name.
struct OperandRule {
  char words[36];
  Operand operand;
};
std::span<const OperandRule> operand_rules() noexcept;

}  // namespace inject
