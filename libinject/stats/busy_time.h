// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// How long a device was busy: the length of the union of its activities' intervals. Exact whatever order
/// they arrive in, up to kMaxIntervals disjoint ones; beyond that, the oldest half is collapsed into a sum,
/// and intervals that arrive later for that time are counted as late. CUPTI has a buffer for each launching
/// thread, so records of one thread may arrive after many newer ones of another.
class BusyTime {
 public:
  static constexpr std::size_t kMaxIntervals = 65'536;

  /// If `end` is not after `start`, only first() and last() are updated.
  void add(Nanoseconds start, Nanoseconds end);
  /// Collapses all intervals into a sum: no more are expected, or there is no room.
  void settle();

  std::uint64_t busy() const;
  /// Earliest start and latest end; 0 if there were none.
  Nanoseconds first() const { return first_; }
  Nanoseconds last() const { return last_; }
  bool any() const { return any_; }
  /// Intervals that began in time already collapsed into a sum; busy() does not include that part of them.
  std::uint64_t late() const { return late_; }
  /// Intervals held in memory.
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
  Nanoseconds floor_ = 0;  // end of the time in forgotten_time_
  Nanoseconds first_ = 0;
  Nanoseconds last_ = 0;
  std::uint64_t late_ = 0;
  bool any_ = false;
};

}  // namespace inject
