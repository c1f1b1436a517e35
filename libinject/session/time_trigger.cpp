// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/time_trigger.h"

#include "libinject/base/text.h"

namespace inject {

TriggerAction TimeTrigger::close_in_time(const TriggerState& state) const {
  const bool over = state.window == window_ && !state.pending && state.time >= state.window_begin + length_;
  return over ? TriggerAction::kClose : TriggerAction::kNone;
}

TriggerAction TimeTrigger::evaluate(const TriggerState& state) {
  if (state.window != 0) return close_in_time(state);
  const auto window = schedule_.next(state.time);
  if (!window || state.time + state.lead < window->begin) return TriggerAction::kNone;
  if (state.time >= window->begin) return TriggerAction::kOpen;
  if (state.collecting || attached_for_ == window->begin) return TriggerAction::kNone;
  attached_for_ = window->begin;
  return TriggerAction::kAttach;
}

void TimeTrigger::opened(std::uint32_t window) {
  window_ = window;
  schedule_.advance();
}

Nanoseconds TimeTrigger::next_wake(const TriggerState& state) const {
  if (state.window != 0) return kNever;  // our thread is awake while a window is open
  Schedule ahead = schedule_;
  const auto window = ahead.next(state.time);
  if (!window) return kNever;
  // Wake once ahead of it, for CUPTI, unless that is still attached.
  if (state.collecting || attached_for_ == window->begin) return window->begin;
  return window->begin > state.lead ? window->begin - state.lead : 0;
}

std::string TimeTrigger::why_none(const TriggerState& state) const {
  return ": it ran for " + in_ms(state.time) + " with CUDA";
}

}  // namespace inject
