// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <string>

#include "libinject/session/iteration_trigger.h"
#include "libinject/session/program_triggers.h"
#include "libinject/session/time_trigger.h"
#include "libinject/session/trigger.h"

namespace inject {

/// `auto`: the windows that the program opens itself. If it opens none: ten iterations, or five seconds by
/// the clock if no iterations are found in time.
class AutoTrigger : public Trigger {
 public:
  explicit AutoTrigger(const WindowSpec& spec);

  TriggerAction profiler_start(const TriggerState& state) override;
  TriggerAction profiler_stop(const TriggerState& state) override;
  void take_over() override;
  bool program_drives() const override { return taken_over_; }

  TriggerAction evaluate(const TriggerState& state) override;
  void opened(std::uint32_t window) override;
  Nanoseconds next_wake(const TriggerState& state) const override;

  bool exhausted(bool quota_left) const override;
  bool wants_profiler_calls() const override { return true; }
  IterationTrigger* iterations() override { return &iterations_; }
  bool searches_iterations() const override { return !taken_over_ && !iterations_.over(); }
  std::string reason() const override { return clock_.reason(); }

 private:
  bool timed(const TriggerState& state) const;

  ApiTrigger api_;
  IterationTrigger iterations_;
  TimeTrigger clock_;
  bool taken_over_ = false;  // the program opens its windows
};

}  // namespace inject
