// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How long a step must take, by the work that it gives a device:
// docs/iterations.md#where-the-host-runs-ahead.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "libinject/analysis/sample_stats.h"
#include "libinject/stats/device_time.h"
#include "libinject/stats/iterations.h"

namespace inject {

/// The work of an iteration on the device that it keeps busiest. In nanoseconds, 0 if not known.
struct DeviceLoad {
  double work = 0;        ///< the mean: what the device can't do without
  double paced_step = 0;  ///< one this long does not run ahead: `work`, with an allowance for other clocks
  double least_step = 0;  ///< shorter ones are not the program's pace: likewise, if the mean is too high
  double launches = 0;    ///< the mean
};

/// Of the complete iterations of windows.
class DevicePace {
 public:
  DevicePace(std::span<const IterationRow> rows, const DeviceTimeStatistics& devices);

  const DeviceLoad& load() const { return load_; }
  /// Of the iterations: time_of().
  const SampleStats& times() const { return times_; }

  /// From the end of a complete iteration's last work to that of the next one, on the device that it keeps
  /// busiest: what it launches on other streams may run long before. Empty for the last one of a window.
  /// `next`: the row after it, null if there is none.
  static std::optional<std::uint64_t> time_of(const IterationRow& row, const IterationRow* next,
                                              const DeviceTimeStatistics& devices);

 private:
  DeviceLoad load_;
  SampleStats times_;
};

}  // namespace inject
