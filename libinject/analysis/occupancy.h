// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How many blocks of a launch fit on a multiprocessor at once, and how evenly its grid fills the device.
// docs/occupancy.md has the formulas and what they leave out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libinject/model/device_limits.h"

namespace inject {

struct LaunchResources {
  std::uint64_t block_threads = 0;
  std::uint32_t registers_per_thread = 0;
  std::uint64_t static_shared_bytes = 0;
  std::uint64_t dynamic_shared_bytes = 0;
};

/// What prevents another block from being resident, as bits: several if they tie.
enum Limiter : std::uint8_t {
  kLimitedByRegisters = 1,
  kLimitedBySharedMemory = 2,
  kLimitedByBlockSize = 4,  ///< the multiprocessor's threads, in whole warps
  kLimitedByBlocks = 8,     ///< the multiprocessor's blocks
};

struct Occupancy {
  int blocks = 0;             ///< resident per multiprocessor
  int warps = 0;              ///< of those blocks
  double share = 0;           ///< of the maximum number of warps per multiprocessor, 0 … 1
  std::uint8_t limiters = 0;  ///< bits of Limiter
};

/// Theoretical occupancy, from the vendor's own calculator. Empty rather than estimated if an attribute is
/// missing, the calculator does not know the compute capability or disagrees with the device's attributes, or
/// the launch would not fit. The fields that kernel records have in all CUPTI versions do not include
/// thread-block clusters (whose blocks must all fit at once), barriers, or a preference for cache over shared
/// memory: none of these is assumed to be a limit.
std::optional<Occupancy> occupancy_of(const DeviceLimits& device, const LaunchResources& launch) noexcept;

/// "registers", "shared memory", "block size", "blocks"; ties are joined by "+".
std::string limiter_text(std::uint8_t limiters);

/// How a grid fills the multiprocessors. A wave is as many blocks as are resident at once on all of them.
struct GridUse {
  double waves = 0;
  /// The share of the multiprocessors' time that is used if all blocks take equally long and no other kernel
  /// runs: full waves keep all multiprocessors busy, the last wave only those that get one of its blocks.
  double efficiency = 0;
};

/// Empty for an empty grid, or if the number of multiprocessors or resident blocks is unknown.
std::optional<GridUse> grid_use(std::uint64_t grid_blocks, int resident_blocks, int multiprocessors) noexcept;

}  // namespace inject
