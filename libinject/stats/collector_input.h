// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Converts events into the collectors' inputs.
#pragma once

#include <vector>

#include "libinject/model/events.h"
#include "libinject/stats/device_timeline.h"
#include "libinject/stats/device_work.h"
#include "libinject/stats/iterations.h"
#include "libinject/stats/phases.h"

namespace inject {

/// Adds the event to the counts.
void count(DeviceWork& work, const KernelEvent& event);
void count(DeviceWork& work, const TransferEvent& event);

IterationActivity iteration_activity(const KernelEvent& event);
IterationActivity iteration_activity(const TransferEvent& event);

/// `call`: what the thread was doing in the call that submitted the work.
TimedWork timed_work(const KernelEvent& event, bool collective, HostState call);
TimedWork timed_work(const TransferEvent& event, HostState call);

PhasedWork phased_work(const KernelEvent& event);
PhasedWork phased_work(const TransferEvent& event);

/// What a thread does in each function, looked up once per function.
class FunctionKinds {
 public:
  struct Kind {
    bool known = false;
    HostState state = HostState::kOther;
    bool asks = false;           ///< asks_for_work()
    bool waits_for_all = false;  ///< waits_for_all_work()
  };

  const Kind& of(FunctionId function);

 private:
  std::vector<Kind> kinds_;  // by function
};

}  // namespace inject
