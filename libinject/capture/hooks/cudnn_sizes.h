// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Sizes as cuDNN has them, in descriptors as in plans, and as shapes have them. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace inject {

/// `value`, or what is next to it among the values of `To` that are not negative.
template <typename To>
To clamped(std::int64_t value) noexcept {
  return static_cast<To>(
      std::clamp<std::int64_t>(value, 0, static_cast<std::int64_t>(std::numeric_limits<To>::max())));
}

/// 1 channels first, 2 channels last, 0 where it can't be told or is neither.
template <typename Size>
std::uint8_t tensor_layout(std::span<const Size> size, std::span<const Size> stride) noexcept {
  if (size.size() < 3 || stride.size() != size.size()) return 0;
  if (size[1] <= 1) return 0;  // one channel lies the same either way
  if (stride.back() == 1) return 1;
  return stride[1] == 1 ? 2 : 0;
}

/// A shape's three dimensions: fewer are the last ones.
template <typename To, typename Size>
void set_last_dimensions(std::array<To, 3>& dimensions, std::span<const Size> sizes) noexcept {
  const std::size_t count = std::min(sizes.size(), dimensions.size());
  for (std::size_t i = 0; i < count; ++i) dimensions[dimensions.size() - count + i] = clamped<To>(sizes[i]);
}

}  // namespace inject
