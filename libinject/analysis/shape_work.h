// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "libinject/analysis/peaks.h"
#include "libinject/record/call_shape.h"

namespace inject {

/// Floating-point (or integer) operations, by what they are held against.
struct FlopCount {
  /// By Arithmetic; the last one: no peak is known for their type.
  std::array<std::uint64_t, kArithmetics + 1> by{};

  void add(std::optional<Arithmetic> arithmetic, std::uint64_t flops) {
    by[arithmetic ? static_cast<std::size_t>(*arithmetic) : kArithmetics] += flops;
  }
  void merge(const FlopCount& more) {
    for (std::size_t i = 0; i < by.size(); ++i) by[i] += more.by[i];
  }
  std::uint64_t total() const;
  /// Seconds that the device would take for them at its peaks. Nothing if a peak that is needed is not known.
  std::optional<double> least_time(const DeviceSpecs& device) const;
};

/// What a call of this shape computes. A multiply-add counts as two operations; nothing for shapes that have
/// none or of which it is not known.
struct ShapeWork {
  std::uint64_t flops = 0;
  std::uint64_t bytes = 0;  ///< read and written once; 0: not known
  std::optional<Arithmetic> arithmetic;
};
ShapeWork work_of(const CallShape& shape) noexcept;

/// The unit that multiplies elements of this type at best.
std::optional<Arithmetic> arithmetic_of(DataType type, ComputeType compute) noexcept;

}  // namespace inject
