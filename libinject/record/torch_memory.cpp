// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/torch_memory.h"

#include <time.h>

#include <algorithm>
#include <cerrno>

#include "libinject/base/clock.h"
#include "libinject/base/mapping.h"
#include "libinject/base/ticks.h"
#include "libinject/model/code_place.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/turn.h"

namespace inject {

constinit TorchMemory torch_memory;

namespace {

constexpr Nanoseconds kInterval = 100 * kMicrosecond;
constexpr std::uint32_t kMaxUntimedReports = 15;
constexpr std::array kOf = {MemoryLine::Of::kTorchAllocated, MemoryLine::Of::kTorchReserved};

// The kernel's last written time, in steps of some milliseconds.
std::uint64_t coarse_time() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return nanoseconds(time);
}

// 0 as long as the length of a tick is not known.
std::uint64_t interval_in_ticks() noexcept {
  if (const Core* core = Core::get_if_any(); core != nullptr && !tick_period.known()) core->set_tick_period();
  constexpr std::uint64_t kTicks = 1u << 20;
  const Nanoseconds length = tick_period.between(1, 1 + kTicks);
  return length == 0 ? 0 : kInterval * kTicks / length;
}

}  // namespace

void TorchMemory::note(std::uint32_t device, std::uint64_t allocated, std::uint64_t reserved) noexcept {
  if (!active_.load(std::memory_order_relaxed) || device >= kDevices) return;
  Device& at = devices_[device];
  const Levels levels{allocated, reserved};
  if (at.turn.exchange(true, std::memory_order_acquire)) {
    for (std::size_t i = 0; i < kLevels; ++i) {
      raise_to(at.spilled[i].highest, levels[i]);
      raise_to(at.spilled[i].lowest, ~levels[i]);
      at.spilled[i].last.store(levels[i], std::memory_order_relaxed);
    }
    at.spilled_at.store(ticks(), std::memory_order_relaxed);
    at.any_spilled.store(true, std::memory_order_release);
    return;
  }
  take(at, levels);
  at.turn.store(false, std::memory_order_release);
}

void TorchMemory::make_room(Device& device) noexcept {
  constexpr std::size_t kRoom = MemorySeries::kRoom;
  const int saved_errno = errno;
  auto* room = static_cast<MemoryInterval*>(map_memory(kLevels * kRoom * sizeof(MemoryInterval)));
  errno = saved_errno;
  device.no_room = room == nullptr;
  for (std::size_t i = 0; i < kLevels && room != nullptr; ++i)
    device.series[i].use({room + i * kRoom, kRoom});
  device.reported.store(true, std::memory_order_release);
}

void TorchMemory::take(Device& device, const Levels& levels) noexcept {
  if (!device.series[0].has_room()) {
    if (device.no_room) return;
    make_room(device);
  }
  // Reading the counter takes longer than everything else here (70 ns on a Sapphire Rapids): of reports close
  // together, one in 16 is timed, and those after it get its time.
  const std::uint64_t coarse = coarse_time();
  const std::uint32_t window = open_window(current_window.load(std::memory_order_relaxed));
  if (device.untimed == 0 || coarse != device.coarse || window != device.window) {
    device.latest = ticks();
    device.coarse = coarse;
    device.untimed = kMaxUntimedReports;
  } else {
    --device.untimed;
  }
  const std::uint64_t time = device.latest;
  if (device.any_spilled.load(std::memory_order_relaxed)) {
    take_rest(device);
    take_spilled(device);
  }
  if (time - device.begin_ticks >= device.interval || window != device.window) {
    take_rest(device);
    device.begin = now();
    device.begin_ticks = time;
    device.interval = interval_in_ticks();
    device.window = window;
    for (Rest& rest : device.rests) rest.row_begun = false;
  }
  for (std::size_t i = 0; i < kLevels; ++i) {
    Rest& rest = device.rests[i];
    if (!rest.any && device.series[i].level() == levels[i]) continue;
    if (!rest.row_begun) {
      device.series[i].add(time_of(device, time), levels[i], window);
      rest.row_begun = true;
      continue;
    }
    if (!rest.any) rest = {true, true, levels[i], levels[i], time, levels[i], time};
    rest.lowest = std::min(rest.lowest, levels[i]);
    if (levels[i] > rest.highest) {
      rest.highest = levels[i];
      rest.highest_at = time;
    }
    rest.last = levels[i];
    rest.last_at = time;
  }
}

Nanoseconds TorchMemory::time_of(const Device& device, std::uint64_t at) noexcept {
  return device.begin + tick_period.between(device.begin_ticks, at);
}

void TorchMemory::take_rest(Device& device) noexcept {
  for (std::size_t i = 0; i < kLevels; ++i) {
    Rest& rest = device.rests[i];
    if (!rest.any) continue;
    device.series[i].go_on({device.begin, time_of(device, rest.last_at), rest.lowest, rest.highest,
                            time_of(device, rest.highest_at), rest.last, device.window});
    rest.any = false;
  }
}

// All at one moment, in a row of their own.
void TorchMemory::take_spilled(Device& device) noexcept {
  if (!device.any_spilled.exchange(false, std::memory_order_acquire)) return;
  const Nanoseconds time =
      device.begin == 0 ? now() : time_of(device, device.spilled_at.load(std::memory_order_relaxed));
  for (std::size_t i = 0; i < kLevels; ++i) {
    Spilled& spilled = device.spilled[i];
    const std::uint64_t highest = spilled.highest.exchange(0, std::memory_order_relaxed);
    const std::uint64_t lowest = spilled.lowest.exchange(0, std::memory_order_relaxed);
    if (lowest == 0) continue;  // set again by a report that is just being added
    for (const std::uint64_t level :
         {~lowest, std::max(highest, ~lowest), spilled.last.load(std::memory_order_relaxed)}) {
      if (device.series[i].level() != level) device.series[i].add(time, level, device.window);
    }
  }
}

std::uint64_t TorchMemory::copy(std::vector<MemoryLine>& lines) {
  std::uint64_t missing = 0;
  for (std::uint32_t number = 0; number < kDevices; ++number) {
    Device& device = devices_[number];
    if (!device.reported.load(std::memory_order_acquire)) continue;
    // Before taking the turn: of reports that find it taken, only the highest and lowest level are kept.
    std::array<std::vector<MemoryInterval>, kLevels> copies;
    for (std::vector<MemoryInterval>& copy : copies) copy.reserve(MemorySeries::kRoom);
    const bool has_turn = wait_for_turn(device.turn);
    if (!has_turn || device.no_room) {
      missing += kLevels;
    } else {
      take_rest(device);
      take_spilled(device);
      for (std::size_t i = 0; i < kLevels; ++i) {
        const auto intervals = device.series[i].intervals();
        copies[i].assign(intervals.begin(), intervals.end());
      }
    }
    if (has_turn) device.turn.store(false, std::memory_order_release);
    for (std::size_t i = 0; i < kLevels; ++i) {
      if (!copies[i].empty()) lines.push_back({number, kOf[i], std::move(copies[i])});
    }
  }
  return missing;
}

}  // namespace inject
