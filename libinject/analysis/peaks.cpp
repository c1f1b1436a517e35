// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/peaks.h"

namespace inject {

namespace {

// Products accumulated in fp16 have no column of their own: they use that of fp16.
constexpr std::size_t kColumns = 9;

struct Rates {
  int major;
  int minor;
  // Multiply-adds per multiprocessor and clock, in the order of Arithmetic; 0: no such unit, or not
  // published.
  std::uint16_t multiply_adds[kColumns];
  // Hopper and Blackwell run tensor cores, except for fp64, at a lower clock than everything else, and their
  // datasheets use it. The attribute has the higher clock.
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
    // Not published; derived from the datasheet's 2.25 PFLOP/s at fp16 and the attribute's 1965 MHz.
    {10, 0, {64, 64, 128, 0, 2048, 4096, 4096, 8192, 8192}, 17.0 / 18},
    {12, 0, {2, 0, 128, 128, 256, 512, 512, 1024, 1024}, 1},
};

constexpr const Rates* rates_of(const DeviceSpecs& device) {
  for (const Rates& rates : kRates) {
    if (rates.major == device.major && rates.minor == device.minor) return &rates;
  }
  return nullptr;
}

constexpr std::uint16_t multiply_adds(const Rates& rates, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::kFp16TensorFp16Sums) arithmetic = Arithmetic::kFp16Tensor;
  return rates.multiply_adds[static_cast<std::size_t>(arithmetic)];
}

constexpr bool is_fp64(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kFp64 || arithmetic == Arithmetic::kFp64Tensor;
}
constexpr bool on_tensor_cores(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kFp64Tensor || arithmetic >= Arithmetic::kTf32;
}
constexpr bool at_tensor_clock(Arithmetic arithmetic) {
  return arithmetic >= Arithmetic::kTf32;
}
constexpr bool summed_in_fp32(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kTf32 || arithmetic == Arithmetic::kFp16Tensor ||
         arithmetic == Arithmetic::kBf16Tensor || arithmetic == Arithmetic::kFp8;
}

struct KnownProduct {
  std::uint8_t major;
  std::uint8_t minor;
  char words[22];  // in the driver's name, between spaces and hyphens
  ProductVariant variant;
};

// The first match applies. Products not listed here are unknown. docs/peaks.md has the sources.
constexpr KnownProduct kKnownProducts[] = {
    {6, 0, "P100", ProductVariant::kFull},
    {7, 0, "V100", ProductVariant::kFull},
    {7, 0, "V100S", ProductVariant::kFull},
    {7, 5, "T4", ProductVariant::kFull},
    {7, 5, "Quadro RTX 6000", ProductVariant::kFull},
    {7, 5, "Quadro RTX 8000", ProductVariant::kFull},
    {7, 5, "GeForce RTX", ProductVariant::kHalfFp32Sums},
    {7, 5, "GeForce GTX", ProductVariant::kNoTensorCores},
    {7, 5, "GeForce MX450", ProductVariant::kNoTensorCores},
    {7, 5, "GeForce MX550", ProductVariant::kNoTensorCores},
    {7, 5, "T400", ProductVariant::kNoTensorCores},
    {7, 5, "T600", ProductVariant::kNoTensorCores},
    {7, 5, "T1000", ProductVariant::kNoTensorCores},
    {8, 0, "A100", ProductVariant::kFull},
    {8, 0, "A800", ProductVariant::kFull},
    {8, 0, "A30", ProductVariant::kFull},
    {8, 6, "A10", ProductVariant::kFull},
    {8, 6, "A10G", ProductVariant::kHalf},
    {8, 6, "A16", ProductVariant::kFull},
    {8, 6, "A2", ProductVariant::kFull},
    {8, 6, "A40", ProductVariant::kFull},
    {8, 6, "RTX A6000", ProductVariant::kFull},
    {8, 6, "GeForce RTX", ProductVariant::kHalfFp32Sums},
    {8, 9, "L4", ProductVariant::kFull},
    {8, 9, "L40S", ProductVariant::kFull},
    {8, 9, "L40", ProductVariant::kHalf},
    {8, 9, "L20", ProductVariant::kHalf},
    {8, 9, "RTX 6000 Ada", ProductVariant::kFull},
    {8, 9, "GeForce RTX", ProductVariant::kHalfFp32Sums},
    // Their tensor cores run at a different clock from those of the SXM and PCIe products.
    {9, 0, "H100 NVL", ProductVariant::kUnknown},
    {9, 0, "H200 NVL", ProductVariant::kUnknown},
    {9, 0, "H100", ProductVariant::kFull},
    {9, 0, "H200", ProductVariant::kFull},
    {9, 0, "GH200", ProductVariant::kFull},
    {9, 0, "H800", ProductVariant::kReducedFp64},
    {10, 0, "B200", ProductVariant::kFull},
    {12, 0, "GeForce RTX", ProductVariant::kHalfFp32Sums},
};

bool has_words(std::string_view name, std::string_view words) {
  const auto ends = [&name](std::size_t at) {
    return at >= name.size() || name[at] == ' ' || name[at] == '-';
  };
  for (std::size_t at = name.find(words); at != std::string_view::npos; at = name.find(words, at + 1)) {
    if ((at == 0 || ends(at - 1)) && ends(at + words.size())) return true;
  }
  return false;
}

/// The share of the table's rate that the product reaches; 0: unknown, or no such unit.
double share_of_rate(ProductVariant variant, Arithmetic arithmetic) {
  switch (variant) {
    case ProductVariant::kFull:
      return 1;
    case ProductVariant::kHalfFp32Sums:
      return summed_in_fp32(arithmetic) ? 0.5 : 1;
    case ProductVariant::kHalf:
      if (arithmetic == Arithmetic::kFp16TensorFp16Sums) return 0;
      return on_tensor_cores(arithmetic) ? 0.5 : 1;
    case ProductVariant::kReducedFp64:
      return is_fp64(arithmetic) ? 0 : 1;
    case ProductVariant::kNoTensorCores:
      return on_tensor_cores(arithmetic) ? 0 : 1;
    case ProductVariant::kUnknown:
      return arithmetic == Arithmetic::kFp32 || arithmetic == Arithmetic::kFp16 ? 1 : 0;
    case ProductVariant::kReduced:
      break;
  }
  return 0;
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
    case Arithmetic::kFp16TensorFp16Sums:
      return "fp16 tensor, fp16 sums";
  }
  return {};
}

