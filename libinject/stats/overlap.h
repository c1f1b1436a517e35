// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/record/records.h"

namespace inject {

/// How much of the collectives' time the devices computed as well: of each collective's kernel, the time in
/// which at least one kernel that is no collective's ran on the same device, both launched in the same
/// window. Exact in whatever order the kernels come, up to kMostHeld of them that are not judged yet; then
/// the older half of a device's are judged by what has come, and what comes later for that time is counted as
/// late instead. One thread at a time; may throw std::bad_alloc.
class OverlapStatistics {
 public:
  static constexpr std::size_t kMostHeld = 65'536;

  struct Times {
    std::uint64_t time = 0;        ///< of the kernels, as far as they are judged
    std::uint64_t overlapped = 0;  ///< of it
    void merge(const Times& more) {
      time += more.time;
      overlapped += more.overlapped;
    }
  };

  /// A collective has been called: until then kernels are not kept, as most programs have none.
  void expect_collectives() { expected_ = true; }
  void compute(std::uint32_t window, std::uint32_t device, Nanoseconds start, Nanoseconds end);
  /// `row` is the caller's: what times are asked for by.
  void collective(std::uint32_t window, std::uint32_t device, std::uint32_t row, Nanoseconds start,
                  Nanoseconds end);
  /// Nothing more comes for this window, nor for any before it.
  void settle_window(std::uint32_t window);

  /// By row, with what is not settled as it stands.
  std::unordered_map<std::uint32_t, Times> rows() const;
  /// Kernels of which a part came too late to be judged.
  std::uint64_t late() const { return late_; }
  /// Kernels that take memory.
  std::size_t held() const { return held_; }

 private:
  using Rows = std::unordered_map<std::uint32_t, Times>;
  static constexpr Nanoseconds kEver = ~Nanoseconds{0};

  struct Interval {
    Nanoseconds begin;
    Nanoseconds end;
  };
  struct Collective {
    Nanoseconds begin;
    Nanoseconds end;
    std::uint32_t row;
  };
  /// A device in a window.
  struct Timeline {
    std::vector<Interval> computes;
    std::vector<Collective> collectives;
    Nanoseconds floor = 0;  // what was before is judged

    std::size_t held() const { return computes.size() + collectives.size(); }
    void join_computes();
    Nanoseconds middle() const;
    void judge(Nanoseconds until, Rows& rows);
  };

  Timeline* timeline(std::uint32_t window, std::uint32_t device, Nanoseconds& start, Nanoseconds end);
  void bound();

  std::map<std::pair<std::uint32_t, std::uint32_t>, Timeline> timelines_;  // window, device
  Rows rows_;
  std::size_t held_ = 0;
  std::uint64_t late_ = 0;
  std::uint32_t settled_through_ = 0;
  bool expected_ = false;
};

}  // namespace inject
