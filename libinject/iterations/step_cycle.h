// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "libinject/base/time.h"

namespace inject {

/// How a program's optimizer steps repeat: an iteration has `length` of them.
struct StepCycle {
  std::uint64_t length = 0;
  /// Optimizers are told apart by what they launch; if not, by their class alone.
  bool by_contents = false;
  /// What tells the last step of an iteration from all others; 0 if nothing does.
  std::uint32_t last = 0;

  bool operator==(const StepCycle&) const = default;
};

/// The optimizer steps that a program has told of, in order. Which optimizer stepped is not said, only its
/// class. Two of one class launch different kernels if their parameters differ in number or size; so a step
/// is known by what it launched, and by its class where that varies from step to step.
///
/// A cycle is claimed once the latest steps are kMinCycles of it or more. They must be half of all steps
/// (since a cycle ended, if one did): a critic may take many steps before the generator's first. And they
/// must be twice as many for each time that a cycle of this length has ended, or four of others: in no order,
/// a few steps repeat now and then.
class StepSequence {
 public:
  /// So many have to be seen before anything is said of them.
  static constexpr std::uint64_t kMinSteps = 6;
  static constexpr std::uint64_t kMinCycles = 3;
  /// … by class alone: only once a cycle of contents would have been seen. (An optimizer for each parameter
  /// steps hundreds of times in an iteration, and an iteration may take seconds.) Longer if contents come
  /// back.
  static constexpr std::uint64_t kMinStepsByClass = 24;
  static constexpr Nanoseconds kMinTimeByClass = 10'000'000'000;
  static constexpr Nanoseconds kMinTimeAlike = 60'000'000'000;
  /// If no cycle has been found by then, the steps are in no order.
  static constexpr std::uint64_t kPatience = 16'384;

  /// Only windows are seen, and these may hold few of them: what is seen less often is believed as well.
  void expect_few() { few_ = true; }
  /// `optimizer` and `contents` are not 0. `position`: of the step's sign; `signs`: how many were made in it.
  void add(std::uint32_t optimizer, std::uint32_t contents, std::uint64_t position, Nanoseconds time,
           std::uint64_t signs = 0);
  /// The program ran on unseen.
  void resume();

  std::uint64_t count() const { return count_; }
  /// Position after the last step; 0 if there was none.
  std::uint64_t end() const { return steps_.empty() ? 0 : steps_.back().position + 1; }
  /// Most events from one step to the next.
  std::uint64_t longest_gap() const { return longest_gap_; }
  /// How the latest steps repeat.
  const std::optional<StepCycle>& cycle() const { return cycle_; }
  /// They may: it is too early to say.
  bool is_open() const;
  /// Steps before that position, as long as those after it are kept.
  std::uint64_t count_before(std::uint64_t position) const;
  /// Steps from `from` to before `to`.
  std::uint64_t count_between(std::uint64_t from, std::uint64_t to) const {
    return count_before(to) - count_before(from);
  }
  /// Whether a cycle has one step of that optimizer's.
  bool has_one_of(std::uint32_t optimizer) const;
  /// How many signs were made in the first step from that position on, as long as it is kept.
  std::uint64_t signs_in(std::uint64_t position) const;
  /// Where the last step of the first iteration began, as long as that is kept.
  std::optional<std::uint64_t> first_last_step() const;
  /// Position of the step `back` before the latest.
  std::optional<std::uint64_t> position(std::uint64_t back) const;

 private:
  struct Step {
    std::uint32_t optimizer;
    std::uint32_t contents;
    std::uint64_t position;
    std::uint64_t signs;
  };
  static constexpr std::size_t kMaxSteps = 16'384;
  static constexpr unsigned kMaxGaps = 4;

  std::uint32_t token(std::uint64_t back, bool by_contents) const {
    const Step& step = steps_[steps_.size() - 1 - back];
    return by_contents ? step.contents : step.optimizer;
  }
  /// Those that may be compared with each other: without a gap in between.
  std::uint64_t comparable() const;
  /// What came between the latest steps.
  std::uint64_t events_of(std::uint64_t steps) const {
    return steps_.back().position - steps_[steps_.size() - steps].position;
  }
  void find(Nanoseconds time);
  std::optional<StepCycle> cycle_of(bool by_contents) const;
  /// What they launched is a whole iteration's, as of line searches: it does not tell optimizers apart.
  bool are_large() const;
  std::uint64_t cycles_needed(std::uint64_t length) const;
  bool repeats(std::uint64_t length, std::uint64_t cycles, bool by_contents) const;
  bool contents_come_back() const;
  std::uint32_t last_of(std::uint64_t length, bool by_contents) const;

  std::deque<Step> steps_;  // the latest
  bool few_ = false;
  std::uint64_t count_ = 0;
  std::uint64_t since_ = 0;  // steps before the last cycle ended
  std::uint64_t gap_ = 0;    // steps before the last gap
  unsigned gaps_ = 0;
  Nanoseconds first_time_ = 0;
  std::uint64_t longest_gap_ = 0;
  std::optional<StepCycle> cycle_;
  std::optional<StepCycle> former_;
  std::map<std::uint64_t, unsigned> ended_;  // by length, how often
  unsigned all_ended_ = 0;
};

}  // namespace inject