ProductVariant product_variant(int major, int minor, std::string_view device_name) noexcept {
  // Mining cards: most of their rates are reduced.
  if (has_words(device_name, "CMP")) return ProductVariant::kReduced;
  for (const KnownProduct& known : kKnownProducts) {
    if (known.major == major && known.minor == minor && has_words(device_name, known.words))
      return known.variant;
  }
  return ProductVariant::kUnknown;
}

ArithmeticSupport arithmetic_support(const DeviceSpecs& device, Arithmetic arithmetic) noexcept {
  const Rates* rates = rates_of(device);
  if (rates == nullptr) return ArithmeticSupport::kUnknown;
  if (!on_tensor_cores(arithmetic))
    return multiply_adds(*rates, arithmetic) != 0 ? ArithmeticSupport::kYes : ArithmeticSupport::kUnknown;
  if (multiply_adds(*rates, arithmetic) == 0 || device.variant == ProductVariant::kNoTensorCores)
    return ArithmeticSupport::kNo;
  // Turing chips come with and without tensor cores.
  const bool turing = device.major == 7 && device.minor == 5;
  const bool known = device.variant != ProductVariant::kUnknown && device.variant != ProductVariant::kReduced;
  return turing && !known ? ArithmeticSupport::kUnknown : ArithmeticSupport::kYes;
}

PeakShare possible_share(double share, double nanoseconds) noexcept {
  constexpr double kPeaksError = 0.03;
  constexpr double kStep = 32;
  if (!(nanoseconds > 0)) return {};
  const double most = (1 + kPeaksError) * (1 + 2 * kStep / nanoseconds);
  if (share > most) return {std::nullopt, true};
  return {share, false};
}

std::optional<double> peak_flops(const DeviceSpecs& device, Arithmetic arithmetic) noexcept {
  if (device.multiprocessors <= 0 || device.clock_khz <= 0) return std::nullopt;
  const Rates* rates = rates_of(device);
  if (rates == nullptr) return std::nullopt;
  const double per_clock = multiply_adds(*rates, arithmetic) * share_of_rate(device.variant, arithmetic);
  if (per_clock == 0) return std::nullopt;
  const double flops =
      2.0 * per_clock * device.multiprocessors * static_cast<double>(device.clock_khz) * 1000.0;
  return at_tensor_clock(arithmetic) ? flops * rates->tensor_clock_share : flops;
}

std::optional<double> peak_bandwidth(const DeviceSpecs& device) noexcept {
  if (device.memory_clock_khz <= 0 || device.bus_bits <= 0) return std::nullopt;
  return 2.0 * static_cast<double>(device.memory_clock_khz) * 1000.0 * device.bus_bits / 8;
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
