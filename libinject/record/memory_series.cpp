// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/memory_series.h"

#include <algorithm>

namespace inject {

void MemorySeries::join(MemoryInterval& first, const MemoryInterval& second) noexcept {
  first.lowest = std::min(first.lowest, second.lowest);
  if (second.highest > first.highest) {
    first.highest = second.highest;
    first.highest_at = second.highest_at;
  }
  first.last = second.last;
  first.last_at = second.last_at;
}

void MemorySeries::add(Nanoseconds time, std::uint64_t value, std::uint32_t window) noexcept {
  if (room_ == 0) return;
  if (window <= forgotten_) window = 0;
  if (count_ != 0) {
    MemoryInterval& latest = intervals_[count_ - 1];
    time = std::max(time, latest.last_at);
    // Only readings repeat the previous level.
    if (value == latest.last && window == latest.window && time - latest.last_at <= kReadingHolds) {
      latest.last_at = time;
      return;
    }
    // Several changes at one moment: from a late thread.
    if (time == latest.begin) {
      join(latest, {time, time, value, value, time, value, window});
      latest.window = window;
      return;
    }
    // The latest interval has ended now.
    if (count_ >= 2 && may_join(intervals_[count_ - 2], latest, time)) {
      join(intervals_[count_ - 2], latest);
      --count_;
    }
  }
  intervals_[count_++] = {time, time, value, value, time, value, window};
  if (count_ == room_) make_room();
}

void MemorySeries::widen(std::uint64_t lowest, std::uint64_t highest, Nanoseconds highest_at) noexcept {
  if (count_ == 0) return;
  MemoryInterval& latest = intervals_[count_ - 1];
  latest.lowest = std::min(latest.lowest, lowest);
  if (highest <= latest.highest) return;
  latest.highest = highest;
  latest.highest_at = latest.last_at = std::max(highest_at, latest.last_at);
}

void MemorySeries::shorten(std::vector<MemoryInterval>& intervals, std::size_t most) noexcept {
  if (intervals.size() <= most) return;
  MemorySeries series;
  series.intervals_ = intervals.data();
  series.count_ = intervals.size();
  series.room_ = most;
  series.make_room();
  intervals.resize(series.count_);
}

// Frees a quarter, so that this is rarely needed.
void MemorySeries::make_room() noexcept {
  const Nanoseconds whole = intervals_[count_ - 1].last_at - intervals_[0].begin + 1;
  while (count_ > room_ / 4 * 3) {
    std::size_t inside = 0;
    Nanoseconds time_inside = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (intervals_[i].window == 0) continue;
      ++inside;
      time_inside += (i + 1 < count_ ? intervals_[i + 1].begin : intervals_[i].last_at) - intervals_[i].begin;
    }
    // Twice as long, or, the first time, long enough to be likely to suffice.
    const auto lengthen = [this](Nanoseconds& step, Nanoseconds time) {
      step = std::max(2 * step, time / (4 * room_) + 1);
    };
    if (count_ - inside > room_ / 4 && outside_step_ < whole) {
      lengthen(outside_step_, whole - std::min(whole, time_inside));
    } else if (inside > room_ / 2 && inside_step_ < whole) {
      lengthen(inside_step_, time_inside);
    } else if (!forget_windows()) {
      return;  // unreachable: two intervals are left by then
    }
    merge();
  }
}

// The latest interval is not over, and is kept.
void MemorySeries::merge() noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < count_; ++i) {
    if (i + 1 < count_ && may_join(intervals_[kept], intervals_[i], intervals_[i + 1].begin)) {
      join(intervals_[kept], intervals_[i]);
    } else {
      intervals_[++kept] = intervals_[i];
    }
  }
  count_ = kept + 1;
}

// Too many windows for one interval each: forgets the older half.
bool MemorySeries::forget_windows() noexcept {
  const auto is_inside = [](const MemoryInterval& interval) { return interval.window != 0; };
  MemoryInterval* const end = intervals_ + count_;
  auto skip = std::count_if(intervals_, end, is_inside) / 2;
  MemoryInterval* middle = std::find_if(intervals_, end, is_inside);
  while (middle != end && skip-- > 0) middle = std::find_if(middle + 1, end, is_inside);
  if (middle == end) return false;
  forgotten_ = middle->window;
  for (MemoryInterval* one = intervals_; one != end; ++one) {
    if (one->window <= forgotten_) one->window = 0;
  }
  return true;
}

}  // namespace inject
