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

/// Of one kernel with one launch shape; what is not known is left out.
struct KernelUse {
  std::optional<Occupancy> occupancy;
  std::optional<GridUse> grid;
  /// Nanoseconds that its launches would have taken less, all together, if the same work had kept all
  /// multiprocessors busy: its time times (1 - efficiency).
  std::optional<std::uint64_t> lost_time;
};

/// Nothing is known of a row of many launch shapes, or of one whose device is not among `devices`.
KernelUse kernel_use(const DetailRow& row, std::span<const DeviceInfo> devices) noexcept;

struct RankedKernel {
  DetailRow detail;
  KernelUse use;  ///< all of it known
};

/// Of these rows (Statistics::kernel_details()), those of which it is known, by descending lost time; those
/// that lose equally much stay in their order.
std::vector<RankedKernel> kernels_by_lost_time(std::span<const DetailRow> rows,
                                               std::span<const DeviceInfo> devices);

/// Means over a device's kernels, each weighted with its time.
struct DeviceUse {
  double sm_efficiency = 0;        ///< 0 … 1
  double occupancy = 0;            ///< theoretical, 0 … 1
  std::uint64_t lost_time = 0;     ///< together
  std::uint64_t known_time = 0;    ///< of the kernels that the means are over …
  std::uint64_t unknown_time = 0;  ///< … and of the device's others; rows of many shapes are no device's
};

/// Nothing where none of the device's kernels is known, or they took no time.
std::optional<DeviceUse> device_use(std::span<const DetailRow> rows, std::span<const DeviceInfo> devices,
                                    std::uint32_t device) noexcept;

}  // namespace inject
