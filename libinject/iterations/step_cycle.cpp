// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/step_cycle.h"

#include <algorithm>

namespace inject {

namespace {

constexpr std::uint64_t kMinCycles = 3;
constexpr unsigned kMaxDoublings = 10;
// In fewer, the parameters of a layer or two may have been updated one by one.
constexpr std::uint64_t kMinEvents = 200;
// So many of other lengths count for one of the same.
constexpr unsigned kOthers = 4;

}  // namespace

void StepSequence::add(std::uint32_t optimizer, std::uint32_t contents, std::uint64_t position,
                       Nanoseconds time, std::uint64_t signs) {
  if (count_ == 0) first_time_ = time;
  if (!steps_.empty()) longest_gap_ = std::max(longest_gap_, position - steps_.back().position);
  if (steps_.size() == kMaxSteps) steps_.pop_front();
  steps_.push_back({optimizer, contents, position, signs});
  ++count_;
  if (cycle_ && cycle_->length < steps_.size() &&
      token(0, cycle_->by_contents) == token(cycle_->length, cycle_->by_contents)) {
    return;
  }
  if (cycle_) {
    former_ = cycle_;
    ++ended_[cycle_->length];
    ++all_ended_;
  }
  cycle_ = find(true);
  if (!cycle_ &&
      (count_ >= kPatience || (count_ >= kMinStepsByClass && time - first_time_ >= kMinTimeByClass)))
    cycle_ = find(false);
}

bool StepSequence::repeats(std::uint64_t length, std::uint64_t cycles, bool by_contents) const {
  if (cycles * length > steps_.size()) return false;
  for (std::uint64_t back = 0; back < (cycles - 1) * length; ++back) {
    if (token(back, by_contents) != token(back + length, by_contents)) return false;
  }
  return true;
}

std::optional<StepCycle> StepSequence::find(bool by_contents) const {
  if (count_ < kMinSteps) return std::nullopt;
  for (std::uint64_t length = 1; kMinCycles * length <= steps_.size(); ++length) {
    const auto ended = ended_.find(length);
    const unsigned of_this_length = ended == ended_.end() ? 0 : ended->second;
    const unsigned doublings = of_this_length + (all_ended_ - of_this_length) / kOthers;
    std::uint64_t cycles = kMinCycles << std::min(doublings, kMaxDoublings);
    while (cycles * length <= steps_.size() && events_of(cycles * length) < kMinEvents) ++cycles;
    if (!repeats(length, cycles, by_contents)) continue;
    StepCycle cycle{length, by_contents, 0};
    // Where a step was left out (a gradient that is not finite), counting on would give another one.
    const bool same = former_ && former_->length == length && former_->by_contents == by_contents;
    bool still_there = false;
    for (std::uint64_t back = 0; same && back < length; ++back)
      still_there = still_there || token(back, by_contents) == former_->last;
    cycle.last = still_there ? former_->last : last_of(length, by_contents);
    return cycle;
  }
  return std::nullopt;
}

// The program's first step was the first of an iteration.
std::uint32_t StepSequence::last_of(std::uint64_t length, bool by_contents) const {
  const std::uint32_t last = token(count_ % length, by_contents);
  unsigned times = 0;
  for (std::uint64_t back = 0; back < length; ++back) times += token(back, by_contents) == last;
  return times == 1 ? last : 0;
}

std::uint64_t StepSequence::count_before(std::uint64_t position) const {
  const auto first = std::ranges::lower_bound(steps_, position, {}, &Step::position);
  return count_ - static_cast<std::uint64_t>(steps_.end() - first);
}

bool StepSequence::has_one_of(std::uint32_t optimizer) const {
  unsigned times = 0;
  for (std::uint64_t back = 0; cycle_ && back < cycle_->length; ++back)
    times += token(back, false) == optimizer;
  return times == 1;
}

std::uint64_t StepSequence::signs_in(std::uint64_t position) const {
  const auto step = std::ranges::lower_bound(steps_, position, {}, &Step::position);
  return step != steps_.end() && step->position == position ? step->signs : 0;
}

std::optional<std::uint64_t> StepSequence::first_last_step() const {
  if (!cycle_ || count_ > steps_.size()) return std::nullopt;
  const Step& last = steps_[cycle_->length - 1];
  return last.position - std::min(last.position, last.signs);
}

std::optional<std::uint64_t> StepSequence::position(std::uint64_t back) const {
  if (back >= steps_.size()) return std::nullopt;
  return steps_[steps_.size() - 1 - back].position;
}

}  // namespace inject
