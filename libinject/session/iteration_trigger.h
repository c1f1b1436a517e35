// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <string>

#include "libinject/session/iteration_planner.h"
#include "libinject/session/schedule.h"
#include "libinject/session/trigger.h"

namespace inject {

/// `iter:START+COUNT/EVERYxN`: windows that open and close before an iteration's first launch. Its axis is
/// the number of the iteration that is about to begin.
class IterationTrigger : public Trigger {
 public:
  static constexpr std::uint64_t kNoIteration = ~std::uint64_t{0};

  explicit IterationTrigger(const WindowSpec& spec) : spec_(spec), schedule_(spec), text_(to_string(spec)) {}

  bool exhausted(bool /*quota_left*/) const override { return over_; }
  bool has_quota() const override { return spec_.every != 0; }
  IterationTrigger* iterations() override { return this; }
  bool searches_iterations() const override { return !over_; }

  /// Plans the next window, if `known` suffices for that.
  IterationPlan plan(const FoundIterations& known, IterationPlanInput input);
  bool planned() const { return open_at_ != kNoIteration; }
  /// Plans anew when no window is open: other iterations have been found, or somebody else's window is in the
  /// way.
  void forget_plan();

  /// What to do before iteration `number`; `window`: a window of any kind is open or pending.
  TriggerAction before(std::uint64_t number, bool window) const;
  std::uint64_t open_at() const { return open_at_; }
  std::uint64_t close_at() const { return close_at_; }

  /// Its window is requested before iteration `number`.
  void begin(std::uint64_t number);
  /// The requested window was opened (begun), or could not be (failed); then no further one is tried.
  void begun() {
    ++windows_;
    counted_ = true;
  }
  void failed();
  /// The window gets its full length from iteration `first` on: it opened late, or numbers changed.
  void restart_at(std::uint64_t first) {
    first_ = first;
    close_at_ = first + length_;
  }
  /// First iteration of the window that is open or pending.
  std::uint64_t first() const { return first_; }
  /// True if the window began with iteration `first`, but the iterations that it is for are yet to come.
  /// `next`: the one that begins next.
  bool is_early(std::uint64_t first, std::uint64_t next) const { return first < wanted_ && next <= wanted_; }
  /// The iteration with which it was to begin.
  std::uint64_t wanted() const { return wanted_; }
  /// The window was opened too early, or would be: it does not count, and the next one is planned like it.
  void give_up();
  /// The window is over, and another `count` iterations are to be named before it closes. False if the next
  /// window would come too soon for that.
  bool extend(std::uint64_t count);
  /// The window has ended in any way, or was given up before it began.
  void end();
  /// True if the window that is open or pending closes before an iteration.
  bool active() const { return active_; }

  bool over() const { return over_; }
  void set_over() { over_ = true; }

  /// The name of a window that begins with iteration `first`.
  std::string name(std::uint64_t first) const;

 private:
  const WindowSpec spec_;
  Schedule schedule_;
  std::optional<Schedule> unplanned_;  // as it was before the plan
  const std::string text_;
  std::uint64_t open_at_ = kNoIteration;
  std::uint64_t first_ = 0;
  std::uint64_t close_at_ = kNoIteration;
  std::uint64_t wanted_ = 0;
  std::uint64_t length_ = 0;
  std::uint32_t windows_ = 0;
  bool active_ = false;
  bool counted_ = false;  // counted among windows_
  bool over_ = false;     // no further window
};

}  // namespace inject
