// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/launch_control.h"

#include <utility>

#include "libinject/base/clock.h"
#include "libinject/record/control.h"
#include "libinject/session/session_parts.h"

namespace inject {

LaunchControl::LaunchControl(SessionParts& parts)
    : parts_(parts),
      schedule_(parts.options.window),
      windows_(launch_trigger, parts.log, parts.trigger_text) {}

bool LaunchControl::arm() noexcept {
  const WindowSpec& spec = parts_.options.window;
  armed_ = parts_.arbiter.raise(TracerLevel::kLaunches, false);
  if (!armed_) return false;
  launch_trigger.start = spec.start;
  launch_trigger.length = spec.count;
  launch_trigger.every = spec.every;
  launch_trigger.most_windows = spec.max_windows != 0 ? spec.max_windows
                                : spec.every != 0     ? std::uint64_t{1} << 31
                                                      : 1;
  parts_.core.set_tick_period();
  launch_trigger.counting.store(true, std::memory_order_release);
  parts_.iterations.start_search(SignSource::kCallbacks);
  step();
  return parts_.worker.ensure();
}

void LaunchControl::note() {
  const MutexLock one_at_a_time(windows_mutex_);
  if (!launch_trigger.counting.load(std::memory_order_acquire)) return;
  windows_.note();
  tell_host_reader();
}

// Reports windows that have opened and closed by themselves.
void LaunchControl::tell_host_reader() {
  while (host_window_ <= parts_.log.opened()) {
    const RangeTracker::Span span = parts_.log.span(host_window_);
    if (span.begin != 0 && !std::exchange(host_told_, true))
      parts_.host.window_begins(host_window_, span.begin);
    if (span.end == 0 && host_window_ == parts_.log.opened()) return;
    if (host_told_ && span.end != 0) parts_.host.window_ends(host_window_, span.end);
    host_told_ = false;
    ++host_window_;
  }
}

void LaunchControl::end() {
  launch_trigger.counting.store(false, std::memory_order_release);
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlRecord), std::memory_order_release);
  current_window.store(0, std::memory_order_release);
  {
    const MutexLock one_at_a_time(windows_mutex_);
    windows_.finish(now());
    tell_host_reader();
  }
  armed_ = false;
  parts_.iterations.stop_search();
  parts_.state.collect_from(now());
}

// True if the log has everything that the launch callback has counted.
bool LaunchControl::all_noted() {
  const MutexLock one_at_a_time(windows_mutex_);
  return windows_.up_to_date();
}

// Activity is on only around the windows; the callbacks, which count, are on until the last window is over.
void LaunchControl::step() {
  SessionState& state = parts_.state;
  Tracer& tracer = parts_.cupti.tracer();
  note();
  const std::uint64_t count = launch_trigger.count.load(std::memory_order_acquire);
  switch (launch_stage(parts_.options.window, schedule_, count)) {
    case LaunchStage::kOver:
      // The last thread to launch may not have reported the time yet. No window counts anything meanwhile.
      if (state.ending() || all_noted()) end();
      break;
    case LaunchStage::kNear:
      parts_.arbiter.raise(TracerLevel::kActivity, parts_.worker.running());
      tracer.resume_activity();
      state.collecting = false;
      break;
    case LaunchStage::kFar:
      if (!tracer.activity_on() || state.collecting) break;
      state.collect_from(now());
      control_word.fetch_and(~static_cast<std::uint32_t>(kControlRecord), std::memory_order_seq_cst);
      // We were far from a window; the next one may have opened since.
      if (current_window.load(std::memory_order_seq_cst) != 0)
        control_word.fetch_or(kControlRecord, std::memory_order_release);
      break;
  }
}

}  // namespace inject
