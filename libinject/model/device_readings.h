// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What NVML said of a device's energy, clocks and memory while windows were open: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libinject/base/time.h"
#include "libinject/model/memory_timeline.h"

namespace inject {

/// The energy counter moved to this value at some moment between a reading that found another one, or the
/// earliest that it can have moved, and the reading that found it.
struct EnergyPoint {
  Nanoseconds after = 0;  ///< that other reading began, or that moment; 0: neither is known
  Nanoseconds by = 0;     ///< the reading had returned
  std::uint64_t millijoules = 0;
  /// Points of different epochs can't be compared: the counter went backwards, or faster than a GPU can use
  /// energy.
  std::uint32_t epoch = 0;

  bool operator==(const EnergyPoint&) const = default;
};

/// Why clocks were held down, as bits.
enum HeldBy : std::uint8_t { kHeldByPower = 1, kHeldByHeat = 2, kHeldByHardware = 4 };

/// Clocks, temperature and so on at one moment; empty what the driver does not tell.
struct ClockReading {
  Nanoseconds time = 0;
  std::optional<std::uint32_t> sm_mhz;
  std::optional<std::uint32_t> memory_mhz;
  std::optional<std::uint32_t> temperature;  ///< °C
  std::optional<std::uint32_t> milliwatts;   ///< as the driver averages them
  std::optional<std::uint8_t> held_by;       ///< HeldBy
};

struct DeviceReadings {
  std::uint32_t device = 0;
  std::vector<EnergyPoint> energy;   ///< in order of time
  std::vector<ClockReading> clocks;  ///< likewise
  std::uint32_t max_sm_mhz = 0;      ///< 0: not known
  std::uint64_t limit_mw = 0;        ///< the power limit in force, 0: not known
  /// The time from one move of the energy counter to the next; 0: not known.
  Nanoseconds step = 0;
  std::uint64_t energy_readings = 0;
  std::uint64_t clock_readings = 0;
  std::uint64_t resets = 0;          ///< of the counter: epochs begun
  std::uint64_t left_out = 0;        ///< points and readings forgotten, for room
  std::vector<std::string> missing;  ///< NVML's functions that the driver lacks or refuses
};

struct EnergyInfo {
  std::vector<DeviceReadings> devices;  ///< that were read
  std::vector<MemoryLine> memory;       ///< in use on them
  Nanoseconds time = 0;                 ///< how long readings went on, pauses between them included
  Nanoseconds cpu = 0;                  ///< processor time of the readings
};

}  // namespace inject
