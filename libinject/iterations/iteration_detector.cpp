// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/iteration_detector.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace inject {

namespace {

// If the anchor has not occurred for this many times an iteration's events, the program is doing something
// else.
constexpr double kOverdue = 8;
constexpr double kOverdueUnnamed = 16;
// An iteration of several models has at least this share of the events of the same number of supposed
// iterations.
constexpr double kMostOfTurns = 0.75;
// The number of boundaries after which pattern_of() is certain.
constexpr std::size_t kTurnsLookedAt = 25;
// Once it is known how the steps repeat, this many iterations are awaited for the rest to repeat as well.
constexpr std::uint64_t kCyclesBeforeSteps = 8;
// Bits of the latest eight iterations.
constexpr std::uint32_t kLatestIterations = 0xFF;
// Gradients are accumulated if steps have been as far apart as the two before, this many times in a row.
constexpr std::uint64_t kEquallyApart = 2;
// What ends an iteration without a step no longer comes right before one, in so many iterations.
constexpr std::uint64_t kAwayFromStep = 3;

}  // namespace

void IterationDetector::add(const LaunchSign& sign) {
  if (sign.kind >= SignKind::kMark) return;
  const std::uint64_t position = history_.add(sign);
  if (lock_) {
    const std::uint64_t before = tracker_.number();
    tracker_.track(history_, position);
    if (tracker_.number() != before) look_at_iterations();
  }
  analyse_if_due();
  if (sign.kind != SignKind::kStep) return;
  look_at_cycles();
  lock_by_steps();
}

bool IterationDetector::is_overdue() const {
  return lock_ && static_cast<double>(history_.total() - tracker_.last_anchor()) >
                      (lock_->optimizer ? kOverdue : kOverdueUnnamed) * std::max(lock_->events, 8.0);
}

void IterationDetector::analyse_if_due() {
  const bool overdue = is_overdue();
  const std::uint64_t share =
      lock_ && !overdue ? AnalysisSchedule::kLockedDueShare : AnalysisSchedule::kDueShare;
  const std::uint64_t there = history_.total() - history_.oldest();
  schedule_.count_event();
  for (std::size_t i = 0; i < AnalysisSchedule::kDepths.size(); ++i) {
    const std::uint64_t depth = AnalysisSchedule::kDepths[i];
    if (schedule_.is_due(i, history_.total(), share)) {
      std::int64_t visits = 0;
      // A lock by shape with an optimizer in it is kept as long as it holds.
      if (!lock_ || overdue || !lock_->optimizer || !lock_->by_shape ||
          lock_->marks.begin == IterationMarks::kAnyWork || has_other_steps() || turns_ > 1 ||
          history_.step_is_captured()) {
        const double least = turns_ > 1 ? kMostOfTurns * static_cast<double>(turns_) * lock_->events : 0;
        const auto found = search_.find(history_, std::min(depth, there), schedule_.is_scarce(), least);
        visits = search_.visits();
        if (found && is_better(*found)) accept(*found);
      }
      schedule_.charge(i, visits);
    }
    if (depth >= there) break;
  }
}

// The iterations were identified differently before it was known how the steps repeat.
bool IterationDetector::has_other_steps() const {
  return history_.knows_by_steps() && (lock_->steps == 0 || lock_->steps % steps_each() != 0);
}

// Whether what ends an iteration without a step still comes right before the step of the one that ended
// there: the program may have put other work in between since.
bool IterationDetector::is_before_step(std::uint64_t end) const {
  const auto step = history_.steps().last_before(end);
  if (!step || *step < history_.oldest()) return true;
  const std::uint64_t launched = history_.steps().signs_in(*step);
  const std::uint64_t most = std::min(launched + 2 * SignHistory::kMaxBeforeStep, *step - history_.oldest());
  for (std::uint64_t back = launched + 1; back <= most; ++back)
    if (history_.matches(*step - back, lock_->marks.other_anchor)) return true;
  return false;
}

