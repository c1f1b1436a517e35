// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/program_triggers.h"

namespace inject {

TriggerAction ApiTrigger::profiler_start(const TriggerState& /*state*/) {
  called_ = true;
  return occurrences_.begin() ? TriggerAction::kOpen : TriggerAction::kNone;
}

TriggerAction ApiTrigger::profiler_stop(const TriggerState& /*state*/) {
  occurrences_.end();
  return called_ ? TriggerAction::kClose : TriggerAction::kNone;
}

std::string ApiTrigger::why_none(const TriggerState& /*state*/) const {
  return called_ ? "" : ": it did not call cudaProfilerStart";
}

// Decides by what is open now, not by what has just opened or closed: threads arrive here in any order.
TriggerAction RangeTrigger::ranges_changed(std::uint32_t open, const TriggerState& state) {
  if (open == 0) {
    occurrences_.end();
    const bool ours = state.request != 0 && state.request == request_;
    request_ = 0;
    return ours ? TriggerAction::kClose : TriggerAction::kNone;
  }
  if (!occurrences_.inside()) {
    if (!occurrences_.begin() || state.window != 0) return TriggerAction::kNone;
    request_ = state.next_request;  // other threads call this while it is being opened
    return TriggerAction::kOpen;
  }
  // Another thread's range is opening the window, and this thread's launches belong to it as well.
  return state.pending && state.request == request_ ? TriggerAction::kWait : TriggerAction::kNone;
}

TriggerAction SignalledTrigger::signalled(const TriggerState& state) {
  if (state.window != 0) {
    count_.closing();
    return TriggerAction::kClose;
  }
  return count_.opening() ? TriggerAction::kOpen : TriggerAction::kNone;
}

}  // namespace inject
