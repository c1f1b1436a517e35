// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/kernel_use.h"

#include <algorithm>
#include <array>
#include <limits>

namespace inject {

namespace {

/// The product of a grid's or block's dimensions; 0 if no launch can have them.
std::uint64_t product(const std::array<std::int32_t, 3>& sides) {
  std::uint64_t all = 1;
  for (const std::int32_t side : sides) {
    if (side <= 0) return 0;
    if (all > std::numeric_limits<std::uint64_t>::max() / static_cast<std::uint64_t>(side)) return 0;
    all *= static_cast<std::uint64_t>(side);
  }
  return all;
}

}  // namespace

KernelUse kernel_use(const DetailRow& row, std::span<const DeviceInfo> devices) noexcept {
  KernelUse use;
  const auto device = std::find_if(devices.begin(), devices.end(),
                                   [&row](const DeviceInfo& info) { return info.id == row.device; });
  if (row.other || device == devices.end()) return use;
  LaunchResources launch;
  launch.block_threads = product(row.block);
  launch.registers_per_thread = row.registers_per_thread;
  launch.static_shared_bytes = row.static_shared_bytes;
  launch.dynamic_shared_bytes = row.dynamic_shared_bytes;
  use.occupancy = occupancy_of(*device, launch);
  if (!use.occupancy) return use;
  use.grid = grid_use(product(row.grid), use.occupancy->blocks, device->multiprocessors);
  if (use.grid) {
    const double lost = static_cast<double>(row.time.sum) * (1 - use.grid->efficiency);
    const auto whole = static_cast<std::uint64_t>(lost);
    use.lost_time = lost - static_cast<double>(whole) < 0.5 ? whole : whole + 1;  // std::llround is in libm
  }
  return use;
}

std::vector<RankedKernel> kernels_by_lost_time(std::span<const DetailRow> rows,
                                               std::span<const DeviceInfo> devices) {
  std::vector<RankedKernel> ranked;
  for (const DetailRow& row : rows) {
    const KernelUse use = kernel_use(row, devices);
    if (use.lost_time) ranked.push_back({row, use});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedKernel& a, const RankedKernel& b) {
    return *a.use.lost_time > *b.use.lost_time;
  });
  return ranked;
}

std::optional<DeviceUse> device_use(std::span<const DetailRow> rows, std::span<const DeviceInfo> devices,
                                    std::uint32_t device) noexcept {
  DeviceUse sum;
  for (const DetailRow& row : rows) {
    if (row.other || row.device != device) continue;
    const KernelUse use = kernel_use(row, devices);
    if (!use.lost_time) {
      sum.unknown_time += row.time.sum;
      continue;
    }
    const auto time = static_cast<double>(row.time.sum);
    sum.known_time += row.time.sum;
    sum.lost_time += *use.lost_time;
    sum.sm_efficiency += time * use.grid->efficiency;
    sum.occupancy += time * use.occupancy->share;
  }
  if (sum.known_time == 0) return std::nullopt;
  sum.sm_efficiency /= static_cast<double>(sum.known_time);
  sum.occupancy /= static_cast<double>(sum.known_time);
  return sum;
}

}  // namespace inject
