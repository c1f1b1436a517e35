// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/energy_reader.h"

#include <iterator>
#include <utility>
#include <vector>

#include "libinject/analysis/energy.h"
#include "libinject/base/clock.h"
#include "libinject/capture/driver.h"
#include "libinject/model/code_place.h"
#include "libinject/record/control.h"

namespace inject {

namespace {

// How often clocks and memory are read.
constexpr Nanoseconds kPace = 50 * kMillisecond;
// Clocks are read this often even if their reserve is not full: longer gaps make them unknown (ClockUse).
constexpr Nanoseconds kLongestPace = 900 * kMillisecond;
// This much of their budgets is reserved for the first second of a window, which may be all there is of it.
constexpr Nanoseconds kKept = 3 * kMillisecond;
// A device may come into use in the middle of a window. Querying the driver may cost much (docs/energy.md),
// so it is queried less and less often.
constexpr Nanoseconds kFirstUsedPace = kSecond;

constexpr const char* kSourceNames[] = {"nvmlDeviceGetTotalEnergyConsumption",
                                        "nvmlDeviceGetPowerUsage",
                                        "nvmlDeviceGetClockInfo (SM)",
                                        "nvmlDeviceGetClockInfo (memory)",
                                        "nvmlDeviceGetTemperature",
                                        "nvmlDeviceGetCurrentClocksEventReasons",
                                        "nvmlDeviceGetMemoryInfo",
                                        "nvmlDeviceGetMaxClockInfo",
                                        "nvmlDeviceGetEnforcedPowerLimit"};

std::uint8_t throttle_reasons(std::uint64_t reasons) {
  std::uint8_t throttled = 0;
  if ((reasons & (nvml::kSwPowerCap | nvml::kHwPowerBrake)) != 0) throttled |= kThrottlePower;
  if ((reasons & (nvml::kSwThermalSlowdown | nvml::kHwThermalSlowdown)) != 0) throttled |= kThrottleHeat;
  if ((reasons & (nvml::kHwSlowdown | nvml::kHwThermalSlowdown | nvml::kHwPowerBrake)) != 0)
    throttled |= kThrottleHardware;
  return throttled;
}

template <typename Number>
std::optional<std::uint32_t> as_32_bits(const std::optional<Number>& value) {
  return value ? std::optional(static_cast<std::uint32_t>(*value)) : std::nullopt;
}

}  // namespace

EnergyReader::EnergyReader(const WindowLog& windows) noexcept : windows_(windows) {}

void EnergyReader::load(void* library, const nvml::MemoryFunctions& memory) {
  get_memory_ = memory;
  nvml::find(library, get_energy_, "nvmlDeviceGetTotalEnergyConsumption");
  nvml::find(library, get_power_, "nvmlDeviceGetPowerUsage");
  nvml::find(library, get_clock_, "nvmlDeviceGetClockInfo");
  nvml::find(library, get_temperature_, "nvmlDeviceGetTemperature");
  nvml::find(library, get_reasons_, "nvmlDeviceGetCurrentClocksEventReasons");
  // Its name until CUDA 12.2.
  if (get_reasons_ == nullptr) nvml::find(library, get_reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons");
  nvml::find(library, get_max_clock_, "nvmlDeviceGetMaxClockInfo");
  nvml::find(library, get_limit_, "nvmlDeviceGetEnforcedPowerLimit");
}

void EnergyReader::add(std::uint32_t number, nvml::Device handle) {
  const MutexLock lock(mutex_);
  Device& device = devices_.emplace_back();
  device.handle = handle;
  device.readings.device = number;
  const bool exists[] = {get_energy_ != nullptr, get_power_ != nullptr,       get_clock_ != nullptr,
                         get_clock_ != nullptr,  get_temperature_ != nullptr, get_reasons_ != nullptr,
                         get_memory_.exist(),    get_max_clock_ != nullptr,   get_limit_ != nullptr};
  static_assert(std::size(exists) == kSources && std::size(kSourceNames) == kSources);
  for (std::size_t i = 0; i < kSources; ++i) device.sources[i].exists = exists[i];
}

void EnergyReader::expect_window(Nanoseconds now) noexcept {
  expected_until_.store(now + kNearEdge, std::memory_order_relaxed);
}

Nanoseconds EnergyReader::near_until() const {
  const RangeTracker::Span latest = latest_window();
  if (latest.begin != 0 && latest.end == 0) return kNever;
  const Nanoseconds expected = expected_until_.load(std::memory_order_relaxed);
  return latest.end == 0 ? expected : std::max(expected, latest.end + kNearEdge);
}

bool EnergyReader::any_usable(Which first, Which last) const {
  return std::any_of(devices_.begin(), devices_.end(), [&](const Device& device) {
    return std::any_of(device.sources + first, device.sources + last + 1,
                       [this](const Source& one) { return reading_ ? one.usable() : one.may_work_again(); });
  });
}

Nanoseconds EnergyReader::next(Nanoseconds now) {
  const Nanoseconds until = near_until();
  // The end has to be noticed: what follows it is a new series.
  if (any_usable(kEnergy, kInUse) && now < until)
    return reading_ ? std::max(now, std::min({energy_due(now), clocks_due(now), memory_due(now), until}))
                    : now;
  reading_ = false;
  return kNever;
}

Nanoseconds EnergyReader::energy_due(Nanoseconds now) {
  if (!any_usable(kEnergy, kEnergy)) return kNever;
  Nanoseconds moved = kNever;
  for (const Device& device : devices_) {
    if (!device.used || !device.sources[kEnergy].usable()) continue;
    const std::vector<EnergyPoint>& points = device.energy.points();
    moved = std::min(moved, points.empty() ? 0 : points.back().after);
  }
  return energy_schedule_.next(now, latest_window(), moved);
}

Nanoseconds EnergyReader::kept(Nanoseconds now) const {
  const RangeTracker::Span latest = latest_window();
  return latest.end == 0 && now < latest.begin + kNearEdge ? 0 : kKept;
}

Nanoseconds EnergyReader::clocks_due(Nanoseconds now) {
  if (!any_usable(kPower, kReasons)) return kNever;
  return std::max(clocks_at_ + kPace, std::min(clock_budget_.next(now, kept(now)),
                                               std::max(clocks_at_ + kLongestPace, clock_budget_.next(now))));
}

Nanoseconds EnergyReader::memory_due(Nanoseconds now) {
  if (!any_usable(kInUse, kInUse)) return kNever;
  return std::max(memory_at_ + kPace, memory_budget_.next(now, kept(now)));
}

Nanoseconds EnergyReader::read(Nanoseconds now, Nanoseconds cpu) {
  if (next(now) == kNever) return thread_cpu_time();
  if (!reading_) {
    for (Device& device : devices_) {
      const MutexLock lock(mutex_);
      device.energy.pause();
      device.limits_read = false;
      for (Source& source : device.sources) source.try_again();
    }
    // Other devices may have come into use since the last series.
    used_due_ = used_pace_ = 0;
  }
  for (Device& device : devices_) {
    if (device.used && !device.limits_read) read_limits(device);
  }
  // Processor time spent since the last time, including this thread's waking up.
  Nanoseconds until = cpu;
  const auto spent = [&until] {
    const Nanoseconds before = std::exchange(until, std::max(until, thread_cpu_time()));
    return until - before;
  };
  if (now >= energy_due(now)) {
    for (Device& device : devices_) {
      if (device.used) read_energy(device);
    }
    energy_schedule_.note(now, spent());
    find_step();
  }
  if (now >= clocks_due(now)) {
    for (Device& device : devices_) {
      if (device.used) read_clocks(device);
    }
    clock_budget_.spend(spent());
    clocks_at_ = now;
  }
  if (now >= memory_due(now)) {
    for (Device& device : devices_) {
      if (device.used) read_memory(device);
    }
    memory_at_ = now;
  }
  memory_budget_.spend(spent());
  const MutexLock lock(mutex_);
  cpu_ += until - cpu;
  if (reading_) time_ += now - read_at_;
  read_at_ = now;
  reading_ = true;
  return until;
}

// Devices in use are known by their primary contexts; as long as none has been active, the program may have
// contexts of its own on any device.
Nanoseconds EnergyReader::find_used(Nanoseconds now) {
  const auto has_context = [](const Device& device) { return device.has_context; };
  if (now < used_due_ || next(now) == kNever || std::all_of(devices_.begin(), devices_.end(), has_context))
    return 0;
  const bool knew_any = std::any_of(devices_.begin(), devices_.end(), has_context);
  used_pace_ = knew_any && used_pace_ != 0 ? 2 * used_pace_ : kFirstUsedPace;
  const Nanoseconds before = thread_cpu_time();
  const std::vector<std::uint32_t> numbers = devices_in_use();
  const MutexLock lock(mutex_);
  for (Device& device : devices_) {
    device.has_context = device.has_context ||
                         std::find(numbers.begin(), numbers.end(), device.readings.device) != numbers.end();
    device.used = device.has_context || (numbers.empty() && !knew_any);
  }
  const Nanoseconds spent = thread_cpu_time() - before;
  clock_budget_.spend(spent);
  used_due_ = std::max(now + used_pace_, clock_budget_.next(now));
  cpu_ += spent;
  return spent;
}

template <typename Function, typename... Arguments>
std::optional<std::uint64_t> EnergyReader::ask(Device& device, Which which, Function* function,
                                               Arguments... arguments) {
  Source& source = device.sources[which];
  std::conditional_t<std::is_same_v<Function, nvml::GetLongNumber>, unsigned long long, unsigned> value = 0;
  if (!source.usable() || !source.worked(function(device.handle, arguments..., &value))) return std::nullopt;
  return value;
}

void EnergyReader::read_limits(Device& device) {
  const auto clock = ask(device, kMaxSm, get_max_clock_, nvml::kSmClock);
  const auto limit = ask(device, kLimit, get_limit_);
  device.limits_read = true;
  const MutexLock lock(mutex_);
  DeviceReadings& readings = device.readings;
  // The limit can be changed at any time: the maximum bounds all.
  readings.max_sm_mhz = std::max(readings.max_sm_mhz, static_cast<std::uint32_t>(clock.value_or(0)));
  readings.limit_mw = std::max(readings.limit_mw, limit.value_or(0));
}

void EnergyReader::read_energy(Device& device) {
  const Nanoseconds begin = now();
  const auto energy = ask(device, kEnergy, get_energy_);
  const Nanoseconds end = now();
  if (!energy) return;
  const MutexLock lock(mutex_);
  device.energy.add(begin, end, *energy, device.readings.limit_mw);
  make_room(device);
}

void EnergyReader::read_clocks(Device& device) {
  ClockReading reading;
  reading.sm_mhz = as_32_bits(ask(device, kSm, get_clock_, nvml::kSmClock));
  reading.memory_mhz = as_32_bits(ask(device, kMemory, get_clock_, nvml::kMemoryClock));
  reading.temperature = as_32_bits(ask(device, kHeat, get_temperature_, nvml::kGpuTemperature));
  reading.milliwatts = as_32_bits(ask(device, kPower, get_power_));
  if (const auto reasons = ask(device, kReasons, get_reasons_))
    reading.throttle_reasons = throttle_reasons(*reasons);
  reading.time = now();
  if (!reading.sm_mhz && !reading.memory_mhz && !reading.temperature && !reading.milliwatts &&
      !reading.throttle_reasons)
    return;
  const MutexLock lock(mutex_);
  ++device.readings.clock_readings;
  device.readings.clocks.push_back(reading);
  make_room(device);
}

void EnergyReader::read_memory(Device& device) {
  Source& source = device.sources[kInUse];
  if (!source.usable()) return;
  nvml::Status status = 0;
  const std::optional<std::uint64_t> bytes = get_memory_.used(device.handle, status);
  source.worked(bytes ? 0 : status);
  if (bytes) add_memory(device, *bytes);
}

void EnergyReader::note_memory(std::uint32_t device, std::uint64_t bytes) {
  for (Device& one : devices_) {
    if (one.readings.device == device && one.used) add_memory(one, bytes);
  }
}

void EnergyReader::add_memory(Device& device, std::uint64_t bytes) {
  const std::uint32_t window = open_window(current_window.load(std::memory_order_relaxed));
  const MutexLock lock(mutex_);
  if (device.memory_room.empty()) {
    device.memory_room.resize(MemorySeries::kRoom);
    device.memory.use(device.memory_room);
  }
  device.memory.add(now(), bytes, window);
}

void EnergyReader::make_room(Device& device) {
  DeviceReadings& readings = device.readings;
  if (device.energy.points().size() > room()) {
    std::vector<Nanoseconds> edges;
    for (const WindowInfo& window : windows_.copy()) {
      edges.push_back(window.start);
      if (window.end != 0) edges.push_back(window.end);
    }
    device.energy.thin_out(edges);
  }
  if (readings.clocks.size() > room()) {
    // The others stand for the time of those that go.
    std::size_t kept = 0;
    for (std::size_t i = 0; i < readings.clocks.size(); ++i) {
      if (i >= readings.clocks.size() / 2 || i % 2 == 0) readings.clocks[kept++] = readings.clocks[i];
    }
    readings.left_out += readings.clocks.size() - kept;
    readings.clocks.resize(kept);
  }
}

void EnergyReader::find_step() {
  Nanoseconds shortest = 0;
  for (const Device& device : devices_) {
    const Nanoseconds step = device.energy.step();
    if (step != 0 && (shortest == 0 || step < shortest)) shortest = step;
  }
  energy_schedule_.set_step(shortest);
}

EnergyInfo EnergyReader::copy() const {
  EnergyInfo info;
  const MutexLock lock(mutex_);
  info.time = time_;
  info.cpu = cpu_;
  for (const Device& device : devices_) {
    // Readings taken before any device was known to be used.
    if (!device.used) continue;
    if (const auto memory = device.memory.intervals(); !memory.empty())
      info.memory.push_back({device.readings.device, MemoryLine::Of::kInUse, {memory.begin(), memory.end()}});
    if (device.energy.count() + device.readings.clock_readings == 0) continue;
    DeviceReadings& readings = info.devices.emplace_back(device.readings);
    readings.energy = device.energy.points();
    readings.energy_readings = device.energy.count();
    readings.resets = device.energy.resets();
    readings.left_out += device.energy.left_out();
    readings.step = device.energy.step();
    for (std::size_t i = 0; i < kSources; ++i) {
      if (!device.sources[i].usable()) readings.missing.emplace_back(kSourceNames[i]);
    }
  }
  return info;
}

}  // namespace inject
