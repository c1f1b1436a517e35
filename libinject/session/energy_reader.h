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
#include "libinject/session/energy_schedule.h"
#include "libinject/session/nvml_api.h"

namespace inject {

/// Reads energy, clocks and memory in use of the devices that the program uses, through NVML, while a window
/// is open or about to be. The energy counter moves every 20 to 100 ms, depending on GPU and driver; the
/// interval is found by watching it. The counter is read several times as often if the budget of processor
/// time allows it (EnergySchedule): all readings take a thousandth of a CPU at most, plus an initial
/// allowance. Used by the reading thread (DeviceReader), except for copy().
class EnergyReader {
 public:
  explicit EnergyReader(const WindowLog& windows) noexcept;
  EnergyReader(const EnergyReader&) = delete;
  EnergyReader& operator=(const EnergyReader&) = delete;

  /// Finds the functions in libnvidia-ml.so.1.
  void load(void* library, const nvml::MemoryFunctions& memory);
  /// Adds a device that NVML knows; once each.
  void add(std::uint32_t device, nvml::Device handle);

  /// A window has opened, has ended, or is about to open: readings go on for at least a second.
  void expect_window(Nanoseconds now) noexcept;
  static constexpr Nanoseconds kNever = ~Nanoseconds{0};
  /// When the next reading is due: at `now` or later, kNever while no window is open or near.
  Nanoseconds next(Nanoseconds now);
  /// Finds out which devices the program uses, from time to time. May wait for a context that is being
  /// created. Returns the processor time that it took, which is charged to the clocks' budget.
  Nanoseconds find_used(Nanoseconds now);
  /// Reads what is due. `cpu`: the thread's processor time from which on it is charged to these readings;
  /// returns its current value.
  Nanoseconds read(Nanoseconds now, Nanoseconds cpu);

  /// Memory in use on a device has been read elsewhere.
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
  /// An NVML function for one device: no longer called once it is known to be missing, nor until the next
  /// series of readings once it has failed a few times in a row.
  struct Source {
    bool exists = false;
    std::atomic<unsigned> failures{0};  // in a row
    bool usable() const { return fewer_failures(kMaxFailures); }
    bool may_work_again() const { return fewer_failures(kNever); }
    void try_again() {
      if (may_work_again()) failures.store(0, std::memory_order_relaxed);
    }
    bool worked(nvml::Status status) {
      const bool never =
          status == nvml::kNotSupported || status == nvml::kNoPermission || status == nvml::kFunctionNotFound;
      failures.store(status == 0 ? 0
                     : never     ? kNever
                                 : failures.load(std::memory_order_relaxed) + 1,
                     std::memory_order_relaxed);
      return status == 0;
    }

   private:
    static constexpr unsigned kMaxFailures = 3;
    static constexpr unsigned kNever = ~0u;
    bool fewer_failures(unsigned than) const {
      return exists && failures.load(std::memory_order_relaxed) < than;
    }
  };
  struct Device {
    nvml::Device handle = nullptr;
    Source sources[kSources];
    bool has_context = false;  // it has been active before
    bool used = false;         // by the program, as far as known; changed only with the lock
    bool limits_read = false;  // in this series of readings
    EnergyReadings energy;     // changed only with the lock
    DeviceReadings readings;   // likewise
    std::vector<MemoryInterval> memory_room;
    MemorySeries memory;  // likewise
  };

  /// Readings go on until this time; kNever while a window is open.
  Nanoseconds near_until() const;
  RangeTracker::Span latest_window() const { return windows_.span(windows_.opened()); }
  Nanoseconds energy_due(Nanoseconds now);
  Nanoseconds clocks_due(Nanoseconds now);
  Nanoseconds memory_due(Nanoseconds now);
  Nanoseconds kept(Nanoseconds now) const;
  /// True if some device has a source in this range that is usable, or will be in a new series of readings.
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

  static constexpr std::size_t kMaxKept = 65'536;  // energy moves and clock readings, of all devices

  const WindowLog& windows_;
  nvml::GetLongNumber* get_energy_ = nullptr;
  nvml::GetNumber* get_power_ = nullptr;
  nvml::GetNumberOf* get_clock_ = nullptr;
  nvml::GetNumberOf* get_temperature_ = nullptr;
  nvml::GetLongNumber* get_reasons_ = nullptr;
  nvml::GetNumberOf* get_max_clock_ = nullptr;
  nvml::GetNumber* get_limit_ = nullptr;
  nvml::MemoryFunctions get_memory_;

  EnergySchedule energy_schedule_;
  // A fifth of a thousandth of a CPU each.
  ProcessorBudget clock_budget_{5000, 6 * kMillisecond};
  ProcessorBudget memory_budget_{5000, 6 * kMillisecond};
  std::atomic<Nanoseconds> expected_until_{0};
  bool reading_ = false;     // in a series of readings
  Nanoseconds read_at_ = 0;  // the latest reading
  Nanoseconds clocks_at_ = 0;
  Nanoseconds memory_at_ = 0;
  Nanoseconds used_due_ = 0;
  Nanoseconds used_pace_ = 0;

  mutable Mutex mutex_;  // lock before the window log's
  std::deque<Device> devices_;
  Nanoseconds time_ INJECT_GUARDED_BY(mutex_) = 0;
  Nanoseconds cpu_ INJECT_GUARDED_BY(mutex_) = 0;
};

}  // namespace inject
