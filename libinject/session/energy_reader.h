// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "libinject/analysis/energy.h"
#include "libinject/base/mutex.h"
#include "libinject/model/device_readings.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/memory_series.h"
#include "libinject/session/energy_pace.h"
#include "libinject/session/nvml_api.h"

namespace inject {

/// Energy, clocks and memory in use of the devices that the program uses, by NVML, while a window is open or
/// about to be. The energy counter moves every 20 to 100 ms, which depends on GPU and driver: how often is
/// found by watching it. It is read several times as often, if the processor time for that allows
/// (EnergyPace): all readings take a thousandth of a processor at most, but for an allowance at the
/// beginning. Used by the thread that reads (DeviceReader), but for copy().
class EnergyReader {
 public:
  explicit EnergyReader(const WindowLog& windows) noexcept;
  EnergyReader(const EnergyReader&) = delete;
  EnergyReader& operator=(const EnergyReader&) = delete;

  /// Finds the functions in libnvidia-ml.so.1.
  void load(void* library, const nvml::MemoryFunctions& memory);
  /// A device that NVML knows; once each.
  void add(std::uint32_t device, nvml::Device handle);

  /// A window has opened, ended, or is about to open: readings go on for a second at least.
  void expect_window(Nanoseconds now) noexcept;
  static constexpr Nanoseconds kNever = ~Nanoseconds{0};
  /// When the next reading is due: at `now` or later, kNever while no window is open or near.
  Nanoseconds next(Nanoseconds now);
  /// Which devices the program uses, from time to time. May wait for a context that is being created.
  /// Returns the processor time that it took, which comes from the clocks' budget.
  Nanoseconds find_used(Nanoseconds now);
  /// Reads what is due. `cpu`: the thread's processor time from which on it is spent for this; returns what
  /// it is now.
  Nanoseconds read(Nanoseconds now, Nanoseconds cpu);

  /// Memory in use on a device has been read otherwise.
  void note_memory(std::uint32_t device, std::uint64_t bytes);

  EnergyInfo copy() const;

 private:
  enum Which : std::uint8_t {
    kEnergy,
    kPower,
    kSm,
    kMemory,
    kHeat,
    kReasons,
    kInUse,
    kMaxSm,
    kLimit,
    kSources
  };
  /// A function of NVML's for one device: no longer asked once it is known not to be there, or has failed a
  /// few times in a row.
  struct Source {
    bool exists = false;
    std::atomic<unsigned> failures{0};  // in a row
    bool usable() const { return exists && failures.load(std::memory_order_relaxed) < kMaxFailures; }
    bool worked(nvml::Status status) {
      const bool never =
          status == nvml::kNotSupported || status == nvml::kNoPermission || status == nvml::kFunctionNotFound;
      failures.store(status == 0 ? 0
                     : never     ? kMaxFailures
                                 : failures.load(std::memory_order_relaxed) + 1,
                     std::memory_order_relaxed);
      return status == 0;
    }
    static constexpr unsigned kMaxFailures = 3;
  };
  struct Device {
    nvml::Device handle = nullptr;
    Source sources[kSources];
    bool has_context = false;  // it was alive once
    bool used = false;         // by the program, as far as that is known; changed with the lock only
    bool limits_read = false;  // in this stretch of readings
    EnergyReadings energy;     // changed with the lock only
    DeviceReadings readings;   // likewise
    std::vector<MemoryInterval> memory_room;
    MemorySeries memory;  // likewise
  };

  /// Readings go on until then; kNever while a window is open.
  Nanoseconds near_until() const;
  RangeTracker::Span latest_window() const { return windows_.span(windows_.opened()); }
  Nanoseconds energy_due(Nanoseconds now);
  Nanoseconds clocks_due(Nanoseconds now);
  Nanoseconds memory_due(Nanoseconds now);
  Nanoseconds kept(Nanoseconds now) const;
  /// Whether a device has one of these.
  bool any_usable(Which first, Which last) const;
  template <typename Function, typename... Arguments>
  std::optional<std::uint64_t> ask(Device& device, Which which, Function* function, Arguments... arguments);
  void read_limits(Device& device);
  void read_energy(Device& device);
  void read_clocks(Device& device);
  void read_memory(Device& device);
  void add_memory(Device& device, std::uint64_t bytes);
  std::size_t room() const { return kMaxKept / std::max<std::size_t>(1, devices_.size()); }
  void make_room(Device& device) INJECT_REQUIRES(mutex_);
  void find_step();

  static constexpr std::size_t kMaxKept = 65'536;  // moves, and readings of clocks, of all devices

  const WindowLog& windows_;
  nvml::GetLongNumber* get_energy_ = nullptr;
  nvml::GetNumber* get_power_ = nullptr;
  nvml::GetNumberOf* get_clock_ = nullptr;
  nvml::GetNumberOf* get_temperature_ = nullptr;
  nvml::GetLongNumber* get_reasons_ = nullptr;
  nvml::GetNumberOf* get_max_clock_ = nullptr;
  nvml::GetNumber* get_limit_ = nullptr;
  nvml::MemoryFunctions get_memory_;

  EnergyPace energy_pace_;
  // A fifth of a thousandth of a processor each.
  ProcessorBudget clock_budget_{5000, 6 * kMillisecond};
  ProcessorBudget memory_budget_{5000, 6 * kMillisecond};
  std::atomic<Nanoseconds> expected_until_{0};
  bool reading_ = false;     // in a stretch of readings
  Nanoseconds read_at_ = 0;  // the latest of them
  Nanoseconds clocks_at_ = 0;
  Nanoseconds memory_at_ = 0;
  Nanoseconds used_due_ = 0;
  Nanoseconds used_pace_ = 0;

  mutable Mutex mutex_;  // before the window log's
  std::deque<Device> devices_;
  Nanoseconds time_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds cpu_ INJECT_GUARDED_BY(mutex_) = 0;
};

}  // namespace inject
