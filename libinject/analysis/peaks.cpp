// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/peaks.h"

namespace inject {

namespace {

struct Rates {
  int major;
  int minor;
  // Multiply-adds per multiprocessor and clock, in the order of Arithmetic; 0: no such unit, or not
  // published.
  std::uint16_t multiply_adds[kArithmetics];
  // Hopper and Blackwell run products of tensor cores, but for fp64, at a lower clock than everything else,
  // and their datasheets count with it. The attribute is the other clock.
  double tensor_clock_share;
};

constexpr Rates kRates[] = {
    //        fp64 tensor fp32 fp16 tf32 fp16t bf16t  fp8  int8
    {6, 0, {32, 0, 64, 128, 0, 0, 0, 0, 0}, 1},
    {6, 1, {4, 0, 128, 2, 0, 0, 0, 0, 0}, 1},
    {7, 0, {32, 0, 64, 128, 0, 512, 0, 0, 0}, 1},
    {7, 5, {2, 0, 64, 128, 0, 512, 0, 0, 1024}, 1},
    {8, 0, {32, 64, 64, 256, 512, 1024, 1024, 0, 2048}, 1},
    {8, 6, {2, 0, 128, 128, 256, 512, 512, 0, 1024}, 1},
    {8, 9, {2, 0, 128, 128, 256, 512, 512, 1024, 1024}, 1},
    // 1830 of 1980 MHz (SXM), 1620 of 1755 MHz (PCIe).
    {9, 0, {64, 128, 128, 256, 1024, 2048, 2048, 4096, 4096}, 12.0 / 13},
    // Not published; what the datasheet's 2.25 PFLOP/s at fp16 and the attribute's 1965 MHz come to.
    {10, 0, {64, 64, 128, 0, 2048, 4096, 4096, 8192, 8192}, 17.0 / 18},
    {12, 0, {2, 0, 128, 128, 256, 512, 512, 1024, 1024}, 1},
};

constexpr bool on_tensor_cores_at_their_clock(Arithmetic arithmetic) {
  return arithmetic >= Arithmetic::kTf32;
}

/// Integers are summed up exactly, at the full rate.
constexpr bool summed_in_fp32(Arithmetic arithmetic) {
  return arithmetic >= Arithmetic::kTf32 && arithmetic != Arithmetic::kInt8;
}

}  // namespace

std::string_view arithmetic_name(Arithmetic arithmetic) noexcept {
  switch (arithmetic) {
    case Arithmetic::kFp64:
      return "fp64";
    case Arithmetic::kFp64Tensor:
      return "fp64 tensor";
    case Arithmetic::kFp32:
      return "fp32";
    case Arithmetic::kFp16:
      return "fp16";
    case Arithmetic::kTf32:
      return "tf32 tensor";
    case Arithmetic::kFp16Tensor:
      return "fp16 tensor";
    case Arithmetic::kBf16Tensor:
      return "bf16 tensor";
    case Arithmetic::kFp8:
      return "fp8 tensor";
    case Arithmetic::kInt8:
      return "int8 tensor";
  }
  return {};
}

std::optional<double> peak_flops(const DeviceSpecs& device, Arithmetic arithmetic) noexcept {
  if (device.multiprocessors <= 0 || device.clock_khz <= 0) return std::nullopt;
  for (const Rates& rates : kRates) {
    if (rates.major != device.major || rates.minor != device.minor) continue;
    const std::uint16_t per_clock = rates.multiply_adds[static_cast<std::size_t>(arithmetic)];
    if (per_clock == 0) return std::nullopt;
    double flops = 2.0 * per_clock * device.multiprocessors * static_cast<double>(device.clock_khz) * 1000.0;
    if (on_tensor_cores_at_their_clock(arithmetic)) flops *= rates.tensor_clock_share;
    if (device.half_rate_sums && summed_in_fp32(arithmetic)) flops /= 2;
    return flops;
  }
  return std::nullopt;
}

std::optional<double> peak_bandwidth(const DeviceSpecs& device) noexcept {
  if (device.memory_clock_khz <= 0 || device.bus_bits <= 0) return std::nullopt;
  return 2.0 * static_cast<double>(device.memory_clock_khz) * 1000.0 * device.bus_bits / 8;
}

bool sums_at_half_rate(std::string_view device_name) noexcept {
  return device_name.find("GeForce") != std::string_view::npos || device_name == "NVIDIA L40";
}

std::optional<Arithmetic> arithmetic_of(TensorCoreUse use) noexcept {
  if (use.cores == TensorCores::kUnknown) return std::nullopt;
  const bool tensor = use.cores == TensorCores::kUsed;
  switch (use.operand) {
    case Operand::kFp64:
      return tensor ? Arithmetic::kFp64Tensor : Arithmetic::kFp64;
    case Operand::kFp32:
      if (!tensor) return Arithmetic::kFp32;
      break;
    case Operand::kTf32:
      if (tensor) return Arithmetic::kTf32;
      break;
    case Operand::kFp16:
      return tensor ? Arithmetic::kFp16Tensor : Arithmetic::kFp16;
    case Operand::kBf16:
      if (tensor) return Arithmetic::kBf16Tensor;
      break;
    case Operand::kFp8:
      if (tensor) return Arithmetic::kFp8;
      break;
    case Operand::kInt8:
      if (tensor) return Arithmetic::kInt8;
      break;
    case Operand::kFp4:
    case Operand::kUnknown:
      break;
  }
  return std::nullopt;
}

}  // namespace inject
