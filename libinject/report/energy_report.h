// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Energy and clocks of windows, iterations and devices. docs/energy.md has the rules.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "libinject/analysis/energy.h"
#include "libinject/model/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// A device in a window or in an iteration of it.
struct EnergyRow {
  const WindowInfo* window = nullptr;
  const IterationRow* iteration = nullptr;  ///< null: the whole window
  std::uint32_t device = 0;
  std::optional<std::uint64_t> duration;  ///< empty until it is over
  // Empty if unknown, or not precise (EnergyAmount::is_precise()).
  std::optional<EnergyAmount> energy;
  std::optional<EnergyAmount> idle;        ///< while no kernel ran; only for a window
  std::optional<double> joules_by_sample;  ///< with INJECT_BATCH=N
  std::optional<double> joules_by_unit;    ///< of work (report/work_units.h)
  ClockUse clocks;
  std::uint32_t max_sm_mhz = 0;  ///< 0: unknown

  std::optional<double> watts() const;
};

/// A device in all windows whose times are known.
struct DeviceEnergy {
  std::uint32_t device = 0;
  // For the windows that have it:
  EnergyAmount energy;
  std::uint64_t duration = 0;
  std::uint32_t windows = 0;               ///< number of those
  std::uint32_t windows_at_all = 0;        ///< closed or open
  std::optional<double> joules_by_sample;  ///< of the latest window that has it
  std::optional<double> joules_by_unit;    ///< likewise
  ClockUse clocks;
  std::uint32_t max_sm_mhz = 0;
};

/// `clocks throttled 63.0% of the time (power 60.0%, heat 3.0%): SM clock then 1410 MHz on average, of at
/// most 1980; this costs at most 18.0% of the time`; empty if they were throttled for less than a hundredth
/// of the time.
std::string throttle_text(const DeviceEnergy& device);

struct EnergyReport {
  std::vector<EnergyRow> rows;  ///< by window and device, then its iterations
  std::vector<DeviceEnergy> devices;

  const DeviceEnergy* device(std::uint32_t number) const;
};

/// `iterations` must outlive the report.
/// `by_host_pace`: whether the durations of a window's iterations on the host are what they take on the
/// device.
EnergyReport energy_report(const Statistics& statistics, const RunInfo& run,
                           const std::vector<IterationRow>& iterations,
                           const std::function<bool(std::uint32_t window)>& by_host_pace);

}  // namespace inject
