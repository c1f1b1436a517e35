// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "libinject/model/records.h"

namespace inject {

/// The time that a device worked: the length of the union of its activities' intervals, as they come. Exact
/// in whatever order they come, up to kMaxIntervals disjoint ones; then the oldest half is only a sum any
/// more, and what comes later for that time is counted as late instead. CUPTI has a buffer for every
/// launching thread: records of one thread come after many younger ones of another.
class BusyTime {
 public:
  static constexpr std::size_t kMaxIntervals = 65'536;

  /// Does nothing but to first() and last() where `end` is not after `start`.
  void add(Nanoseconds start, Nanoseconds end);
  /// Keeps nothing but sums: no more is expected, or there is no room.
  void settle();

  std::uint64_t busy() const;
  /// Earliest start and latest end; 0 if there was nothing.
  Nanoseconds first() const { return first_; }
  Nanoseconds last() const { return last_; }
  bool any() const { return any_; }
  /// Intervals that began before what is only a sum: the part of theirs that lies there is not in busy().
  std::uint64_t late() const { return late_; }
  /// Intervals that take memory.
  std::size_t held() const { return sorted_.size() + unsorted_.size(); }

 private:
  struct Interval {
    Nanoseconds begin;
    Nanoseconds end;
  };
  static constexpr std::size_t kMaxDisordered = 4096;

  void sort_in();
  void make_room();
  void forget(std::size_t count);

  std::vector<Interval> sorted_;  // disjoint, ascending
  std::vector<Interval> unsorted_;
  std::uint64_t sorted_time_ = 0;
  std::uint64_t forgotten_time_ = 0;
  Nanoseconds floor_ = 0;  // end of what is forgotten
  Nanoseconds first_ = 0;
  Nanoseconds last_ = 0;
  std::uint64_t late_ = 0;
  bool any_ = false;
};

}  // namespace inject
