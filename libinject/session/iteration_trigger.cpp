// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/iteration_trigger.h"

#include <utility>

#include "libinject/base/format.h"

namespace inject {

IterationPlan IterationTrigger::plan(const FoundIterations& known, IterationPlanInput input) {
  input.first = windows_ == 0;
  if (!unplanned_) unplanned_ = schedule_;
  const IterationPlan plan = plan_iterations(spec_, schedule_, known, input);
  if (plan.result == IterationPlan::Result::kNoMore) over_ = true;
  if (plan.result == IterationPlan::Result::kPlanned) {
    open_at_ = plan.begin;
    close_at_ = plan.end();
    length_ = plan.length;
    wanted_ = spec_.kind == WindowKind::kAuto ? 0 : plan.asked_for.value_or(plan.begin);
  }
  return plan;
}

TriggerAction IterationTrigger::before(std::uint64_t number, bool window) const {
  if (active_) return number < close_at_ ? TriggerAction::kNone : TriggerAction::kClose;
  if (window || !planned()) return TriggerAction::kNone;
  return number < open_at_ ? TriggerAction::kAttach : TriggerAction::kOpen;
}

void IterationTrigger::begin(std::uint64_t number) {
  restart_at(number);
  active_ = true;
  counted_ = false;
}

void IterationTrigger::failed() {
  active_ = false;
  over_ = true;
}

// Other iterations have other numbers: the schedule may have moved past the next windows.
void IterationTrigger::forget_plan() {
  open_at_ = kNoIteration;
  if (unplanned_) schedule_ = *unplanned_;
  unplanned_.reset();
}

void IterationTrigger::give_up() {
  active_ = false;
  if (std::exchange(counted_, false)) --windows_;
  forget_plan();
}

bool IterationTrigger::extend(std::uint64_t count) {
  // CUPTI is attached a few iterations ahead of a window.
  constexpr std::uint64_t kApart = 8;
  const bool is_last = spec_.kind == WindowKind::kAuto || spec_.every == 0 ||
                       (spec_.max_windows != 0 && windows_ >= spec_.max_windows);
  if (!is_last && spec_.every < length_ + count + kApart) return false;
  close_at_ += count;
  return true;
}

void IterationTrigger::end() {
  active_ = counted_ = false;
  unplanned_.reset();
  schedule_.advance();
  if (spec_.kind == WindowKind::kAuto || spec_.every == 0) over_ = true;
  forget_plan();
}

std::string IterationTrigger::name(std::uint64_t first) const {
  return str_format("iterations {}-{} ({})", first, first + length_ - 1, text_);
}

}  // namespace inject
