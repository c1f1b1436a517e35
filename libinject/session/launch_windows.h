// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "libinject/pipeline/window_log.h"
#include "libinject/record/launch_trigger.h"
#include "libinject/session/schedule.h"

namespace inject {

/// How far the program is from the next window of `launch:`.
enum class LaunchStage : std::uint8_t {
  kFar,
  kNear,  ///< in one, or soon: activity has to be on
  kOver,  ///< the last one is over
};
LaunchStage launch_stage(const WindowSpec& spec, Schedule schedule, std::uint64_t count);

/// Enters the windows that the launch callback has opened and closed by itself into the log. If one edge of a
/// window was overwritten before it was read here, the window has no times. One thread at a time.
class LaunchWindows {
 public:
  LaunchWindows(const LaunchTrigger& trigger, WindowLog& log, std::string reason)
      : trigger_(trigger), log_(log), reason_(std::move(reason)) {}

  /// Enters new edges.
  void note() { note(0); }
  /// Counting has stopped: the open window ends at `time`.
  void finish(Nanoseconds time) { note(time); }
  /// True if every window that has begun is in the log, with its end if it is over.
  bool up_to_date() const;

 private:
  void note(Nanoseconds finished);
  bool note_begin(bool finished);
  void note_ends(Nanoseconds finished);
  /// True if its slot among the edges has been reused for a later one.
  bool overtaken(std::uint32_t window) const {
    return trigger_.windows_begun() >= std::uint64_t{window} + EdgeTimes::kPlaces;
  }

  const LaunchTrigger& trigger_;
  WindowLog& log_;
  const std::string reason_;
  std::deque<std::uint32_t> open_;  // in the log, without an end
};

}  // namespace inject
