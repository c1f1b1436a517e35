// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Triggers that the program, or who runs it, pulls: `api`, `nvtx:` and `signal`.
#pragma once

#include <cstdint>
#include <string>

#include "libinject/session/occurrences.h"
#include "libinject/session/trigger.h"

namespace inject {

/// `api`: from cudaProfilerStart to cudaProfilerStop.
class ApiTrigger : public Trigger {
 public:
  explicit ApiTrigger(const WindowSpec& spec) : occurrences_(spec) {}

  TriggerAction profiler_start(const TriggerState& state) override;
  TriggerAction profiler_stop(const TriggerState& state) override;
  void take_over() override { called_ = true; }
  bool wants_profiler_calls() const override { return true; }
  std::string why_none(const TriggerState& state) const override;

 private:
  Occurrences occurrences_;
  bool called_ = false;
};

/// `nvtx:NAME`: while at least one range of that name is open.
class RangeTrigger : public Trigger {
 public:
  explicit RangeTrigger(const WindowSpec& spec) : occurrences_(spec), reason_(to_string(spec)) {}

  TriggerAction ranges_changed(std::uint32_t open, const TriggerState& state) override;
  void requested(std::uint64_t request) override { request_ = request; }
  std::string reason() const override { return reason_; }

 private:
  Occurrences occurrences_;
  const std::string reason_;
  std::uint64_t request_ = 0;  // the window that ranges have opened or are waiting for
};

/// `signal`: opens and closes windows alternately.
class SignalledTrigger : public Trigger {
 public:
  explicit SignalledTrigger(const WindowSpec& spec) : count_(spec), reason_(to_string(spec)) {}

  TriggerAction signalled(const TriggerState& state) override;
  std::string reason() const override { return reason_; }

 private:
  SignalCount count_;
  const std::string reason_;
};

}  // namespace inject
