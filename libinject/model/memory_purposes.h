// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What PyTorch's memory on the devices was for, at one moment: plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// In the order of PURPOSES in memory_reading.py. A byte counts for the first that it has.
enum class MemoryPurpose : std::uint8_t {
  kParameters,      ///< of modules and optimizers
  kGradients,       ///< of those parameters
  kOptimizerState,  ///< what an optimizer keeps for each
  kBuffers,         ///< of modules
  kOtherTensors,    ///< which Python knows, and what else there is in their allocations
  // Allocations that Python knows no tensor of:
  kWorkspaces,     ///< which cuBLAS was given
  kCommunication,  ///< that collectives have read or written
  kNoTensor,       ///< the others
  kRounding,       ///< of sizes, by the allocator
  kPrivatePools,   ///< not allocated, of pools of their own: CUDA graphs use it again as they are replayed
  kCached,         ///< reserved by the allocator, and not allocated
  kOutside,        ///< in use on the device beside the allocator's
};
inline constexpr std::size_t kMemoryPurposes = 12;
/// Those up to kOtherTensors have tensors.
inline constexpr std::size_t kTensorPurposes = 5;

/// Those that stay from one iteration to the next.
inline constexpr std::array kLastingPurposes{MemoryPurpose::kParameters,     MemoryPurpose::kGradients,
                                             MemoryPurpose::kOptimizerState, MemoryPurpose::kBuffers,
                                             MemoryPurpose::kWorkspaces,     MemoryPurpose::kCommunication};

struct LargestTensor {
  std::uint64_t bytes = 0;  ///< 0: there is none
  std::string text;         ///< whose it is, shape and type
};

struct DevicePurposes {
  std::uint32_t device = 0;
  std::uint64_t in_use = 0;          ///< on the device, by all processes; 0: not known
  std::uint64_t peak_allocated = 0;  ///< by the allocator, since it began or the program set it back
  std::uint64_t peak_reserved = 0;   ///< likewise
  std::array<std::uint64_t, kMemoryPurposes> bytes{};
  std::array<bool, kMemoryPurposes> unknown{};  ///< bytes that are among those of kNoTensor
  std::array<std::uint64_t, kMemoryPurposes> tensors{};
  std::array<LargestTensor, kTensorPurposes> largest;
};

struct MemoryPurposes {
  std::vector<DevicePurposes> devices;  ///< those on which the allocator has memory
  /// Tensors whose memory could not be told: what is theirs is in kOtherTensors or kNoTensor.
  std::array<std::uint64_t, kMemoryPurposes> unplaced{};
  std::uint64_t objects = 0;   ///< of Python's that were looked at
  Nanoseconds time = 0;        ///< that the main thread took for it
  Nanoseconds cpu = 0;         ///< processor time of that
  bool at_step = false;        ///< asked for as an optimizer's step began, else at an iteration's end
  bool is_unfinished = false;  ///< it took too long
  std::string error;           ///< why there is nothing
};

}  // namespace inject
