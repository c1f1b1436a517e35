// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// NVML's readings of a device's energy, clocks and memory while windows were open: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libinject/base/time.h"
#include "libinject/model/memory_timeline.h"

namespace inject {

/// The energy counter changed to this value at some time between `after` (the beginning of the reading that
/// found a different value, or the earliest possible time of the change) and `by` (the end of the reading
/// that found it).
struct EnergyPoint {
  Nanoseconds after = 0;  ///< 0: unknown
  Nanoseconds by = 0;     ///< when the reading returned
  std::uint64_t millijoules = 0;
  /// Points of different epochs can't be compared: the counter went backwards, or faster than a GPU can use
  /// energy.
  std::uint32_t epoch = 0;

  bool operator==(const EnergyPoint&) const = default;
};

/// Why clocks were throttled, as bits.
enum ThrottleReason : std::uint8_t { kThrottlePower = 1, kThrottleHeat = 2, kThrottleHardware = 4 };

/// Clocks, temperature and so on at one moment; empty if the driver does not report a value.
struct ClockReading {
  Nanoseconds time = 0;
  std::optional<std::uint32_t> sm_mhz;
  std::optional<std::uint32_t> memory_mhz;
  std::optional<std::uint32_t> temperature;      ///< °C
  std::optional<std::uint32_t> milliwatts;       ///< as the driver averages them
  std::optional<std::uint8_t> throttle_reasons;  ///< ThrottleReason
};

struct DeviceReadings {
  std::uint32_t device = 0;
  std::vector<EnergyPoint> energy;   ///< in order of time
  std::vector<ClockReading> clocks;  ///< likewise
  std::uint32_t max_sm_mhz = 0;      ///< 0: unknown
  std::uint64_t limit_mw = 0;        ///< the power limit in force, 0: unknown
  /// The time from one change of the energy counter to the next; 0: unknown.
  Nanoseconds step = 0;
  std::uint64_t energy_readings = 0;
  std::uint64_t clock_readings = 0;
  std::uint64_t resets = 0;          ///< resets of the counter, which begin a new epoch
  std::uint64_t left_out = 0;        ///< points and readings dropped to make room
  std::vector<std::string> missing;  ///< NVML functions that the driver lacks or refuses
};

struct EnergyInfo {
  std::vector<DeviceReadings> devices;  ///< devices that were read
  std::vector<MemoryLine> memory;       ///< memory in use on them
  Nanoseconds time = 0;                 ///< total duration of reading, including the pauses between readings
  Nanoseconds cpu = 0;                  ///< CPU time of the readings
};

}  // namespace inject
