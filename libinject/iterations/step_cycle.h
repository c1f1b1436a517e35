// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "libinject/base/time.h"

namespace inject {

/// What distinguishes the optimizer steps of a program.
enum class StepKey : std::uint8_t {
  kContents,  ///< what their steps launch
  kObject,    ///< the optimizer that steps
  kClass,
};

/// How a program's optimizer steps repeat: an iteration has `length` of them.
struct StepCycle {
  std::uint64_t length = 0;
  StepKey key = StepKey::kClass;
  /// Distinguishes the last step of an iteration from all others: its contents, object or class; 0 if nothing
  /// does.
  std::uint32_t last = 0;
  /// Different iterations came before, and which step is the last is a guess.
  bool guessed = false;
  /// It may be a single optimizer, not known or made anew now and then, that launches more in some of its
  /// steps.
  bool may_be_one = false;

  bool operator==(const StepCycle&) const = default;
};

/// A step. Equal values of `optimizer`, `contents` and `object` mean the same thing.
struct OptimizerStep {
  std::uint32_t optimizer = 0;  ///< its class; not 0
  std::uint32_t contents = 0;   ///< of its launches; not 0
  std::uint64_t position = 0;   ///< of its sign
  std::uint64_t signs = 0;      ///< signs made during the step
  std::uint32_t object = 0;     ///< the optimizer object; 0: unknown
  std::uint32_t thread = 0;
};

/// The optimizer steps reported by a program, in order. Two optimizers of one class launch different kernels
/// if their parameters differ in number or size, so a step is identified by what it launched. If that varies
/// from step to step, it is identified by the optimizer object, or by its class if the object is unknown, or
/// if no such object recurs. The object is not tried first: the addresses of optimizers that are created anew
/// for each task alternate.
///
/// If all steps are one object's, and what lies between them is alike, each is a cycle for itself: an
/// optimizer may launch more in every tenth step.
///
/// A cycle is accepted once the latest steps are at least kMinCycles of it. They must be half of all steps
/// (since a cycle ended, if one did): a critic may take many steps before the generator's first. The required
/// number of cycles doubles each time a cycle of this length has ended, or four of other lengths have: in
/// random order, a few steps repeat now and then.
class StepSequence {
 public:
  /// This many steps must be seen before anything is concluded.
  static constexpr std::uint64_t kMinSteps = 6;
  static constexpr std::uint64_t kMinCycles = 3;
  /// By class alone, only once a cycle of contents would have been seen. (An optimizer for each parameter
  /// steps hundreds of times in an iteration, and an iteration may take seconds.) Longer if contents recur.
  static constexpr std::uint64_t kMinStepsByClass = 24;
  static constexpr Nanoseconds kMinTimeByClass = 10 * kSecond;
  static constexpr Nanoseconds kMinTimeAlike = 60 * kSecond;
  /// If no cycle has been found by then, the steps are in no order.
  static constexpr std::uint64_t kPatience = 16'384;

  /// Only windows are observed, and these may have few steps: fewer repetitions are accepted as well.
  void expect_few() { few_ = true; }
  void add(const OptimizerStep& step, Nanoseconds time);
  /// Whether the steps' contents give a cycle of several, or none any more, but all steps may be those of one
  /// optimizer: take_for_one() then, if what lies between them is alike. To be asked after each add().
  bool may_be_one() const;
  void take_for_one();
  /// Whether the optimizer that steps is another object than a cycle ago.
  bool are_made_anew() const;
  /// The program ran on unobserved.
  void resume();

  std::uint64_t count() const { return count_; }
  /// Position after the last step; 0 if there was none.
  std::uint64_t end() const { return steps_.empty() ? 0 : steps_.back().position + 1; }
  /// The largest number of events between two steps.
  std::uint64_t longest_gap() const { return longest_gap_; }
  /// How the latest steps repeat.
  const std::optional<StepCycle>& cycle() const { return cycle_; }
  /// Whether it is too early to tell if they repeat.
  bool is_open() const;
  /// Number of steps before that position, as long as those after it are kept.
  std::uint64_t count_before(std::uint64_t position) const;
  /// The same without those that were made in vain, with hardly any work before them: a program may step once
  /// before it trains, and an optimizer that rarely steps may do so right after another one. What is usual
  /// follows from the latest steps, `each` of which make an iteration.
  std::uint64_t trained_before(std::uint64_t position, std::uint64_t each) const;
  /// Number of steps in [from, to).
  std::uint64_t count_between(std::uint64_t from, std::uint64_t to) const {
    return count_before(to) - count_before(from);
  }
  /// Whether a cycle has exactly one step of that optimizer.
  bool has_one_of(std::uint32_t optimizer) const;
  /// The number of signs in the first step from that position on, as long as it is kept.
  std::uint64_t signs_in(std::uint64_t position) const;
  /// Position of the first step from that position on, and of the last one before it, while they are kept.
  std::optional<std::uint64_t> first_from(std::uint64_t position) const;
  std::optional<std::uint64_t> last_before(std::uint64_t position) const;
  /// Position of the last step of the first iteration, as long as it is kept.
  std::optional<std::uint64_t> first_last_step() const;
  /// Position of the step `back` steps before the latest.
  std::optional<std::uint64_t> position(std::uint64_t back) const;
  /// Whether the step at that position matches `cycle()->last`, as long as it is kept.
  bool is_last(std::uint64_t position) const;
  /// Whether the optimizer of the step at that position has this optimizer_mark(), as long as it is kept.
  bool has_mark(std::uint64_t position, std::uint64_t mark) const;
  /// The class of the optimizer whose step is the last of an iteration.
  std::uint32_t class_of_last() const;
  /// Whether it is doubtful that optimizers are distinguished correctly, or which step is the last: in the
  /// latest cycles the objects differ from cycle to cycle, only two alternating objects repeat, or several
  /// threads step.
  bool are_doubtful() const;