// A skipped step is not reported, so what comes before it ends an iteration as well, which is wrong if it
// does not belong to the step: if it is the end of the backward pass, gradients may have been accumulated
// later.
void IterationDetector::look_at_steps() {
  const auto begin = tracker_.begin_event();
  if (lock_->marks.other_anchor == 0 || !begin) return latest_.reset();
  const Known now{tracker_.number(), *begin};
  const auto last = std::exchange(latest_, now);
  if (!last) return;
  const StepSequence& steps = history_.steps();
  if ((without_step_ & kLatestIterations) == 0) known_ = last;
  const bool without = steps.count_between(last->begin, now.begin) == 0;
  if (!without) away_from_step_ = is_before_step(now.begin) ? 0 : away_from_step_ + 1;
  without_step_ = without_step_ << 1 | (without ? 1u : 0u);
  ++since_step_;
  if (without) return;
  equally_apart_ = since_step_ > 1 && since_step_ == between_steps_ ? equally_apart_ + 1 : 0;
  between_steps_ = std::exchange(since_step_, 0);
  // Steps that a scaler skips come at no regular distance.
  if (equally_apart_ < kEquallyApart && away_from_step_ < kAwayFromStep) return;
  if (!known_) known_ = last;
  lock_->marks.other_anchor = 0;
  lock_->mixed = lock_->mixed || tracker_.next_number() > known_->number;
  lock_->rough = lock_->rough || lock_->mixed;
  tracker_.follow(history_, lock_->marks, lock_->events, history_.oldest());
  const std::uint64_t until = tracker_.begin_event().value_or(history_.total());
  // At the first lock, they may already have been taken for iterations.
  tracker_.renumber(changes_ == 1
                        ? (steps.count_before(until) - in_vain_) / lock_->steps
                        : known_->number + steps.count_between(known_->begin, until) / lock_->steps);
  lock_->locked_at = history_.total();
  lock_->seen_before = tracker_.number();
  ++changes_;
}

// By names, only an optimizer's kernels identify an iteration: with two models, there is then one for each.
void IterationDetector::look_at_iterations() {
  if (lock_->steps != 0) return look_at_steps();
  if (!lock_->optimizer || !lock_->by_shape) return;
  const auto begin = tracker_.begin_event();
  if (!begin) return;
  boundaries_.insert(boundaries_.begin(), *begin);
  if (boundaries_.size() > kTurnsLookedAt) boundaries_.pop_back();
  // Repeated, but ever more rarely.
  ++followed_;
  if (followed_ % kTurnsLookedAt == 0 && std::has_single_bit(followed_ / kTurnsLookedAt))
    turns_ = pattern_of(history_, boundaries_).value_or(turns_);
}

// Optimizer steps in an iteration, as far as known.
std::uint64_t IterationDetector::steps_each() const {
  return cycles_ * history_.steps().cycle()->length;
}

// A critic may have stepped alone for a while.
void IterationDetector::look_at_cycles() {
  if (!lock_ || !history_.knows_by_steps() || !std::has_single_bit(history_.steps().count())) return;
  const auto cycles = search_.cycles_per_iteration(history_);
  // Models whose steps look alike may alternate, though no pattern shows it.
  if (lock_->steps != 0 && (!cycles || search_.cycles_differ(history_) ||
                            (has_other_steps() && !history_.steps().are_made_anew())))
    lock_->rough = true;
  cycles_ = cycles.value_or(cycles_);
}

