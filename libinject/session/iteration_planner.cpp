// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/iteration_planner.h"

#include <algorithm>

namespace inject {

namespace {

// CUPTI is attached this long before a window's first iteration, in whole iterations, at least one: attaching
// takes some 10 ms, and the first launches after it are slower.
constexpr Nanoseconds kLeadTime = 100 * kMillisecond;
constexpr std::uint64_t kMaxLead = 1000;
constexpr std::uint64_t kAutoIterations = 10;
// `iter:`, for iterations without an optimizer known by name: the first repetition found may be a smaller
// one.
constexpr std::uint64_t kTrustedIterations = 3;

}  // namespace

IterationPlan plan_iterations(const WindowSpec& spec, Schedule& schedule, const FoundIterations& known,
                              const IterationPlanInput& input) {
  IterationPlan plan;
  if (!known.lock) return plan;
  const Nanoseconds duration = std::max<Nanoseconds>(known.typical_duration, 1000);
  plan.lead = std::clamp<std::uint64_t>((kLeadTime + input.attaching) / duration + 1, 1, kMaxLead);
  if (spec.kind == WindowKind::kAuto) {
    if (!known.steady(input.time)) return plan;
    plan.begin = input.soonest + plan.lead;
    plan.length = kAutoIterations;
  } else {
    if (!known.lock->optimizer && known.seen() < kTrustedIterations) return plan;
    auto window = schedule.next(input.soonest);
    // The first window may be late; later windows whose begin has passed are skipped.
    if (window && window->begin < input.soonest && !input.first && spec.every != 0)
      window = schedule.next(window->end);
    if (!window) {
      plan.result = IterationPlan::Result::kNoMore;
      return plan;
    }
    plan.begin = std::max(window->begin, input.soonest);
    plan.length = spec.count;
    if (plan.begin != window->begin) plan.asked_for = window->begin;
  }
  plan.result = IterationPlan::Result::kPlanned;
  return plan;
}

}  // namespace inject