 private:
  static constexpr std::size_t kMaxSteps = 16'384;
  static constexpr unsigned kMaxGaps = 4;

  const OptimizerStep& step(std::uint64_t back) const { return steps_[steps_.size() - 1 - back]; }
  /// Null if it is not kept any more.
  const OptimizerStep* at(std::uint64_t position) const;
  static std::uint32_t token(const OptimizerStep& step, StepKey key) {
    return key == StepKey::kContents ? step.contents : key == StepKey::kObject ? step.object : step.optimizer;
  }
  std::uint32_t token(std::uint64_t back, StepKey key) const { return token(step(back), key); }
  /// The number of latest steps that may be compared with each other: those since the last gap.
  std::uint64_t comparable() const;
  /// The events between the latest steps.
  std::uint64_t events_of(std::uint64_t steps) const {
    return steps_.back().position - steps_[steps_.size() - steps].position;
  }
  /// The number of signs between the step before this one of `steps_` and this one's own.
  std::uint64_t signs_before(std::size_t index) const;
  /// The least number of these before the latest steps, `each` of which make an iteration.
  struct Usual {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> of;  // by class and object
    std::uint64_t any = 0;
  };
  Usual usual_signs(std::uint64_t each) const;
  bool was_in_vain(std::size_t index, const Usual& usual) const;
  void find(Nanoseconds time);
  std::optional<StepCycle> cycle_of(StepKey key) const;
  std::optional<std::uint64_t> length_of(StepKey key) const;
  /// Whether an iteration of `length` steps may end after one of them, and the next one begin. It may not if
  /// another optimizer steps immediately: an iteration has work of its own before its first step. (All work
  /// of an iteration may be inside its step, as with a closure.)
  bool can_end(std::uint64_t length) const;
  /// Whether its thread launches nothing between this step and the next.
  bool is_followed_at_once(std::uint64_t back) const;
  StepCycle claimed(std::uint64_t length, StepKey key) const;
  /// Whether each step launched as much as a whole iteration, as with line searches: contents do not
  /// distinguish optimizers then.
  bool are_large() const;
  std::uint64_t cycles_needed(std::uint64_t length) const;
  bool repeats(std::uint64_t length, std::uint64_t cycles, StepKey key) const;
  void note_contents(std::uint32_t contents);
  bool contents_come_back() const;
  bool comes_once(std::uint32_t token_of_step, std::uint64_t length, StepKey key) const;
  /// Whether all of the program's steps repeat.
  bool all_repeat(std::uint64_t length, StepKey key) const;
  std::uint32_t last_by_count(std::uint64_t length, StepKey key) const;
  std::uint32_t last_by_age(std::uint64_t length, StepKey key) const;

  std::deque<OptimizerStep> steps_;             // the latest
  std::unordered_set<std::uint32_t> contents_;  // of all steps, until kPatience
  std::uint32_t came_back_ = 0;  // of the latest steps, one bit each: an earlier step had the same contents
  bool few_ = false;
  std::uint64_t count_ = 0;
  std::uint64_t since_ = 0;  // number of steps before the last cycle ended
  std::uint64_t gap_ = 0;    // number of steps before the last gap
  unsigned gaps_ = 0;
  Nanoseconds first_time_ = 0;
  std::uint64_t longest_gap_ = 0;
  std::optional<StepCycle> cycle_;
  std::optional<StepCycle> former_;
  std::uint64_t found_ = 0;                  // number of steps when the cycle was found
  std::map<std::uint64_t, unsigned> ended_;  // by length, the number of cycles that ended
  unsigned all_ended_ = 0;
};

}  // namespace inject
