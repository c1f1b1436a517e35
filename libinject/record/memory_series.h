// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "libinject/model/memory_timeline.h"

namespace inject {

/// A level over time in bounded memory: a series of intervals with the lowest and the highest value of each,
/// and when the highest was reached. Each change begins an interval. Once the memory is full, neighbours are
/// merged if together they last no longer than a step, which grows; windows have their own step, because half
/// of the memory is for them. Times without a change that are longer than the step keep their own interval.
/// One thread at a time; allocates nothing.
class MemorySeries {
 public:
  /// Maximum number of intervals, and their size in bytes.
  static constexpr std::size_t kRoom = 2048;

  constexpr MemorySeries() noexcept = default;
  explicit MemorySeries(std::span<MemoryInterval> room) noexcept { use(room); }
  /// Memory for at least 16 intervals. Nothing is kept before this call.
  void use(std::span<MemoryInterval> room) noexcept {
    intervals_ = room.data();
    room_ = room.size();
  }

  /// Merges intervals until at most `most` are left (16 or more).
  static void shorten(std::vector<MemoryInterval>& intervals, std::size_t most) noexcept;

  bool has_room() const noexcept { return room_ != 0; }

  /// The level is `value` from `time` on, in a window or outside any (0); or a reading showed this level.
  /// Times that go backwards count as the latest one.
  void add(Nanoseconds time, std::uint64_t value, std::uint32_t window) noexcept;

  /// Extends the latest interval by `rest`.
  void go_on(MemoryInterval rest) noexcept {
    if (count_ == 0) return;
    MemoryInterval& latest = intervals_[count_ - 1];
    rest.highest_at = std::max(rest.highest_at, latest.last_at);
    rest.last_at = std::max(rest.last_at, rest.highest_at);
    join(latest, rest);
  }

  /// Between the latest change and the next one, the level was also as low and as high as this.
  void widen(std::uint64_t lowest, std::uint64_t highest, Nanoseconds highest_at) noexcept;
  /// The level now; empty if none was added.
  std::optional<std::uint64_t> level() const noexcept {
    return count_ == 0 ? std::nullopt : std::optional(intervals_[count_ - 1].last);
  }

  std::span<const MemoryInterval> intervals() const noexcept { return {intervals_, count_}; }

 private:
  Nanoseconds step_of(const MemoryInterval& interval) const noexcept {
    return interval.window == 0 ? outside_step_ : inside_step_;
  }
  bool may_join(const MemoryInterval& first, const MemoryInterval& second, Nanoseconds end) const noexcept {
    return first.window == second.window && end - first.begin <= step_of(first);
  }
  static void join(MemoryInterval& first, const MemoryInterval& second) noexcept;
  void make_room() noexcept;
  void merge() noexcept;
  bool forget_windows() noexcept;

  MemoryInterval* intervals_ = nullptr;
  std::size_t room_ = 0;
  std::size_t count_ = 0;
  // The maximum duration of a merged interval.
  Nanoseconds inside_step_ = 0;
  Nanoseconds outside_step_ = 0;
  std::uint32_t forgotten_ = 0;  // windows up to this one count as none
};

}  // namespace inject
