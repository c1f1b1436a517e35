// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/step_cycle.h"

#include <algorithm>
#include <bit>

#include "libinject/record/launch_sign.h"

namespace inject {

namespace {

constexpr unsigned kMaxDoublings = 10;
// This many ended cycles of other lengths count as one of the same length.
constexpr unsigned kOthers = 4;
// With fewer, the parameters of a layer or two may have been updated one by one.
constexpr std::uint64_t kMinEvents = 200;
// The number of latest steps that must all be large.
constexpr std::size_t kLargeSteps = 8;
// If half of this many latest steps have contents that an earlier one had, contents recur.
constexpr unsigned kRecent = 24;
// A step with less than this part of the usual work before it is made in vain.
constexpr std::uint64_t kHardlyAny = 20;
// Whether one optimizer makes all steps is asked again after this many.
constexpr std::uint64_t kAskedAgain = 32;

}  // namespace

void StepSequence::add(const OptimizerStep& step, Nanoseconds time) {
  if (count_ == 0) first_time_ = time;
  if (!steps_.empty()) longest_gap_ = std::max(longest_gap_, step.position - steps_.back().position);
  if (steps_.size() == kMaxSteps) steps_.pop_front();
  steps_.push_back(step);
  ++count_;
  note_contents(step.contents);
  if (cycle_ && cycle_->length >= comparable()) return;
  if (cycle_ && token(0, cycle_->key) == token(cycle_->length, cycle_->key)) {
    // Contents may have been new while the optimizers were creating their state.
    if (cycle_->key == StepKey::kContents || !std::has_single_bit(count_)) return;
    if (const auto better = cycle_of(StepKey::kContents)) {
      cycle_ = better;
      found_ = count_;
    }
    return;
  }
  if (cycle_) {
    former_ = cycle_;
    ++ended_[cycle_->length];
    ++all_ended_;
    since_ = count_ - 1;
  }
  find(time);
  if (cycle_) found_ = count_;
}

bool StepSequence::may_be_one() const {
  if (cycle_ && cycle_->may_be_one) return false;
  if (cycle_ ? cycle_->length == 1 || cycle_->key != StepKey::kContents : all_ended_ == 0) return false;
  // When the cycle was found, or has ended, and again later.
  const std::uint64_t changed = cycle_ ? found_ : since_ + 1;
  if (count_ != changed && count_ % kAskedAgain != 0) return false;
  const std::uint64_t compared = std::max(cycle_ ? cycle_->length : 0, kMinSteps);
  if (compared > comparable()) return false;
  for (std::uint64_t back = 1; back < compared; ++back) {
    if (step(back).optimizer != step(0).optimizer || step(back).thread != step(0).thread) return false;
    if (step(back).object != step(0).object && !are_made_anew()) return false;
  }
  return true;
}

bool StepSequence::are_made_anew() const {
  return cycle_ && cycle_->length < comparable() && step(0).object != step(cycle_->length).object;
}

void StepSequence::take_for_one() {
  if (step(0).object != 0 && !are_made_anew()) {
    cycle_ = StepCycle{1, StepKey::kObject, step(0).object};
    found_ = count_;
  } else if (cycle_ && are_made_anew() && step(0).object != 0) {
    cycle_ = StepCycle{1, StepKey::kClass, step(0).optimizer, false, true};
    found_ = count_;
  } else if (cycle_) {
    cycle_->may_be_one = true;
  }
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
  const auto length = length_of(StepKey::kContents);
  // Only the objects distinguish these.
  const bool alike = length && !can_end(*length);
  cycle_ = length && !alike ? std::optional(claimed(*length, StepKey::kContents)) : std::nullopt;
  if (are_large() && (!cycle_ || cycle_->length != 1)) {
    cycle_ = cycle_of(StepKey::kObject);
    if (!cycle_) cycle_ = cycle_of(StepKey::kClass);
    return;
  }
  if (cycle_ || (!alike && count_ < kMinStepsByClass)) return;
  const Nanoseconds lasted = time - first_time_;
  if (!alike && lasted < kMinTimeAlike && count_ < kPatience && contents_come_back()) return;
  // With any number of optimizers, each steps once before the first steps again.
  cycle_ = cycle_of(StepKey::kObject);
  if (cycle_ || (lasted < kMinTimeByClass && count_ < kPatience)) return;
  cycle_ = cycle_of(StepKey::kClass);
}

bool StepSequence::are_large() const {
  if (steps_.size() < kLargeSteps) return false;
  return std::all_of(steps_.end() - static_cast<std::ptrdiff_t>(kLargeSteps), steps_.end(),
                     [](const OptimizerStep& step) { return step.signs >= kMinEvents; });
}

void StepSequence::note_contents(std::uint32_t contents) {
  if (count_ >= kPatience) {
    contents_.clear();
    return;
  }
  came_back_ = came_back_ << 1 | (contents_.insert(contents).second ? 0u : 1u);
}

bool StepSequence::contents_come_back() const {
  constexpr std::uint32_t kMask = (1u << kRecent) - 1;
  return 2 * static_cast<unsigned>(std::popcount(came_back_ & kMask)) >= kRecent;
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

bool StepSequence::repeats(std::uint64_t length, std::uint64_t cycles, StepKey key) const {
  if (cycles * length > comparable()) return false;
  for (std::uint64_t back = 0; back < (cycles - 1) * length; ++back) {
    if (token(back, key) != token(back + length, key) || token(back, key) == 0) return false;
  }
  return true;
}

std::optional<std::uint64_t> StepSequence::length_of(StepKey key) const {
  if (count_ < kMinSteps && !few_) return std::nullopt;
  if (token(0, key) == 0) return std::nullopt;  // an unknown token repeats nothing
  for (std::uint64_t length = 1; kMinCycles * length <= comparable(); ++length) {
    // This rules out most lengths.
    if (token(0, key) != token(length, key)) continue;
    if (repeats(length, kMinCycles, key) && repeats(length, cycles_needed(length), key)) return length;
  }
  return std::nullopt;
}

bool StepSequence::is_followed_at_once(std::uint64_t back) const {
  const OptimizerStep& next = step(back - 1);
  return next.thread == step(back).thread && next.position - step(back).position <= next.signs + 1;
}

bool StepSequence::can_end(std::uint64_t length) const {
  const std::uint64_t compared = std::min(cycles_needed(length) * length, comparable());
  for (std::uint64_t place = 0; place < length; ++place) {
    bool may = true;
    for (std::uint64_t back = place == 0 ? length : place; may && back < compared; back += length) {
      const bool others =
          step(back).object != 0 && step(back - 1).object != 0 && step(back).object != step(back - 1).object;
      may = !others || !is_followed_at_once(back);
    }
    if (may) return true;
  }
  return false;
}

std::optional<StepCycle> StepSequence::cycle_of(StepKey key) const {
  const auto length = length_of(key);
  if (!length || (key != StepKey::kObject && !can_end(*length))) return std::nullopt;
  return claimed(*length, key);
}

StepCycle StepSequence::claimed(std::uint64_t length, StepKey key) const {
  StepCycle cycle{length, key, 0};
  // If a step was skipped (a gradient that is not finite), counting on would give a different one.
  const bool same = former_ && former_->length == length && former_->key == key;
  bool still_there = false;
  for (std::uint64_t back = 0; same && back < length; ++back)
    still_there = still_there || token(back, key) == former_->last;
  if (still_there) {
    cycle.last = former_->last;
    cycle.guessed = former_->guessed;
    return cycle;
  }
  const bool counted = all_ended_ == 0 || all_repeat(length, key);
  cycle.last = counted ? last_by_count(length, key) : last_by_age(length, key);
  cycle.guessed = !counted && length > 1;
  return cycle;
}

// In the first iteration, optimizers also create their state.
bool StepSequence::all_repeat(std::uint64_t length, StepKey key) const {
  if (count_ > steps_.size()) return false;
  for (std::uint64_t back = 0; back + 2 * length < count_; ++back)
    if (token(back, key) != token(back + length, key)) return false;
  return true;
}

bool StepSequence::comes_once(std::uint32_t token_of_step, std::uint64_t length, StepKey key) const {
  unsigned times = 0;
  for (std::uint64_t back = 0; back < length; ++back) times += token(back, key) == token_of_step;
  return times == 1;
}

// The program's first step was the first of an iteration, unless it was made in vain.
std::uint32_t StepSequence::last_by_count(std::uint64_t length, StepKey key) const {
  if (length == 0) return 0;  // never, which the static analyzer can't see
  const std::uint32_t last = token(trained_before(end(), length) % length, key);
  return comes_once(last, length, key) ? last : 0;
}

// Other iterations came before, so counting is useless. An optimizer that stepped alone then, as a critic
// may, is assumed to be the first now, and the one before it the last, which nothing tells apart if it comes
// more than once.
std::uint32_t StepSequence::last_by_age(std::uint64_t length, StepKey key) const {
  std::uint32_t last = 0;
  std::uint64_t oldest = steps_.size();
  for (std::uint64_t back = length; back > 0; --back) {
    const std::uint32_t before = token(back, key);
    const std::uint32_t follower = token(back - 1, key);
    std::uint64_t first = 0;
    while (token(steps_[first], key) != follower) ++first;
    if (first >= oldest) continue;
    oldest = first;
    last = before;
  }
  return comes_once(last, length, key) ? last : 0;
}

std::uint64_t StepSequence::count_before(std::uint64_t position) const {
  const auto first = std::ranges::lower_bound(steps_, position, {}, &OptimizerStep::position);
  return count_ - static_cast<std::uint64_t>(steps_.end() - first);
}

std::uint64_t StepSequence::signs_before(std::size_t index) const {
  const std::uint64_t begin = steps_[index].position - std::min(steps_[index].position, steps_[index].signs);
  const std::uint64_t end = index == 0 ? 0 : steps_[index - 1].position + 1;
  return begin - std::min(begin, end);
}

StepSequence::Usual StepSequence::usual_signs(std::uint64_t each) const {
  const std::uint64_t compared = std::min<std::uint64_t>(kMinCycles * each, steps_.size() / 2);
  Usual usual;
  for (std::size_t i = steps_.size() - compared; i < steps_.size(); ++i) {
    const std::uint64_t signs = signs_before(i);
    usual.any = usual.of.empty() ? signs : std::min(usual.any, signs);
    const auto [at, fresh] = usual.of.try_emplace({steps_[i].optimizer, steps_[i].object}, signs);
    if (!fresh) at->second = std::min(at->second, signs);
  }
  return usual;
}

bool StepSequence::was_in_vain(std::size_t index, const Usual& usual) const {
  const std::uint64_t signs = signs_before(index);
  // What came before it is not kept, or was not seen.
  if (index == 0 && (count_ > steps_.size() || signs == 0)) return false;
  const auto like = usual.of.find({steps_[index].optimizer, steps_[index].object});
  return kHardlyAny * signs < (like != usual.of.end() ? like->second : usual.any);
}

std::uint64_t StepSequence::trained_before(std::uint64_t position, std::uint64_t each) const {
  const Usual usual = usual_signs(each);
  std::uint64_t count = count_before(position);
  for (std::size_t i = 0; i < steps_.size() && steps_[i].position < position; ++i)
    count -= was_in_vain(i, usual);
  return count;
}

bool StepSequence::has_one_of(std::uint32_t optimizer) const {
  unsigned times = 0;
  for (std::uint64_t back = 0; cycle_ && back < cycle_->length; ++back)
    times += step(back).optimizer == optimizer;
  return times == 1;
}

std::uint64_t StepSequence::signs_in(std::uint64_t position) const {
  const auto first = std::ranges::lower_bound(steps_, position, {}, &OptimizerStep::position);
  return first != steps_.end() ? first->signs : 0;
}

std::optional<std::uint64_t> StepSequence::first_from(std::uint64_t position) const {
  const auto first = std::ranges::lower_bound(steps_, position, {}, &OptimizerStep::position);
  return first != steps_.end() ? std::optional(first->position) : std::nullopt;
}

std::optional<std::uint64_t> StepSequence::last_before(std::uint64_t position) const {
  const auto next = std::ranges::lower_bound(steps_, position, {}, &OptimizerStep::position);
  return next != steps_.begin() ? std::optional(std::prev(next)->position) : std::nullopt;
}

const OptimizerStep* StepSequence::at(std::uint64_t position) const {
  const auto first = std::ranges::lower_bound(steps_, position, {}, &OptimizerStep::position);
  return first != steps_.end() && first->position == position ? &*first : nullptr;
}

bool StepSequence::is_last(std::uint64_t position) const {
  const OptimizerStep* step = at(position);
  return cycle_ && step != nullptr && token(*step, cycle_->key) == cycle_->last;
}

bool StepSequence::has_mark(std::uint64_t position, std::uint64_t mark) const {
  const OptimizerStep* step = at(position);
  return step != nullptr && step->object != 0 && optimizer_mark(step->object) == mark;
}

std::uint32_t StepSequence::class_of_last() const {
  for (std::uint64_t back = 0; cycle_ && back < cycle_->length; ++back)
    if (token(back, cycle_->key) == cycle_->last) return step(back).optimizer;
  return 0;
}

bool StepSequence::are_doubtful() const {
  if (!cycle_) return false;
  if (cycle_->key == StepKey::kClass || cycle_->guessed || cycle_->may_be_one) return true;
  // Each of several that launch the same may make one.
  if (cycle_->length == 1 && step(0).object == 0) return true;
  // An optimizer that is created anew for each task alternately gets the addresses of the two before.
  if (cycle_->key == StepKey::kObject && cycle_->length == 2) return true;
  const std::uint64_t compared = std::min(kMinCycles * cycle_->length, comparable());
  for (std::uint64_t back = 0; back < compared; ++back) {
    if (step(back).thread != step(0).thread) return true;
    // They may belong to several optimizers.
    if (back != 0 && step(back).object == 0 && is_followed_at_once(back)) return true;
    if (back + cycle_->length < compared && step(back).object != step(back + cycle_->length).object)
      return true;
  }
  return false;
}

std::optional<std::uint64_t> StepSequence::first_last_step() const {
  if (!cycle_ || count_ > steps_.size()) return std::nullopt;
  const Usual usual = usual_signs(cycle_->length);
  std::uint64_t trained = 0;
  std::size_t index = 0;
  for (; index + 1 < steps_.size(); ++index) {
    trained += was_in_vain(index, usual) ? 0 : 1;
    if (trained == cycle_->length) break;
  }
  const OptimizerStep& last = steps_[index];
  return last.position - std::min(last.position, last.signs);
}

std::optional<std::uint64_t> StepSequence::position(std::uint64_t back) const {
  if (back >= steps_.size()) return std::nullopt;
  return steps_[steps_.size() - 1 - back].position;
}

}  // namespace inject
