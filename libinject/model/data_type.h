// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <string_view>

namespace inject {

/// The type of a tensor's elements. Stored in records: values must not change.
enum class DataType : std::uint8_t {
  kUnknown = 0,
  kF64,
  kF32,
  kF16,
  kBf16,
  kF8E4M3,
  kF8E5M2,
  kF6,
  kF4,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kC64,   ///< two kF32
  kC128,  ///< two kF64
  kC32,   ///< two kF16
  kBool,
  kOther,
  kF8E8M0,  ///< block scale factors for other types
  kC8I,     ///< two kI8
  kCBf16,   ///< two kBf16
};
inline constexpr DataType kLastDataType = DataType::kCBf16;

/// The type in which products are computed and summed up.
enum class ComputeType : std::uint8_t {
  kUnknown = 0,
  kF16,
  kF32,
  kF32Tf32,  ///< fp32 may be rounded to TF32, for tensor cores
  kF32F16,   ///< … to fp16
  kF32Bf16,  ///< … to bf16
  kF64,
  kI32,
  kOther,
};

constexpr std::string_view data_type_name(DataType type) {
  constexpr std::string_view kNames[] = {
      "",         "fp64",     "fp32",         "fp16",         "bf16",         "fp8 e4m3",
      "fp8 e5m2", "fp6",      "fp4",          "int8",         "uint8",        "int16",
      "int32",    "int64",    "complex fp32", "complex fp64", "complex fp16", "bool",
      "other",    "fp8 e8m0", "complex int8", "complex bf16"};
  return kNames[static_cast<unsigned>(type)];
}

constexpr std::string_view compute_type_name(ComputeType type) {
  constexpr std::string_view kNames[] = {"",     "fp16",  "fp32", "fp32 (tf32)", "fp32 (fp16)", "fp32 (bf16)",
                                         "fp64", "int32", "other"};
  return kNames[static_cast<unsigned>(type)];
}

/// Bits of an element, 0 if unknown.
constexpr unsigned data_type_bits(DataType type) {
  switch (type) {
    case DataType::kC128:
      return 128;
    case DataType::kF64:
    case DataType::kI64:
    case DataType::kC64:
      return 64;
    case DataType::kF32:
    case DataType::kI32:
    case DataType::kC32:
    case DataType::kCBf16:
      return 32;
    case DataType::kF16:
    case DataType::kBf16:
    case DataType::kI16:
    case DataType::kC8I:
      return 16;
    case DataType::kF8E4M3:
    case DataType::kF8E5M2:
    case DataType::kF8E8M0:
    case DataType::kI8:
    case DataType::kU8:
    case DataType::kBool:
      return 8;
    case DataType::kF6:
      return 6;
    case DataType::kF4:
      return 4;
    case DataType::kUnknown:
    case DataType::kOther:
      return 0;
  }
  return 0;
}

constexpr bool is_complex(DataType type) {
  return type == DataType::kC32 || type == DataType::kC64 || type == DataType::kC128 ||
         type == DataType::kC8I || type == DataType::kCBf16;
}

}  // namespace inject
