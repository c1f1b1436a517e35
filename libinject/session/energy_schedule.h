// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// When readings are due, by what they cost: no clock and no NVML. docs/energy.md has the rules.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libinject/base/time.h"
#include "libinject/pipeline/range_tracker.h"

namespace inject {

/// Readings go on for this long after the edge of a window.
inline constexpr Nanoseconds kNearEdge = kSecond;

/// Processor time that may be spent: an initial allowance, plus a share of elapsed time, which accumulates up
/// to the allowance. An overdraft is paid off before the next reading.
class ProcessorBudget {
 public:
  /// The share is one part in `parts` of a CPU.
  ProcessorBudget(std::uint64_t parts, Nanoseconds allowance) noexcept
      : parts_(parts), allowance_(static_cast<std::int64_t>(allowance)), left_(allowance_) {}

  /// The time from which at least `least`, or the whole allowance, is left; not before `now`.
  Nanoseconds next(Nanoseconds now, Nanoseconds least = 0) noexcept;
  void spend(Nanoseconds processor_time) noexcept { left_ -= static_cast<std::int64_t>(processor_time); }

 private:
  std::uint64_t parts_;
  std::int64_t allowance_;
  std::int64_t left_;
  Nanoseconds earned_until_ = 0;
};

/// When the energy counter is read. An edge of a window needs one reading at once and, to be precise, one
/// more after the counter has moved; between edges it is read with the budget that these do not need.
class EnergySchedule {
 public:
  /// When the next reading is due, at `now` or later. `window`: the latest; `moved`: the counter's latest
  /// move is known to have happened after this time.
  Nanoseconds next(Nanoseconds now, const RangeTracker::Span& window, Nanoseconds moved) noexcept;
  /// The counter has been read at `now`, which took `processor_time`.
  void note(Nanoseconds now, Nanoseconds processor_time) noexcept;
  /// The counter moves every `step`; 0: not known.
  void set_step(Nanoseconds step) noexcept;

 private:
  static constexpr Nanoseconds kShortestPace = 5 * kMillisecond;

  // Three fifths of a thousandth of a CPU.
  ProcessorBudget budget_{1667, 18 * kMillisecond};
  Nanoseconds cost_ = 0;              // of a reading, as last estimated
  Nanoseconds read_at_ = 0;           // the latest reading
  Nanoseconds pace_ = kShortestPace;  // until the step is known
};

}  // namespace inject
