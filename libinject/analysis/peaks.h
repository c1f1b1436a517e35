// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a device can do at most, from its attributes and a table of operations per multiprocessor and clock.
// docs/peaks.md has the formulas and where the numbers come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "libinject/analysis/kernel_class.h"

namespace inject {

/// What the tensor cores and the fp64 units of a product are, beside its compute capability: products that
/// share one differ, and no attribute tells. docs/peaks.md has the list.
enum class Product : std::uint8_t {
  kUnknown,       ///< nothing but fp32, and fp16 off the tensor cores, is taken for granted
  kFull,          ///< as the table has it
  kHalfFp32Sums,  ///< products that are summed up in fp32 run at half the rate
  kHalf,          ///< those, and those of int8; of sums in fp16 nothing is published
  kReducedFp64,   ///< as the table has it, but for fp64
  kNoTensorCores,
  kReduced,  ///< even fp32
};

/// Of a device with this name, as the driver has it.
Product product_of(int major, int minor, std::string_view device_name) noexcept;

/// As the device's attributes have them.
struct DeviceSpecs {
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  std::int64_t clock_khz = 0;         ///< the highest, cudaDevAttrClockRate
  std::int64_t memory_clock_khz = 0;  ///< cudaDevAttrMemoryClockRate; two transfers a clock
  int bus_bits = 0;
  Product product = Product::kUnknown;
};

/// What is multiplied, and where. All of it dense; those on tensor cores sum up in fp32 (fp64, int32) but for
/// the last one.
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

/// Operations a second, a multiply-add being two. Nothing if the device has no such unit, the table does not
/// know, or an attribute is missing.
std::optional<double> peak_flops(const DeviceSpecs& device, Arithmetic arithmetic) noexcept;

/// Whether the device can do it at all, at whatever rate.
enum class Ability : std::uint8_t { kUnknown, kNo, kYes };
Ability ability(const DeviceSpecs& device, Arithmetic arithmetic) noexcept;

/// A share of a peak (1 is all of it) of work that took `nanoseconds` on the device, unless it can't be:
/// peaks agree with the datasheets within 3 %, and each end of a kernel's time has steps of 32 ns. Beyond
/// that, something in it is not what it is taken for (as the operations of an algorithm that needs fewer),
/// and nothing is said.
struct PeakShare {
  std::optional<double> value;
  bool impossible = false;  ///< there is no value because it can't be
};
PeakShare possible_share(double share, double nanoseconds) noexcept;

/// Bytes a second of the device's memory.
std::optional<double> peak_bandwidth(const DeviceSpecs& device) noexcept;

/// The arithmetic of a kernel as its name tells; nothing if it does not.
std::optional<Arithmetic> arithmetic_of(TensorCoreUse use) noexcept;

}  // namespace inject
