// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How well kernels fill their device, from their launch shape and its attributes: columns of
// kernel_detail.csv, and which kernels to look at first. docs/occupancy.md explains them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "libinject/analysis/occupancy.h"
#include "libinject/model/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// How well one kernel with one launch shape uses the device; unknown values are empty.
struct KernelUse {
  std::optional<Occupancy> occupancy;
  std::optional<GridUse> grid;
  /// Nanoseconds that its launches together would have saved if the same work had kept all multiprocessors
  /// busy: total time times (1 - efficiency).
  std::optional<std::uint64_t> lost_time;
};

/// Empty for a row of many launch shapes, or if its device is not among `devices`.
KernelUse kernel_use(const DetailRow& row, std::span<const DeviceInfo> devices) noexcept;

struct RankedKernel {
  DetailRow detail;
  KernelUse use;  ///< with all members known
};

/// The rows (of Statistics::kernel_details()) whose use is known, by descending lost time; ties keep their
/// order.
std::vector<RankedKernel> kernels_by_lost_time(std::span<const DetailRow> rows,
                                               std::span<const DeviceInfo> devices);

/// Means over a device's kernels, weighted by their time.
struct DeviceUse {
  double sm_efficiency = 0;        ///< 0 … 1
  double occupancy = 0;            ///< theoretical, 0 … 1
  std::uint64_t lost_time = 0;     ///< of all these kernels
  std::uint64_t known_time = 0;    ///< of the kernels included in the means …
  std::uint64_t unknown_time = 0;  ///< … and of its other kernels (rows of many shapes belong to no device)
};

/// Empty if nothing is known about any of the device's kernels, or they took no time.
std::optional<DeviceUse> device_use(std::span<const DetailRow> rows, std::span<const DeviceInfo> devices,
                                    std::uint32_t device) noexcept;

}  // namespace inject
