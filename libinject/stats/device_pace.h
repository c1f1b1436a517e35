// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How long a step takes at least, given the work that it submits to a device:
// docs/iterations.md#where-the-host-runs-ahead.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "libinject/analysis/sample_stats.h"
#include "libinject/stats/device_time.h"
#include "libinject/stats/iterations.h"

namespace inject {

/// An iteration's work on the device that it keeps busiest, in nanoseconds; 0 if unknown.
struct DeviceLoad {
  double work = 0;        ///< the mean: the least that the device needs
  double paced_step = 0;  ///< the host does not run ahead in a step of this length: `work`, with an allowance
                          ///< for other clock rates
  double least_step = 0;  ///< shorter steps do not show the program's pace: likewise, allowing for a mean
                          ///< that is too high
  double launches = 0;    ///< the mean
};

/// Computed from the complete iterations of windows.
class DevicePace {
 public:
  DevicePace(std::span<const IterationRow> rows, const DeviceTimeStatistics& devices);

  const DeviceLoad& load() const { return load_; }
  /// time_of() the iterations.
  const SampleStats& times() const { return times_; }

  /// Time from the end of a complete iteration's last work to that of the next one, on the device that it
  /// keeps busiest (what it launches on other streams may run long before). Empty for the last iteration of a
  /// window. `next`: the following row, null if there is none.
  static std::optional<std::uint64_t> time_of(const IterationRow& row, const IterationRow* next,
                                              const DeviceTimeStatistics& devices);

 private:
  DeviceLoad load_;
  SampleStats times_;
};

}  // namespace inject
