// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/auto_trigger.h"

#include <utility>

namespace inject {

namespace {

// The window of a program without iterations: by this time, most have begun to train.
constexpr Nanoseconds kDelay = 20 * kSecond;
constexpr Nanoseconds kDuration = 5 * kSecond;

WindowSpec by_the_clock() {
  WindowSpec spec;
  spec.kind = WindowKind::kTime;
  spec.start = kDelay;
  spec.count = kDuration;
  return spec;
}

}  // namespace

AutoTrigger::AutoTrigger(const WindowSpec& spec) : api_(spec), iterations_(spec), clock_(by_the_clock()) {}

TriggerAction AutoTrigger::profiler_start(const TriggerState& state) {
  const bool first = !std::exchange(taken_over_, true);
  const TriggerAction action = api_.profiler_start(state);
  const bool other_is_open = state.window != 0 && !state.pending;
  return first && other_is_open && action == TriggerAction::kOpen ? TriggerAction::kReopen : action;
}

TriggerAction AutoTrigger::profiler_stop(const TriggerState& state) {
  return api_.profiler_stop(state);
}

void AutoTrigger::take_over() {
  taken_over_ = true;
  api_.take_over();
}

// By the clock only if no iterations have been found in time.
bool AutoTrigger::timed(const TriggerState& state) const {
  return !taken_over_ && !state.iterations_found && !iterations_.over();
}

TriggerAction AutoTrigger::evaluate(const TriggerState& state) {
  if (state.window != 0) return taken_over_ ? TriggerAction::kNone : clock_.close_in_time(state);
  return timed(state) ? clock_.evaluate(state) : TriggerAction::kNone;
}

void AutoTrigger::opened(std::uint32_t window) {
  clock_.opened(window);
  iterations_.set_over();  // this is the one window: iterations found now are too late for theirs
}

Nanoseconds AutoTrigger::next_wake(const TriggerState& state) const {
  return timed(state) ? clock_.next_wake(state) : kNever;
}

bool AutoTrigger::exhausted(bool /*quota_left*/) const {
  return !taken_over_ && (clock_.exhausted(true) || iterations_.over());
}

}  // namespace inject
