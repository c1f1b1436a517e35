// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "libinject/base/time.h"
#include "libinject/model/memory_timeline.h"
#include "libinject/record/memory_series.h"

namespace inject {

/// What PyTorch's caching allocator holds on each GPU over time: the bytes that it has reserved, and those of
/// them that are allocated to tensors. It reports both with each allocation and free, holding its device's
/// lock, thousands of times in an iteration, so a report must cost next to nothing. Changes within a tenth of
/// a millisecond, on one side of a window's edge, share an interval.
///
/// No lock, no allocation, no system call except for one mapping per device; errno is preserved.
/// Constant-initialised, never destroyed.
class TorchMemory {
 public:
  static constexpr std::uint32_t kDevices = 32;

  void start() noexcept { active_.store(true, std::memory_order_release); }
  /// Stops recording: in a forked child, where CUDA does not work.
  void stop() noexcept { active_.store(false, std::memory_order_release); }

  /// The allocator of this GPU has these numbers of bytes from now on. Any thread.
  void note(std::uint32_t device, std::uint64_t allocated, std::uint64_t reserved) noexcept;

  /// Adds the lines of each device that had reports. Returns the number of missing lines: there was no memory
  /// for them, or a thread does not return from a report. Not for hooks.
  std::uint64_t copy(std::vector<MemoryLine>& lines);

 private:
  static constexpr std::size_t kLevels = 2;  // allocated, reserved
  using Levels = std::array<std::uint64_t, kLevels>;

  /// What was reported after the latest row of the series had begun, within the same interval.
  struct Rest {
    bool any = false;
    bool row_begun = false;  // in the interval
    std::uint64_t lowest = 0;
    std::uint64_t highest = 0;
    std::uint64_t highest_at = 0;  // in ticks
    std::uint64_t last = 0;
    std::uint64_t last_at = 0;
  };
  struct Spilled {
    std::atomic<std::uint64_t> highest{0};
    std::atomic<std::uint64_t> lowest{0};  // its complement; 0: none
    std::atomic<std::uint64_t> last{0};
  };
  struct Device {
    std::atomic<bool> turn{false};
    std::atomic<bool> reported{false};
    // Reports that arrived while another thread had the turn, usually a reader.
    std::atomic<bool> any_spilled{false};
    std::array<Spilled, kLevels> spilled{};
    std::atomic<std::uint64_t> spilled_at{0};  // the latest, in ticks
    // Used by whoever has the turn:
    bool no_room = false;
    std::uint64_t coarse = 0;       // at the latest report
    std::uint64_t latest = 0;       // the latest time, in ticks
    std::uint32_t untimed = 0;      // number of further reports that get this time
    std::uint64_t begin_ticks = 0;  // of the latest interval
    std::uint64_t interval = 0;     // number of ticks for which changes belong to it
    Nanoseconds begin = 0;
    std::uint32_t window = 0;
    std::array<Rest, kLevels> rests{};
    std::array<MemorySeries, kLevels> series{};
  };

  static void make_room(Device& device) noexcept;
  static void take(Device& device, const Levels& levels) noexcept;
  static Nanoseconds time_of(const Device& device, std::uint64_t at) noexcept;
  static void take_rest(Device& device) noexcept;
  static void take_spilled(Device& device) noexcept;

  std::array<Device, kDevices> devices_{};
  std::atomic<bool> active_{false};
};

extern TorchMemory torch_memory;

}  // namespace inject