// Whether `found` is better than the lock, or just the same iterations again.
bool IterationDetector::is_better(const Repetition& found) const {
  if (!lock_) return true;
  // A graph that contains the step: no more are reported, and what had one is over.
  if (history_.step_is_captured()) {
    const std::uint64_t end = history_.steps().end();
    if (found.optimizer && found.at[0] < end) return false;
    if (lock_->steps != 0 && found.graph && !found.optimizer && found.begin() >= end) return true;
  }
  // With the same number of the program's steps in each, they are the same iterations, which may vary in
  // length.
  const bool same = lock_->steps != 0 && found.steps == lock_->steps && !has_other_steps();
  const bool longer = !same && found.spacing >= 1.5 * lock_->events;
  if (longer && !found.optimizer && repetition_ && !is_overdue() && !replaces(history_, *repetition_, found))
    return false;
  return (found.optimizer && !lock_->optimizer) || longer ||
         (found.optimizer && has_other_steps() && found.steps % steps_each() == 0) ||
         history_.total() - tracker_.last_anchor() >= static_cast<std::uint64_t>(4 * lock_->events) + 16;
}

void IterationDetector::accept(const Repetition& found) {
  if (auto lock = find_marks(history_, found)) follow(std::move(*lock), found.begin(), &found);
}

// For data of varying length, if nothing repeats but the steps. Steps alone are used only after the time it
// takes to find a repetition, since a repetition distinguishes a validation from an iteration.
void IterationDetector::lock_by_steps() {
  const StepSequence& steps = history_.steps();
  const auto& cycle = steps.cycle();
  if (!cycle || cycle->last == 0 || !history_.knows_by_steps()) return;
  if (lock_ && lock_->optimizer && !has_other_steps() && !is_overdue()) return;
  if (steps.count() < StepSequence::kMinSteps + kCyclesBeforeSteps * cycle->length) return;
  const auto now = steps.position(0);
  const auto before = steps.position(kCyclesBeforeSteps * cycle->length);
  if (!now || !before || *before < history_.oldest()) return;
  if (search_.cycles_per_iteration(history_) != 1) return;
  IterationLock lock;
  const std::uint64_t last =
      cycle->key == StepKey::kObject ? optimizer_mark(cycle->last) : history_.step_mark(cycle->last);
  lock.marks = {last, IterationMarks::kAnyWork, IterationMarks::kAnyWork};
  lock.events = static_cast<double>(*now - *before) / kCyclesBeforeSteps;
  lock.optimizer = true;
  lock.by_shape = cycle->key == StepKey::kContents;
  lock.intervals = kCyclesBeforeSteps;
  lock.counted = cycle->length > 1;
  lock.begin_name = "the first work";
  lock.anchor_name = history_.name_of(steps.class_of_last());
  follow(std::move(lock), *before, nullptr);
}

