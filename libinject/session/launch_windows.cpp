// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/launch_windows.h"

#include <algorithm>

namespace inject {

namespace {

// Activity is switched on this many launches ahead of a window's first one.
constexpr std::uint64_t kLead = 20'000;

}  // namespace

LaunchStage launch_stage(const WindowSpec& spec, Schedule schedule, std::uint64_t count) {
  const auto window = schedule.next(count);
  const bool last_over =
      spec.max_windows != 0 && count >= spec.start + (spec.max_windows - 1) * spec.every + spec.count;
  const bool only_over = spec.every == 0 && count > spec.start + spec.count;
  if (!window || last_over || only_over) return LaunchStage::kOver;
  return count + kLead >= window->begin ? LaunchStage::kNear : LaunchStage::kFar;
}

bool LaunchWindows::up_to_date() const {
  return log_.opened() >= trigger_.windows_begun() &&
         std::none_of(open_.begin(), open_.end(),
                      [this](std::uint32_t window) { return trigger_.window_over(window); });
}

// Alternately, because the log may forget an open window if very many others follow.
void LaunchWindows::note(Nanoseconds finished) {
  do {
    note_ends(finished);
  } while (note_begin(finished != 0));
}

bool LaunchWindows::note_begin(bool finished) {
  const std::uint32_t window = log_.opened() + 1;
  const Nanoseconds begin = trigger_.opened.read(window);
  if (begin == 0) {
    // A thread that has counted a launch may be preempted before it reports the time.
    const bool lost = finished ? window <= trigger_.windows_begun() : overtaken(window);
    if (!lost) return false;
  }
  log_.open(reason_, begin);
  if (begin == 0) {
    log_.end_without_times(window);
  } else {
    open_.push_back(window);
  }
  return true;
}

void LaunchWindows::note_ends(Nanoseconds finished) {
  std::erase_if(open_, [&](std::uint32_t window) {
    const Nanoseconds end = trigger_.closed.read(window);
    if (end != 0) {
      log_.end(window, end);
    } else if (overtaken(window) || (finished != 0 && trigger_.window_over(window))) {
      log_.end_without_times(window);
    } else if (finished != 0) {
      log_.end(window, finished);
    } else {
      return false;
    }
    return true;
  });
}

}  // namespace inject
