// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/step_cycle.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

namespace inject {

namespace {

constexpr unsigned kMaxDoublings = 10;
// So many cycles of other lengths that ended count for one of the same.
constexpr unsigned kOthers = 4;
// In fewer, the parameters of a layer or two may have been updated one by one.
constexpr std::uint64_t kMinEvents = 200;
// So many of the latest steps launched as much.
constexpr std::size_t kLargeSteps = 8;
// Of so many of the latest steps, half have contents that an earlier one had: they come back.
constexpr std::uint64_t kRecent = 24;

}  // namespace

void StepSequence::add(std::uint32_t optimizer, std::uint32_t contents, std::uint64_t position,
                       Nanoseconds time, std::uint64_t signs) {
  if (count_ == 0) first_time_ = time;
  if (!steps_.empty()) longest_gap_ = std::max(longest_gap_, position - steps_.back().position);
  if (steps_.size() == kMaxSteps) steps_.pop_front();
  steps_.push_back({optimizer, contents, position, signs});
  ++count_;
  if (cycle_ && cycle_->length >= comparable()) return;
  if (cycle_ && token(0, cycle_->by_contents) == token(cycle_->length, cycle_->by_contents)) {
    // Its contents may have been new as long as the optimizers made their state.
    if (cycle_->by_contents || !std::has_single_bit(count_)) return;
    if (const auto better = cycle_of(true)) cycle_ = better;
    return;
  }
  if (cycle_) {
    former_ = cycle_;
    ++ended_[cycle_->length];
    ++all_ended_;
    since_ = count_ - 1;
  }
  find(time);
}

void StepSequence::resume() {
  if (count_ == gap_) return;
  gap_ = count_;
  ++gaps_;
}

std::uint64_t StepSequence::comparable() const {
  return std::min<std::uint64_t>(steps_.size(), count_ - gap_);
}

bool StepSequence::is_open() const {
  return !cycle_ && count_ < kPatience && gaps_ < kMaxGaps;
}

void StepSequence::find(Nanoseconds time) {
  cycle_ = cycle_of(true);
  if (are_large() && (!cycle_ || cycle_->length != 1)) {
    cycle_ = cycle_of(false);
    return;
  }
  if (cycle_ || count_ < kMinStepsByClass) return;
  const Nanoseconds lasted = time - first_time_;
  if (lasted < kMinTimeByClass && count_ < kPatience) return;
  if (lasted < kMinTimeAlike && count_ < kPatience && contents_come_back()) return;
  cycle_ = cycle_of(false);
}

bool StepSequence::are_large() const {
  if (steps_.size() < kLargeSteps) return false;
  return std::all_of(steps_.end() - static_cast<std::ptrdiff_t>(kLargeSteps), steps_.end(),
                     [](const Step& step) { return step.signs >= kMinEvents; });
}

bool StepSequence::contents_come_back() const {
  std::unordered_set<std::uint32_t> earlier;
  const std::size_t recent = steps_.size() - std::min<std::size_t>(steps_.size(), kRecent);
  for (std::size_t i = 0; i < recent; ++i) earlier.insert(steps_[i].contents);
  std::uint64_t back = 0;
  for (std::size_t i = recent; i < steps_.size(); ++i) back += !earlier.insert(steps_[i].contents).second;
  return 2 * back >= kRecent;
}

std::uint64_t StepSequence::cycles_needed(std::uint64_t length) const {
  const auto ended = ended_.find(length);
  const unsigned of_this_length = ended == ended_.end() ? 0 : ended->second;
  const unsigned doublings = of_this_length + (all_ended_ - of_this_length) / kOthers;
  std::uint64_t cycles = kMinCycles << std::min(doublings, kMaxDoublings);
  cycles = std::max(cycles, (count_ - std::max(since_, gap_) + 2 * length - 1) / (2 * length));
  while (!few_ && cycles * length <= steps_.size() && events_of(cycles * length) < kMinEvents) ++cycles;
  return cycles;
}

bool StepSequence::repeats(std::uint64_t length, std::uint64_t cycles, bool by_contents) const {
  if (cycles * length > comparable()) return false;
  for (std::uint64_t back = 0; back < (cycles - 1) * length; ++back) {
    if (token(back, by_contents) != token(back + length, by_contents)) return false;
  }
  return true;
}

std::optional<StepCycle> StepSequence::cycle_of(bool by_contents) const {
  if (count_ < kMinSteps && !few_) return std::nullopt;
  for (std::uint64_t length = 1; kMinCycles * length <= comparable(); ++length) {
    // Most are ruled out by this.
    if (token(0, by_contents) != token(length, by_contents)) continue;
    if (!repeats(length, cycles_needed(length), by_contents)) continue;
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
  return step != steps_.end() ? step->signs : 0;
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