// `found`: what the lock was derived from; null if that is the steps.
void IterationDetector::follow(IterationLock lock, std::uint64_t from, const Repetition* found) {
  // What was taken for iterations before an optimizer was seen, or reported its steps, may have been
  // anything; and with a different number of steps, the old ones are not iterations of this kind.
  const bool told = lock.optimizer && history_.knows_by_steps();
  if (told) lock.steps = found != nullptr ? found->steps : history_.steps().cycle()->length;
  const bool same_kind = lock_ && lock_->steps == lock.steps;
  const bool count_on = lock_ && (told ? same_kind : lock_->optimizer || !lock.optimizer);
  // The new iterations' first event may have been taken for a different one of the old ones.
  // A pass that was captured into a graph was none of them.
  const bool captured = lock_ && lock_->steps != 0 && !told && history_.step_is_captured();
  const auto old_begin = tracker_.begin_event();
  const std::uint64_t old_number = tracker_.number();
  const std::uint64_t old_ones =
      captured ? old_number - (old_begin && *old_begin >= history_.steps().end() ? 1 : 0)
               : old_number + (tracker_.anchor_seen() ? 1 : 0);
  const std::uint64_t old_end = tracker_.last_anchor();
  std::uint64_t first = ~std::uint64_t{0};
  for (std::size_t i = 0; found != nullptr && i < found->once.size(); ++i)
    first = std::min(first, history_.token(found->once[i]).first);
  // The program continues with other kernels: both kinds are iterations.
  const bool continues = found != nullptr && first > old_end;
  const bool told_before = told && lock_ && lock_->steps != 0;
  // Otherwise the old ones were not iterations, but are in the tables if they have been shown.
  lock.mixed = lock_ && (lock_->mixed ||
                         (told_before && !same_kind && !continues && tracker_.next_number() > next_then_));
  next_then_ = tracker_.next_number();

  // Followed through the whole history.
  tracker_.follow(history_, lock.marks, lock.events, from);
  const auto boundary = tracker_.begin_event();
  const StepSequence& steps = history_.steps();
  lock.doubtful = told ? steps.are_doubtful() || (found == nullptr && lock.steps == 1) ||
                             steps.count() < StepSequence::kMinSteps
                       : history_.expects_steps();
  lock.rough =
      lock.rough || lock.mixed || (told && (steps.cycle()->guessed || search_.cycles_differ(history_)));
  if (told && lock.counted) {
    if (!first_ || first_->first != lock.steps) first_ = {lock.steps, first_step_of(history_, lock.steps)};
    lock.rough = lock.rough || first_->second == FirstStep::kSkipped;
    lock.doubtful = lock.doubtful || first_->second == FirstStep::kDoubtful;
  }
  std::uint64_t over = 0;
  if (found != nullptr) {
    // By the boundaries passed, if hardly anything occurs only once.
    const bool counted = found->once.size() < 5 && history_.oldest() == 0 && boundary;
    over = counted ? tracker_.number() : count_before(history_, *found, boundary.value_or(history_.total()));
    if (count_on || (told_before && continues)) {
      if (continues) over += old_ones;
      for (std::size_t i = 0; captured && i < found->once.size(); ++i) {
        const SignHistory::Token& token = history_.token(found->once[i]);
        if (token.kind == SignKind::kGraph)
          over = old_ones + history_.count_before(token.hash, boundary.value_or(history_.total()));
      }
      // The new model may have little in common with the old one; the steps go on.
      if (told && same_kind && old_begin) {
        const std::uint64_t until = boundary.value_or(history_.total());
        const std::uint64_t since = steps.count_between(*old_begin, std::max(until, *old_begin)) / lock.steps;
        const std::uint64_t before = steps.count_between(until, std::max(until, *old_begin)) / lock.steps;
        over = std::max(over, old_number + since - std::min(before, old_number));
      }
    } else if (lock.steps != 0) {
      // Some steps may have been skipped, but none that was not made in vain is without an iteration. What
      // occurs once in an iteration may also occur in a validation, but not what comes right before a step.
      const std::uint64_t until = boundary.value_or(history_.total());
      const auto step = steps.last_before(until);
      if (lock.marks.other_anchor != 0)
        over = std::min(over, history_.count_before(lock.marks.other_anchor, until));
      else if (step && !history_.may_skip_step(*step))
        over = 0;
      over = std::max(over, steps.trained_before(until, lock.steps) / lock.steps);
    }
  } else {
    const std::uint64_t until = boundary.value_or(history_.total());
    over = count_on ? old_ones + steps.count_between(old_end + 1, std::max(until, old_end + 1)) / lock.steps
                    : steps.trained_before(until, lock.steps) / lock.steps;
  }
  if (told && !lock_) in_vain_ = steps.count() - steps.trained_before(steps.end(), lock.steps);
  tracker_.renumber(over);
  lock.locked_at = history_.total();
  lock.seen_before = tracker_.number();
  lock_ = std::move(lock);
  repetition_ = found != nullptr ? std::optional(*found) : std::nullopt;
  boundaries_.clear();
  followed_ = 0;
  without_step_ = 0;
  since_step_ = between_steps_ = equally_apart_ = away_from_step_ = 0;
  latest_.reset();
  turns_ = 1;
  ++changes_;
}

}  // namespace inject
