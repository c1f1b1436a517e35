// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// How much of some work's time overlapped with other work, such as collectives with computation: for each
/// piece of the former, the time in which at least one piece of the latter ran on the same device, both
/// launched in the same window. Exact whatever order they arrive in, up to kMaxHeld pieces that are not
/// judged yet; beyond that, the older half of a device's pieces are judged by what has arrived, and pieces
/// that arrive later for that time are counted as late. One thread at a time; may throw std::bad_alloc.
class OverlapStatistics {
 public:
  static constexpr std::size_t kMaxHeld = 65'536;

  struct Times {
    std::uint64_t time = 0;        ///< of the work judged so far
    std::uint64_t overlapped = 0;  ///< the part of `time` that overlapped
    void merge(const Times& more) {
      time += more.time;
      overlapped += more.overlapped;
    }
  };

  /// `from_first_beside`: work before the window's first piece beside it is not judged, since pieces launched
  /// before the window, which are not known, may have overlapped it.
  explicit OverlapStatistics(bool from_first_beside = false) : from_first_beside_(from_first_beside) {}

  /// Announces that work will come. Until then, what runs beside it is not kept, since most programs have no
  /// such work.
  void expect_work() { expected_ = true; }
  /// `row` is the caller's key for the times in rows().
  void work(std::uint32_t window, std::uint32_t device, std::uint32_t row, Nanoseconds start,
            Nanoseconds end);
  void beside(std::uint32_t window, std::uint32_t device, Nanoseconds start, Nanoseconds end);
  /// Device work of that window has no record: it is not judged, except for what has been.
  void lost_work(std::uint32_t window);
  /// Nothing more will come for this window or any before it.
  void settle_window(std::uint32_t window);

  /// By row, with unsettled windows as they stand.
  std::unordered_map<std::uint32_t, Times> rows() const;
  /// Pieces of either kind that came too late, at least in part, to be judged.
  std::uint64_t late() const { return late_; }
  /// Pieces held in memory.
  std::size_t held() const { return held_; }

 private:
  using Rows = std::unordered_map<std::uint32_t, Times>;
  static constexpr Nanoseconds kForever = ~Nanoseconds{0};

  struct Interval {
    Nanoseconds begin;
    Nanoseconds end;
  };
  struct Work {
    Nanoseconds begin;
    Nanoseconds end;
    std::uint32_t row;
  };
  /// A device in a window.
  struct Timeline {
    std::vector<Interval> others;
    std::vector<Work> works;
    Nanoseconds floor = 0;        // everything before has been judged
    Nanoseconds judged_from = 0;  // nothing before is judged

    std::size_t held() const { return others.size() + works.size(); }
    void join_others();
    Nanoseconds middle() const;
    void judge(Nanoseconds until, Rows& rows);
    void halve(Rows& rows);
  };

  Timeline* timeline(std::uint32_t window, std::uint32_t device, Nanoseconds& start, Nanoseconds end);
  void bound();

  std::map<std::pair<std::uint32_t, std::uint32_t>, Timeline> timelines_;  // window, device
  Rows rows_;
  std::size_t held_ = 0;
  std::uint64_t late_ = 0;
  std::uint32_t settled_through_ = 0;
  std::set<std::uint32_t> lost_;  // unsettled windows that lost work
  bool expected_ = false;
  bool from_first_beside_;
};

}  // namespace inject
