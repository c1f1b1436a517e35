// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/energy_schedule.h"

#include "libinject/analysis/energy.h"

namespace inject {

namespace {

constexpr Nanoseconds kMaxPace = 50 * kMillisecond;
constexpr Nanoseconds kReadingsByStep = 4;
// Until the counter has moved, a reading is followed by a pause of this many times its cost.
constexpr Nanoseconds kPauseByCost = 40;
// Between edges, this many readings are reserved for edges, and at least this much time: a reading after a
// pause may cost far more than the others.
constexpr Nanoseconds kReservedReadings = 16;
constexpr Nanoseconds kReserved = 9 * kMillisecond;

}  // namespace

Nanoseconds ProcessorBudget::next(Nanoseconds now, Nanoseconds least) noexcept {
  if (earned_until_ == 0) earned_until_ = now;
  if (now > earned_until_) {
    const Nanoseconds earned = (now - earned_until_) / parts_;
    left_ = std::min(allowance_, left_ + static_cast<std::int64_t>(earned));
    // Keeps the remainder that is too small to count.
    earned_until_ += earned * parts_;
  }
  const std::int64_t lacking = std::min(allowance_, static_cast<std::int64_t>(least)) - left_;
  return lacking <= 0 ? now : earned_until_ + static_cast<Nanoseconds>(lacking) * parts_;
}

Nanoseconds EnergySchedule::next(Nanoseconds now, const RangeTracker::Span& window,
                                 Nanoseconds moved) noexcept {
  const Nanoseconds pause = std::max(pace_, std::min(kPauseByCost * cost_, kLongestStep));
  const Nanoseconds edge = std::max(window.begin, window.end);
  const bool at_once = read_at_ < edge;
  // Without a reading at its beginning, a window has no energy, and a reading at its end is useless.
  const bool begun = window.end == 0 || read_at_ >= window.begin;
  if (begun && moved < edge && now < edge + kNearEdge) {
    // The first reading at a begin leaves enough for the one at the end, a second one enough for the next
    // edge.
    if (!at_once) return std::max(read_at_ + pause, budget_.next(now, 2 * cost_));
    return budget_.next(now, window.end == 0 ? cost_ : 0);
  }
  return std::max(read_at_ + pause, budget_.next(now, std::max(kReserved, kReservedReadings * cost_)));
}

void EnergySchedule::note(Nanoseconds now, Nanoseconds processor_time) noexcept {
  read_at_ = now;
  budget_.spend(processor_time);
  // The first reading may cost much more than those that follow.
  cost_ = (cost_ + processor_time) / 2;
}

void EnergySchedule::set_step(Nanoseconds step) noexcept {
  if (step != 0) pace_ = std::clamp(step / kReadingsByStep, kShortestPace, kMaxPace);
}

}  // namespace inject
