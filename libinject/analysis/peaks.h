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

/// As the device's attributes have them.
struct DeviceSpecs {
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  std::int64_t clock_khz = 0;         ///< the highest, cudaDevAttrClockRate
  std::int64_t memory_clock_khz = 0;  ///< cudaDevAttrMemoryClockRate; two transfers a clock
  int bus_bits = 0;
  bool half_rate_sums = false;  ///< sums_at_half_rate()
};

/// What is multiplied, and where. All of it dense; those on tensor cores sum up in fp32 (fp64, int32).
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
};
inline constexpr std::size_t kArithmetics = 9;

/// "fp64", "fp64 tensor", "fp32", …
std::string_view arithmetic_name(Arithmetic arithmetic) noexcept;

/// Operations a second, a multiply-add being two. Nothing if the device has no such unit, the table does not
/// know, or an attribute is missing.
std::optional<double> peak_flops(const DeviceSpecs& device, Arithmetic arithmetic) noexcept;

/// Bytes a second of the device's memory.
std::optional<double> peak_bandwidth(const DeviceSpecs& device) noexcept;

/// Whether the tensor cores of a device with this name sum up in fp32 at half the rate at which they sum up
/// in fp16: GeForce cards do, and the L40, while data-centre and workstation cards of the same compute
/// capability do not. No attribute tells.
bool sums_at_half_rate(std::string_view device_name) noexcept;

/// The arithmetic of a kernel as its name tells; nothing if it does not.
std::optional<Arithmetic> arithmetic_of(TensorCoreUse use) noexcept;

}  // namespace inject
