// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "libinject/analysis/idle_time.h"

namespace inject {

/// How a device spent one or more windows: docs/diagnosis.md.
struct DeviceTimes {
  struct Idle {
    std::uint64_t time = 0;
    std::uint64_t gaps = 0;
  };
  std::uint64_t span = 0;          ///< kernel_busy + copy_only + idle()
  std::uint64_t kernel_busy = 0;   ///< at least one kernel ran
  std::uint64_t compute_busy = 0;  ///< at least one kernel ran that is not a collective's
  std::uint64_t kernel_time = 0;   ///< sum of the kernels' durations
  std::uint64_t copy_only = 0;     ///< a copy or memset ran, but no kernel
  std::uint64_t copy_busy = 0;     ///< at least one copy ran, in any direction
  std::uint64_t upload_busy = 0;
  std::uint64_t download_busy = 0;
  std::uint64_t copy_overlapped = 0;  ///< of copy_busy, the time in which a kernel ran as well
  std::array<Idle, kIdleCauses> idle_by_cause{};
  std::uint64_t own_work = 0;  ///< of the idle time due to host compute: host work other than launching
  /// Part of the idle time attributed to waiting for input in which the thread fetched from a data loader.
  FetchTimes fetch_idle{};
  /// Sum over collectives: the time in which at least one other kernel also ran, times the blocks in the
  /// collective's grid.
  std::uint64_t collective_block_time = 0;

  std::uint64_t idle() const;
  /// Idle time in which the host waited, or did work of its own, instead of launching.
  std::uint64_t input_idle() const { return idle(IdleCause::kHostWait) + own_work; }
  std::uint64_t idle(IdleCause cause) const { return idle_by_cause[static_cast<std::size_t>(cause)].time; }
  std::uint64_t exposed_collective() const { return kernel_busy - compute_busy; }
  /// Time lost by kernels running beside collectives: the share of the multiprocessors occupied by the
  /// collectives' blocks. 0 if the number of multiprocessors is unknown.
  std::uint64_t taken_by_collectives(int multiprocessors) const;
  void merge(const DeviceTimes& more);
  /// Undoes merge().
  void remove(const DeviceTimes& part);
};

}  // namespace inject
