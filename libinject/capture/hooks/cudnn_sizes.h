// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Converts sizes from cuDNN's form, in descriptors and plans, to that of shapes. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "libinject/model/data_type.h"

namespace inject {

/// `value`, clamped to the non-negative values of `To`.
template <typename To>
To clamped(std::int64_t value) noexcept {
  return static_cast<To>(
      std::clamp<std::int64_t>(value, 0, static_cast<std::int64_t>(std::numeric_limits<To>::max())));
}

/// 1 channels first, 2 channels last, 0 if it is unknown or neither.
template <typename Size>
std::uint8_t tensor_layout(std::span<const Size> size, std::span<const Size> stride) noexcept {
  if (size.size() < 3 || stride.size() != size.size()) return 0;
  if (size[1] <= 1) return 0;  // with one channel, both layouts are the same
  if (stride.back() == 1) return 1;
  return stride[1] == 1 ? 2 : 0;
}

/// The bytes of several tensors.
class TensorBytes {
 public:
  /// A dimension whose stride is 0 is in memory once.
  template <typename Size>
  void add(DataType type, std::span<const Size> size, std::span<const Size> stride) noexcept {
    std::uint64_t bits = data_type_bits(type);
    known_ = known_ && bits != 0 && !size.empty();
    for (std::size_t i = 0; i < size.size(); ++i) {
      if (i < stride.size() && stride[i] == 0) continue;
      known_ =
          known_ && size[i] >= 0 && !__builtin_mul_overflow(bits, static_cast<std::uint64_t>(size[i]), &bits);
    }
    known_ = known_ && !__builtin_add_overflow(sum_, bits / 8, &sum_);
  }
  /// 0 if a type is unknown, or the number does not fit into 64 bits.
  std::uint64_t sum() const noexcept { return known_ ? sum_ : 0; }

 private:
  std::uint64_t sum_ = 0;
  bool known_ = true;
};

/// Sets a shape's three dimensions; if there are fewer sizes, they are the last ones.
template <typename To, typename Size>
void set_last_dimensions(std::array<To, 3>& dimensions, std::span<const Size> sizes) noexcept {
  const std::size_t count = std::min(sizes.size(), dimensions.size());
  for (std::size_t i = 0; i < count; ++i) dimensions[dimensions.size() - count + i] = clamped<To>(sizes[i]);
}

}  // namespace inject
