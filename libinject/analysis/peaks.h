// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The peak rates of a device, from its attributes and a table of operations per multiprocessor and clock.
// docs/peaks.md has the formulas and sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "libinject/analysis/kernel_class.h"

namespace inject {

/// The product variant of tensor cores and fp64 units: products of the same compute capability differ, and no
/// attribute shows it. docs/peaks.md has the list.
enum class ProductVariant : std::uint8_t {
  kUnknown,       ///< only fp32, and fp16 off the tensor cores, are reliable
  kFull,          ///< as in the table
  kHalfFp32Sums,  ///< products accumulated in fp32 run at half the rate
  kHalf,          ///< those, and int8 products; nothing is published about fp16 accumulation
  kReducedFp64,   ///< as in the table, except for fp64
  kNoTensorCores,
  kReduced,  ///< even fp32
};

/// The product of a device with this name, as the driver reports it.
ProductVariant product_variant(int major, int minor, std::string_view device_name) noexcept;

/// From the device's attributes.
struct DeviceSpecs {
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  std::int64_t clock_khz = 0;         ///< the highest, cudaDevAttrClockRate
  std::int64_t memory_clock_khz = 0;  ///< cudaDevAttrMemoryClockRate; two transfers per clock
  int bus_bits = 0;
  ProductVariant variant = ProductVariant::kUnknown;
};

/// What is multiplied, and where. All are dense; those on tensor cores accumulate in fp32 (or fp64, int32),
/// except for the last one.
enum class Arithmetic : std::uint8_t {
  kFp64,
  kFp64Tensor,
  kFp32,
  kFp16,  ///< not on tensor cores, two in a register
  kTf32,
  kFp16Tensor,
  kBf16Tensor,
  kFp8,
  kInt8,
  kFp16TensorFp16Sums,
};
inline constexpr std::size_t kArithmetics = 10;

/// "fp64", "fp64 tensor", "fp32", …
std::string_view arithmetic_name(Arithmetic arithmetic) noexcept;

/// Operations per second, a multiply-add being two. Empty if the device has no such unit, the table has no
/// value, or an attribute is missing.
std::optional<double> peak_flops(const DeviceSpecs& device, Arithmetic arithmetic) noexcept;

/// Whether the device supports it at all, at any rate.
enum class ArithmeticSupport : std::uint8_t { kUnknown, kNo, kYes };
ArithmeticSupport arithmetic_support(const DeviceSpecs& device, Arithmetic arithmetic) noexcept;

/// The share of a peak (1 is all of it) achieved by work that took `nanoseconds` on the device, unless it is
/// impossible: peaks agree with the datasheets within 3 %, and each end of a kernel's time has a resolution
/// of 32 ns. A share beyond that means that an assumption is wrong (such as the number of operations, if the
/// algorithm needs fewer), and there is no value.
struct PeakShare {
  std::optional<double> value;
  bool impossible = false;  ///< `value` is empty because it would be impossible
};
PeakShare possible_share(double share, double nanoseconds) noexcept;

/// Bytes per second of the device's memory.
std::optional<double> peak_bandwidth(const DeviceSpecs& device) noexcept;

/// The arithmetic of a kernel, based on its name; empty if the name does not indicate it.
std::optional<Arithmetic> arithmetic_of(TensorCoreUse use) noexcept;

}  // namespace inject
