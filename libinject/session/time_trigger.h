// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <string>

#include "libinject/session/schedule.h"
#include "libinject/session/trigger.h"

namespace inject {

/// `time:START+LENGTH/EVERYxN`, counted from CUDA's initialisation.
class TimeTrigger : public Trigger {
 public:
  explicit TimeTrigger(const WindowSpec& spec)
      : length_(spec.count), repeats_(spec.every != 0), schedule_(spec), reason_(to_string(spec)) {}

  TriggerAction evaluate(const TriggerState& state) override;
  void opened(std::uint32_t window) override;
  Nanoseconds next_wake(const TriggerState& state) const override;
  bool exhausted(bool /*quota_left*/) const override { return schedule_.done(); }
  bool has_quota() const override { return repeats_; }
  std::string reason() const override { return reason_; }
  std::string why_none(const TriggerState& state) const override;

  /// Closes the window that it has opened once its time is over.
  TriggerAction close_in_time(const TriggerState& state) const;

 private:
  Nanoseconds length_;
  bool repeats_;
  Schedule schedule_;
  const std::string reason_;
  std::uint32_t window_ = 0;
  Nanoseconds attached_for_ = kNever;  // begin of the window for which CUPTI was attached early
};

}  // namespace inject
