// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "libinject/analysis/peaks.h"
#include "libinject/base/uint128.h"
#include "libinject/model/call_shape.h"

namespace inject {

/// A sum of floating-point (or integer) operations. 64 bits would overflow after 13 hours at 400 TFLOP/s.
using FlopSum = Uint128;

/// Operations, by the peak to which they are compared.
struct FlopCount {
  /// By Arithmetic; the last entry is for types without a known peak.
  std::array<FlopSum, kArithmetics + 1> by{};

  void add(std::optional<Arithmetic> arithmetic, std::uint64_t flops) {
    by[arithmetic ? static_cast<std::size_t>(*arithmetic) : kArithmetics] += flops;
  }
  void merge(const FlopCount& more) {
    for (std::size_t i = 0; i < by.size(); ++i) by[i] += more.by[i];
  }
  FlopSum total() const;
  /// Seconds that the device would need for them at its peaks. Empty if a required peak is unknown.
  std::optional<double> least_time(const DeviceSpecs& device) const;
};

/// What a call of this shape computes. A multiply-add counts as two operations; 0 for shapes that have none
/// or whose operations are unknown.
struct ShapeWork {
  std::uint64_t flops = 0;             ///< 0 also if unknown, or too many to count
  std::uint64_t bytes = 0;             ///< each read or written once; 0: unknown
  DataType type = DataType::kUnknown;  ///< of the multiplied elements
  ComputeType compute = ComputeType::kUnknown;
  bool flops_known = true;
  bool block_scaled = false;  ///< mxfp8, nvfp4: no peak is known for such products
};
ShapeWork work_of(const CallShape& shape) noexcept;
/// The same as PyTorch's flop counter has it: attention counts every pair of a query and a key, including
/// those masked out by a causal mask.
ShapeWork model_work_of(const CallShape& shape) noexcept;

/// The arithmetic of tensor cores for elements of this type, on any device; empty for types that they do not
/// support, or only if the call allows it.
std::optional<Arithmetic> tensor_arithmetic(DataType type, ComputeType compute) noexcept;

/// The best arithmetic for elements of this type, on a device that has it.
std::optional<Arithmetic> best_arithmetic(DataType type, ComputeType compute) noexcept;

/// The same for a call's work.
std::optional<Arithmetic> best_arithmetic(const ShapeWork& work) noexcept;

/// The arithmetic whose peak such work is compared with. `cores`: what its kernels used, as far as known;
/// unknown counts as used if the device has them.
std::optional<Arithmetic> arithmetic_of(const ShapeWork& work, TensorCores cores,
                                        const DeviceSpecs& device) noexcept;

}  // namespace inject
