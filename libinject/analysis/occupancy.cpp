// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/occupancy.h"

#include <cuda_occupancy.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>
#include <utility>

namespace inject {

namespace {

/// The calculator silently treats an unknown minor version as one that it knows.
bool is_known(const DeviceLimits& device) {
  return device.compute_major < __CUDA_OCC_MAJOR__ ||
         (device.compute_major == __CUDA_OCC_MAJOR__ && device.compute_minor <= __CUDA_OCC_MINOR__);
}

/// Whether the device has the attributes that the calculator uses without checking them.
bool is_complete(const DeviceLimits& device) {
  if (device.compute_major >= 7 && device.shared_per_block_optin <= 0) return false;
  return device.compute_major < 8 || device.reserved_shared_per_block > 0;
}

/// The calculator uses int.
bool fits(const DeviceLimits& device, const LaunchResources& launch) {
  return launch.block_threads > 0 &&
         launch.block_threads <= static_cast<std::uint64_t>(std::max(device.threads_per_block, 0)) &&
         launch.registers_per_thread <= static_cast<std::uint32_t>(std::max(device.registers_per_block, 0)) &&
         launch.static_shared_bytes <= INT_MAX / 4 && launch.dynamic_shared_bytes <= INT_MAX / 4;
}

cudaOccDeviceProp properties_of(const DeviceLimits& device) {
  cudaOccDeviceProp properties;
  properties.computeMajor = device.compute_major;
  properties.computeMinor = device.compute_minor;
  properties.maxThreadsPerBlock = device.threads_per_block;
  properties.maxThreadsPerMultiprocessor = device.threads_per_multiprocessor;
  properties.regsPerBlock = device.registers_per_block;
  properties.regsPerMultiprocessor = device.registers_per_multiprocessor;
  properties.warpSize = device.warp_size;
  properties.sharedMemPerBlock = static_cast<std::size_t>(std::max(device.shared_per_block, 0));
  properties.sharedMemPerMultiprocessor =
      static_cast<std::size_t>(std::max(device.shared_per_multiprocessor, 0));
  properties.numSms = device.multiprocessors;
  properties.sharedMemPerBlockOptin = static_cast<std::size_t>(std::max(device.shared_per_block_optin, 0));
  properties.reservedSharedMemPerBlock =
      static_cast<std::size_t>(std::max(device.reserved_shared_per_block, 0));
  return properties;
}

}  // namespace

std::optional<Occupancy> occupancy_of(const DeviceLimits& device, const LaunchResources& launch) noexcept {
  if (!is_known(device) || !is_complete(device) || !fits(device, launch)) return std::nullopt;
  const cudaOccDeviceProp properties = properties_of(device);
  cudaOccFuncAttributes function;
  function.maxThreadsPerBlock = INT_MAX;  // no limit: it was launched
  function.numRegs = static_cast<int>(launch.registers_per_thread);
  function.sharedSizeBytes = launch.static_shared_bytes;
  // A launch beyond the default limit must have opted in to at least that much.
  function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  function.maxDynamicSharedSizeBytes = launch.dynamic_shared_bytes;
  const cudaOccDeviceState state;
  cudaOccResult result{};
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &function, &state,
                                              static_cast<int>(launch.block_threads),
                                              launch.dynamic_shared_bytes) != CUDA_OCC_SUCCESS ||
      result.activeBlocksPerMultiprocessor <= 0) {
    return std::nullopt;
  }
  // Values known from both the calculator's tables and the device: if they differ, the calculator assumes a
  // different device.
  std::size_t max_shared = 0;
  if (result.blockLimitBlocks != device.blocks_per_multiprocessor ||
      cudaOccSMemPerMultiprocessor(&max_shared, &properties, &state) != CUDA_OCC_SUCCESS ||
      max_shared != properties.sharedMemPerMultiprocessor) {
    return std::nullopt;
  }
  const int block_warps = (static_cast<int>(launch.block_threads) + device.warp_size - 1) / device.warp_size;
  const int max_warps = device.threads_per_multiprocessor / device.warp_size;
  Occupancy occupancy;
  occupancy.blocks = result.activeBlocksPerMultiprocessor;
  occupancy.warps = occupancy.blocks * block_warps;
  occupancy.share = static_cast<double>(occupancy.warps) / max_warps;
  const auto limits = [&](int most, Limiter limiter) {
    if (most == occupancy.blocks) occupancy.limiters |= limiter;
  };
  limits(result.blockLimitRegs, kLimitedByRegisters);
  limits(result.blockLimitSharedMem, kLimitedBySharedMemory);
  limits(result.blockLimitWarps, kLimitedByBlockSize);
  limits(result.blockLimitBlocks, kLimitedByBlocks);
  return occupancy;
}

std::string limiter_text(std::uint8_t limiters) {
  constexpr std::array<std::pair<Limiter, std::string_view>, 4> kNames{
      {{kLimitedByRegisters, "registers"},
       {kLimitedBySharedMemory, "shared memory"},
       {kLimitedByBlockSize, "block size"},
       {kLimitedByBlocks, "blocks"}}};
  std::string text;
  for (const auto& [limiter, name] : kNames) {
    if ((limiters & limiter) == 0) continue;
    if (!text.empty()) text += '+';
    text += name;
  }
  return text;
}

std::optional<GridUse> grid_use(std::uint64_t grid_blocks, int resident_blocks,
                                int multiprocessors) noexcept {
  if (grid_blocks == 0 || resident_blocks <= 0 || multiprocessors <= 0) return std::nullopt;
  const auto all = static_cast<std::uint64_t>(multiprocessors);
  const std::uint64_t wave = all * static_cast<std::uint64_t>(resident_blocks);
  const std::uint64_t full = grid_blocks / wave;
  const std::uint64_t rest = grid_blocks % wave;
  GridUse use;
  use.waves = static_cast<double>(grid_blocks) / static_cast<double>(wave);
  use.efficiency =
      (static_cast<double>(full) + static_cast<double>(std::min(rest, all)) / static_cast<double>(all)) /
      static_cast<double>(full + (rest > 0 ? 1 : 0));
  return use;
}

}  // namespace inject
