// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the driver's functions do, by their names in CUPTI, and what their parameters mean. Pure.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "libinject/record/launch_sign.h"

namespace inject {

/// What a driver function does, as far as attribution is concerned.
enum class DriverCall : std::uint8_t { kOther, kLaunch, kGraphLaunch, kCopy, kMemset };

/// Classifies by the driver function's name in CUPTI ("cuLaunchKernelEx_ptsz", "cuMemcpyHtoDAsync_v2").
DriverCall classify_driver_call(const char* name) noexcept;

/// A driver function. `parameters` are those of a call to it, as passed to CUPTI's callbacks: null if there
/// are none.
struct DriverFunction {
  /// How a launch's parameters begin, which determines where its stream is.
  enum class Launch : std::uint8_t { kUnknown, kKernel, kKernelEx, kGraph };

  /// Where copies and memsets have their sizes, except those with `size_is_third`.
  enum class Sizes : std::uint8_t {
    kUnknown,
    kFourth,
    kFifth,
    kFourthAndFifth,
    kCopy2D,
    kCopy3D,
    kPeer3D,
    kBatch
  };

  DriverCall call = DriverCall::kOther;
  Launch launch = Launch::kUnknown;
  Sizes sizes = Sizes::kUnknown;
  SignKind copy{};               ///< the direction of a copy, as far as the name tells
  bool size_is_third = false;    ///< a copy or memset whose third parameter is its size
  bool creates_context = false;  ///< or may create one

  static DriverFunction named(const char* name) noexcept;

  /// The call's third parameter if that is its size, else 0.
  std::uint64_t third_size(const void* parameters) const noexcept;
  /// True for a copy or memset of zero bytes that submits nothing: CUPTI creates no record of it.
  bool submits_nothing(const void* parameters) const noexcept {
    return size_is_third && parameters != nullptr && third_size(parameters) == 0;
  }
  /// True if one of its other sizes is 0, or in a batch all of them, so there is nothing to copy or set.
  /// Whether CUPTI creates records for these has not been measured: they count as launches, and if a record
  /// arrives, it is matched.
  bool is_empty(const void* parameters) const noexcept {
    return sizes != Sizes::kUnknown && parameters != nullptr && has_empty_size(parameters);
  }
  /// A launch's stream; 0 if it is not known.
  std::uint64_t stream(const void* parameters) const noexcept;

 private:
  bool has_empty_size(const void* parameters) const noexcept;
};

inline std::uint64_t DriverFunction::third_size(const void* parameters) const noexcept {
  // Two eight-byte parameters (or ones padded to that) precede the size in all of them.
  static_assert(offsetof(cuMemcpyHtoDAsync_v2_params, ByteCount) == 16 &&
                offsetof(cuMemcpyAsync_params, ByteCount) == 16 &&
                offsetof(cuMemsetD8Async_params, N) == 16 && offsetof(cuMemsetD32_v2_params, N) == 16);
  std::uint64_t size = 0;
  if (size_is_third) std::memcpy(&size, static_cast<const char*>(parameters) + 16, sizeof size);
  return size;
}

inline std::uint64_t DriverFunction::stream(const void* parameters) const noexcept {
  if (parameters == nullptr) return 0;
  switch (launch) {
    case Launch::kKernel:
      return reinterpret_cast<std::uint64_t>(static_cast<const cuLaunchKernel_params*>(parameters)->hStream);
    case Launch::kKernelEx: {
      const auto* config = static_cast<const cuLaunchKernelEx_params*>(parameters)->config;
      return config == nullptr ? 0 : reinterpret_cast<std::uint64_t>(config->hStream);
    }
    case Launch::kGraph:
      return reinterpret_cast<std::uint64_t>(static_cast<const cuGraphLaunch_params*>(parameters)->hStream);
    case Launch::kUnknown:
      break;
  }
  return 0;
}

}  // namespace inject
