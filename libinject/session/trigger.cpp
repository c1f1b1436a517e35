// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/trigger.h"

#include "libinject/session/auto_trigger.h"
#include "libinject/session/iteration_trigger.h"
#include "libinject/session/program_triggers.h"
#include "libinject/session/time_trigger.h"

namespace inject {

namespace {

/// `always`: opened by the session when it starts. `launch:` opens its windows in the launch callback
/// (session/launch_control.h).
class NoTrigger : public Trigger {};

}  // namespace

std::unique_ptr<Trigger> make_trigger(const WindowSpec& spec) {
  switch (spec.kind) {
    case WindowKind::kAuto:
      return std::make_unique<AutoTrigger>(spec);
    case WindowKind::kApi:
      return std::make_unique<ApiTrigger>(spec);
    case WindowKind::kTime:
      return std::make_unique<TimeTrigger>(spec);
    case WindowKind::kIteration:
      return std::make_unique<IterationTrigger>(spec);
    case WindowKind::kNvtx:
      return std::make_unique<RangeTrigger>(spec);
    case WindowKind::kSignal:
      return std::make_unique<SignalledTrigger>(spec);
    case WindowKind::kAlways:
    case WindowKind::kLaunch:
    case WindowKind::kOff:
      break;
  }
  return std::make_unique<NoTrigger>();
}

}  // namespace inject
