// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What PyTorch's memory on the devices was used for, at one moment: plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// In the order of PURPOSES in memory_reading.py. A byte counts for the first purpose that applies.
enum class MemoryPurpose : std::uint8_t {
  kParameters,      ///< of modules and optimizers
  kGradients,       ///< of those parameters
  kOptimizerState,  ///< kept by an optimizer for each parameter
  kBuffers,         ///< of modules
  kOtherTensors,    ///< known to Python, and the rest of their allocations
  // Allocations without a tensor known to Python:
  kWorkspaces,     ///< given to cuBLAS
  kCommunication,  ///< read or written by collectives
  kNoTensor,       ///< all others
  kRounding,       ///< of sizes, by the allocator
  kPrivatePools,   ///< unallocated memory in pools of their own: CUDA graphs reuse it when replayed
  kCached,         ///< reserved by the allocator, but not allocated
  kOutside,        ///< in use on the device outside of the allocator
};
inline constexpr std::size_t kMemoryPurposes = 12;
/// The purposes up to kOtherTensors have tensors.
inline constexpr std::size_t kTensorPurposes = 5;

/// Purposes whose memory persists from one iteration to the next.
inline constexpr std::array kLastingPurposes{MemoryPurpose::kParameters,     MemoryPurpose::kGradients,
                                             MemoryPurpose::kOptimizerState, MemoryPurpose::kBuffers,
                                             MemoryPurpose::kWorkspaces,     MemoryPurpose::kCommunication};

struct LargestTensor {
  std::uint64_t bytes = 0;  ///< 0: there is none
  std::string text;         ///< its owner, shape and type
};

struct DevicePurposes {
  std::uint32_t device = 0;
  std::uint64_t in_use = 0;          ///< on the device, by all processes; 0: unknown
  std::uint64_t peak_allocated = 0;  ///< by the allocator, since it started or the program reset the peak
  std::uint64_t peak_reserved = 0;   ///< likewise
  std::array<std::uint64_t, kMemoryPurposes> bytes{};
  std::array<bool, kMemoryPurposes> unknown{};  ///< the bytes are included in kNoTensor
  std::array<std::uint64_t, kMemoryPurposes> tensors{};
  std::array<LargestTensor, kTensorPurposes> largest;
};

struct MemoryPurposes {
  std::vector<DevicePurposes> devices;  ///< those on which the allocator has memory
  /// Tensors whose memory could not be determined: it is included in kOtherTensors or kNoTensor.
  std::array<std::uint64_t, kMemoryPurposes> unplaced{};
  std::uint64_t objects = 0;   ///< number of Python objects examined
  Nanoseconds time = 0;        ///< time that the main thread spent on it
  Nanoseconds cpu = 0;         ///< CPU time spent on it
  bool at_step = false;        ///< requested as an optimizer's step began, else at an iteration's end
  bool is_unfinished = false;  ///< it was stopped because it took too long
  std::string error;           ///< why there is no result
};

}  // namespace inject
