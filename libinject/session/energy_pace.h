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

/// Readings go on for so long after the edge of a window.
inline constexpr Nanoseconds kNearEdge = kSecond;

/// Processor time that may be spent: an allowance at first, and what comes with time, which is saved up to
/// the allowance. What costs more than there is is paid off before the next.
class ProcessorBudget {
 public:
  /// One part in `parts` of a processor.
  ProcessorBudget(std::uint64_t parts, Nanoseconds allowance) noexcept
      : parts_(parts), allowance_(static_cast<std::int64_t>(allowance)), left_(allowance_) {}

  /// When at least `least` is left, or the whole allowance; not before `now`.
  Nanoseconds next(Nanoseconds now, Nanoseconds least = 0) noexcept;
  void spend(Nanoseconds processor_time) noexcept { left_ -= static_cast<std::int64_t>(processor_time); }

 private:
  std::uint64_t parts_;
  std::int64_t allowance_;
  std::int64_t left_;
  Nanoseconds earned_until_ = 0;
};

/// When the energy counter is read. An edge of a window needs a reading at once and, to be known sharply, one
/// more once the counter has moved; between edges it is read with what these will not need.
class EnergyPace {
 public:
  /// When the next one is due, at `now` or later. `window`: the latest; `moved`: the counter's latest move is
  /// known to have come after that.
  Nanoseconds next(Nanoseconds now, const RangeTracker::Span& window, Nanoseconds moved) noexcept;
  /// The counter has been read at `now`, which took `processor_time`.
  void note(Nanoseconds now, Nanoseconds processor_time) noexcept;
  /// The counter moves every `step`; 0: not known.
  void set_step(Nanoseconds step) noexcept;

 private:
  static constexpr Nanoseconds kShortestPace = 5 * kMillisecond;

  // Three fifths of a thousandth of a processor.
  ProcessorBudget budget_{1667, 18 * kMillisecond};
  Nanoseconds cost_ = 0;              // of a reading, by the latest
  Nanoseconds read_at_ = 0;           // the latest
  Nanoseconds pace_ = kShortestPace;  // until the step is known
};

}  // namespace inject
