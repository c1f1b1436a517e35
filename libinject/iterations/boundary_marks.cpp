// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/boundary_marks.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace inject {

namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
// Number of events near a boundary that are examined to find where an iteration begins.
constexpr std::uint64_t kMaxZone = 512;
constexpr std::uint64_t kMaxGuessZone = 64;
// The order of first occurrences is meaningful from this many on.
constexpr std::size_t kMinInOrder = 4;
// Number of signs at the stream's beginning that show whether it begins inside an iteration.
constexpr std::uint64_t kFirstSigns = 8;

/// One cycle of a repetition, starting at the pivot; the boundary lies somewhere in it. Offsets wrap around,
/// so that reading can continue across the pivot: the previous cycle is as good as the next one.
class Cycle {
 public:
  Cycle(const SignHistory& history, const Repetition& repetition)
      : history_(history), by_shape_(repetition.by_shape), once_(history.tokens()) {
    const auto latest = static_cast<unsigned>(std::countr_zero(repetition.covered));
    begin_ = repetition.at[latest + 1];
    length_ = repetition.at[latest] - begin_;
    for (const std::uint32_t id : repetition.once) once_[id] = true;
  }

  std::uint64_t length() const { return length_; }
  /// Position in the stream.
  std::uint64_t at(std::uint64_t offset) const {
    return begin_ + offset % std::max<std::uint64_t>(length_, 1);
  }
  std::uint32_t id(std::uint64_t offset) const { return history_.token_at(at(offset), by_shape_); }
  const SignHistory::Token& token(std::uint64_t offset) const { return history_.token(id(offset)); }
  bool is_optimizer(std::uint64_t offset) const { return history_.is_optimizer(token(offset)); }
  /// Whether the event occurs once in each cycle.
  bool is_single(std::uint64_t offset) const { return once_[id(offset)]; }

 private:
  const SignHistory& history_;
  bool by_shape_;
  std::uint64_t begin_ = 0;
  std::uint64_t length_ = 0;
  std::vector<bool> once_;
};

/// Offsets of the events that end an iteration, and when they were first seen.
struct CycleEnd {
  std::uint64_t first;
  std::uint64_t last;
  std::uint64_t first_seen;
  bool counted = false;  // which step is the last was counted
};

/// The last optimizer event before the iteration that was seen first.
std::optional<std::uint64_t> last_step(const Cycle& cycle, std::uint64_t apart) {
  const std::uint64_t length = cycle.length();
  std::vector<std::uint64_t> steps;
  for (std::uint64_t i = 0; i < length; ++i) {
    if (cycle.is_optimizer(i)) steps.push_back(i);
  }
  if (steps.empty()) return std::nullopt;
  std::optional<std::uint64_t> last;
  std::uint64_t best = kNever;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::uint64_t next = i + 1 < steps.size() ? steps[i + 1] : steps[0] + length;
    if (steps.size() > 1 && next - steps[i] <= apart) continue;
    // What follows this group: the iteration that was seen first began with it.
    std::uint64_t first = kNever;
    for (std::uint64_t o = steps[i] + 1; o < next && o < steps[i] + 1 + kMaxZone; ++o) {
      const SignHistory::Token& token = cycle.token(o);
      if (cycle.is_single(o) && is_work(token.kind)) {
        first = token.first;
        break;
      }
      if (o == steps[i] + 32 || o + 1 == next) first = std::min(first, token.first);
    }
    if (!last || first < best) {
      best = first;
      last = steps[i];
    }
  }
  return last ? *last : steps.back();
}

/// When the oldest of the work between this step and the next one was first seen.
std::uint64_t first_after(const Cycle& cycle, std::uint64_t step) {
  std::uint64_t first = kNever;
  for (std::uint64_t o = step + 1; o < step + cycle.length() && !cycle.is_optimizer(o); ++o)
    if (is_work(cycle.token(o).kind)) first = std::min(first, cycle.token(o).first);
  return first;
}

/// The last step of an iteration, if the program reports steps: the one followed by the work that was seen
/// first, since the first iteration began with that. If the same work follows several steps, it is found by
/// counting, which is a guess if steps were skipped.
std::optional<CycleEnd> end_by_steps(const SignHistory& history, const Cycle& cycle, std::uint64_t each) {
  const StepSequence& steps = history.steps();
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 0; i < cycle.length(); ++i)
    if (cycle.is_optimizer(i)) all.push_back(i);
  if (all.empty()) return std::nullopt;
  std::vector<std::uint64_t> oldest;
  std::uint64_t first = kNever;
  for (const std::uint64_t i : all) {
    const std::uint64_t seen = first_after(cycle, i);
    if (seen < first) oldest.clear();
    first = std::min(first, seen);
    if (seen == first) oldest.push_back(i);
  }
  std::uint64_t last = oldest.front();
  if (oldest.size() > 1) {
    const StepCycle& own = *steps.cycle();
    const bool told_by_last = own.last != 0 && each == own.length;
    std::uint64_t count = steps.trained_before(cycle.at(all.front()), each);
    for (const std::uint64_t i : all) {
      ++count;
      if (told_by_last ? steps.is_last(cycle.at(i)) : count % each == 0) last = i;
    }
  }
  // An optimizer's first step differs from all others, since it creates its state.
  return CycleEnd{
      last, last,
      steps.first_last_step().value_or(history.token(history.event(cycle.at(last)).function).first),
      oldest.size() > 1};
}

std::optional<CycleEnd> end_by_optimizer(const Cycle& cycle) {
  const std::uint64_t length = cycle.length();
  const std::uint64_t apart = std::max<std::uint64_t>(8, length / 20);
  const auto last = last_step(cycle, apart);
  if (!last) return std::nullopt;
  CycleEnd end{*last, *last, kNever};
  for (std::uint64_t back = 0, quiet = 0; back < length && quiet <= apart; ++back) {
    const std::uint64_t offset = *last + length - back;
    if (cycle.is_optimizer(offset)) {
      end.first = offset % length;
      end.first_seen = std::min(end.first_seen, cycle.token(offset).first);
      quiet = 0;
    } else {
      ++quiet;
    }
  }
  return end;
}

/// Uses the rotation that puts the first occurrences in order. Kernels that a compiler tried out earlier
/// occurred in a different order: if enough others are left, they are ignored.
std::optional<CycleEnd> end_by_order(const SignHistory& history, const Cycle& cycle) {
  const std::uint64_t tuned = history.tuning_end();
  std::vector<std::uint64_t> order;
  std::vector<std::uint64_t> after_tuning;
  for (std::uint64_t i = 0; i < cycle.length(); ++i) {
    if (!cycle.is_single(i)) continue;
    order.push_back(i);
    if (cycle.token(i).first >= tuned) after_tuning.push_back(i);
  }
  if (after_tuning.size() >= kMinInOrder) order = after_tuning;
  if (order.empty()) return std::nullopt;
  const std::size_t step = std::max<std::size_t>(1, order.size() / 96);
  std::vector<std::uint64_t> sample;
  for (std::size_t i = 0; i < order.size(); i += step) sample.push_back(order[i]);
  std::size_t best = 0;
  std::uint64_t least = kNever;
  const auto first_of = [&](std::size_t i) { return cycle.token(sample[i % sample.size()]).first; };
  for (std::size_t s = 0; s < sample.size(); ++s) {
    if (s != 0 && first_of(s) >= first_of(s - 1)) continue;
    std::uint64_t inversions = 0;
    for (std::size_t a = 0; a < sample.size(); ++a) {
      for (std::size_t b = a + 1; b < sample.size(); ++b) inversions += first_of(s + a) > first_of(s + b);
    }
    if (inversions < least) {
      least = inversions;
      best = s;
    }
  }
  // The preceding event, in the whole order again.
  const auto start = static_cast<std::size_t>(std::ranges::lower_bound(order, sample[best]) - order.begin());
  const std::uint64_t end = order[(start + order.size() - 1) % order.size()];
  return CycleEnd{end, end, cycle.token(end).first};
}

/// Offsets of an iteration's first event, and of the work that shows that it has begun.
struct CycleBegin {
  std::uint64_t first;
  std::uint64_t work;
  bool rough;
};

// Copies to the device bring an iteration's data, no matter when a copy of that size was first seen: they
// belong to the work that follows them.
std::uint64_t with_copies_before(const Cycle& cycle, std::uint64_t first, std::uint64_t after) {
  for (std::uint64_t o = first; o-- > after;) {
    const SignHistory::Token& token = cycle.token(o);
    if (token.kind == SignKind::kCopyToHost || cycle.is_optimizer(o)) break;
    if (token.kind == SignKind::kCopyToDevice) first = o;
  }
  return first;
}

/// The first work after the end that occurs once in each iteration and is older than the first iteration's
/// end belongs to the beginning. Failing that, the first work that is older.
std::optional<std::uint64_t> oldest_work(const Cycle& cycle, const CycleEnd& end, bool by_steps) {
  const std::uint64_t after = end.last + 1;
  const std::uint64_t beyond = after + std::min(cycle.length(), kMaxZone);
  std::optional<std::uint64_t> work;
  for (std::uint64_t o = after; o < beyond; ++o) {
    if (by_steps && cycle.is_optimizer(o)) break;
    if (work && 4 * (o - after) > cycle.length()) break;
    const SignHistory::Token& token = cycle.token(o);
    if (!is_work(token.kind) || cycle.is_optimizer(o) || token.first >= end.first_seen) continue;
    const bool single = cycle.is_single(o);
    if (!work || single) work = o;
    if (single) break;
  }
  return work;
}

/// If the first steps were skipped, the first iteration ended before the first step, with the work that
/// precedes it. Half of that work may have been seen while the program was setting up, or have been replaced
/// since.
std::uint64_t first_end(const SignHistory& history, const Cycle& cycle, const CycleEnd& end) {
  const std::uint64_t launched = history.steps().signs_in(cycle.at(end.last));
  std::vector<std::uint64_t> seen;
  // A step that may be skipped is no part of such an iteration.
  const std::uint64_t left_out =
      history.may_skip_step(cycle.at(end.last)) ? std::min(launched, cycle.length()) : 0;
  for (std::uint64_t back = launched + 1;
       4 * (back - left_out) < cycle.length() - left_out && seen.size() < 15; ++back) {
    const std::uint64_t o = end.last + cycle.length() - back;
    if (is_work(cycle.token(o).kind)) seen.push_back(cycle.token(o).first);
  }
  if (seen.empty()) return end.first_seen;
  std::ranges::nth_element(seen, seen.begin() + static_cast<std::ptrdiff_t>(seen.size() / 2));
  return std::min(end.first_seen, seen[seen.size() / 2]);
}

CycleBegin begin_after(const SignHistory& history, const Cycle& cycle, CycleEnd end, bool by_steps) {
  const std::uint64_t after = end.last + 1;
  const std::uint64_t beyond = after + std::min(cycle.length(), kMaxZone);
  std::optional<std::uint64_t> work;
  if (by_steps) {
    CycleEnd first = end;
    first.first_seen = first_end(history, cycle, end);
    work = oldest_work(cycle, first, by_steps);
    if (work) end = first;
  }
  if (!work) work = oldest_work(cycle, end, by_steps);
  std::optional<std::uint64_t> any;  // before the next step
  for (std::uint64_t o = after; by_steps && !any && o < beyond && !cycle.is_optimizer(o); ++o)
    if (may_begin(cycle.token(o).kind)) any = o;
  if (!work && any) {
    work = any;
    while (*work + 1 < beyond && !is_work(cycle.token(*work).kind)) ++*work;
    return {*any, *work, false};
  }
  if (!work) {
    // The iteration's first work was replaced. Copies to the host and optimizers end an iteration.
    const std::uint64_t last = std::min(beyond, after + kMaxGuessZone) - 1;
    std::uint64_t first = after;
    for (std::uint64_t o = after; o < last; ++o) {
      const SignHistory::Token& token = cycle.token(o);
      if (token.kind == SignKind::kCopyToHost || cycle.is_optimizer(o)) first = o + 1;
    }
    while (first < last && cycle.token(first).kind == SignKind::kSync) ++first;
    return {first, last, cycle.length() > 1};
  }
  // Go back over everything that was seen before the first iteration ended.
  std::uint64_t first = *work;
  for (std::uint64_t o = first; o-- > after;) {
    const SignHistory::Token& token = cycle.token(o);
    if (token.kind == SignKind::kSync) continue;
    if (token.kind == SignKind::kCopyToHost || cycle.is_optimizer(o) || token.first >= end.first_seen) break;
    first = o;
  }
  return {with_copies_before(cycle, first, after), *work, false};
}

/// Offsets of candidates for the anchor, the best first: the optimizer's first event, which occurs even if
/// the optimizer itself is skipped (gradients are checked first); then what comes before it; then the rest of
/// the optimizer; then its events that occur several times. If the program reports its steps, the last one,
/// then what comes shortly before it.
std::vector<std::uint64_t> anchors_for(const Cycle& cycle, const CycleEnd& end, bool by_steps) {
  std::vector<std::uint64_t> anchors;
  if (by_steps) anchors.push_back(end.last);
  std::vector<std::uint64_t> rest;
  std::vector<std::uint64_t> repeated;
  const std::uint64_t length = cycle.length();
  for (std::uint64_t back = 0; back < length && anchors.size() < 64; ++back) {
    const std::uint64_t o = end.last + length - back;
    if (!cycle.is_single(o)) {
      if (cycle.is_optimizer(o) && repeated.size() < 8) repeated.push_back(o);
      continue;
    }
    if (by_steps && 4 * back > length) break;
    const bool in_group = end.first != end.last && back <= (end.last + length - end.first) % length;
    if (in_group && (end.first != o % length)) {
      rest.push_back(o);
    } else {
      anchors.push_back(o);
    }
  }
  anchors.insert(anchors.end(), rest.begin(), rest.end());
  anchors.insert(anchors.end(), repeated.begin(), repeated.end());
  return anchors;
}

/// For iterations of one step: whether the event with that hash comes before each step of the repetition, so
/// many events before its launches, and elsewhere only as often as steps are skipped.
bool precedes_steps(const SignHistory& history, const Repetition& repetition, std::uint64_t hash,
                    std::uint64_t distance) {
  std::uint64_t steps = 0;
  std::uint64_t times = 0;
  for (std::uint64_t p = repetition.begin(); p < history.total(); ++p) {
    times += history.matches(p, hash);
    if (history.token(history.event(p).function).kind != SignKind::kStep) continue;
    ++steps;
    const std::uint64_t before = history.steps().signs_in(p) + distance;
    if (before > p - history.oldest() || !history.matches(p - before, hash)) return false;
  }
  return times <= steps || may_be_skipped(times - steps, times);
}

/// When half of the work that occurs once in each iteration had been seen.
std::uint64_t middle_of_first_seen(const Cycle& cycle) {
  std::vector<std::uint64_t> seen;
  for (std::uint64_t o = 0; o < cycle.length(); ++o) {
    if (cycle.is_single(o) && is_work(cycle.token(o).kind) && !cycle.is_optimizer(o))
      seen.push_back(cycle.token(o).first);
  }
  if (seen.empty()) return ~std::uint64_t{0};
  const auto middle = seen.begin() + static_cast<std::ptrdiff_t>((seen.size() - 1) / 2);
  std::ranges::nth_element(seen, middle);
  return *middle;
}

/// A skipped step is not reported, but the work right before its launches still occurs: the end of the
/// backward pass, or a check whether gradients are finite. 0 if there is no such work, or if steps can't be
/// skipped.
std::uint64_t anchor_before_step(const SignHistory& history, const Repetition& repetition, const Cycle& cycle,
                                 const CycleEnd& end, const CycleBegin& begin) {
  const std::uint64_t launched = history.steps().signs_in(cycle.at(end.last));
  // The last of several steps may also differ from its first occurrence, in which it created its state.
  const bool alone = repetition.steps == 1;
  if (alone && !history.may_skip_step(cycle.at(end.last))) return 0;
  // Not something that also occurs while the program sets up. An iteration may begin with what was first seen
  // at its end, if the first step was skipped.
  const SignHistory::Token& first = cycle.token(begin.work);
  const std::uint64_t earliest = std::min(first.first, middle_of_first_seen(cycle));
  bool host_reads = !alone;
  const std::uint64_t rest = cycle.length() - std::min(launched, cycle.length());
  for (std::uint64_t before = 1; before <= SignHistory::kMaxBeforeStep && 4 * before < rest; ++before) {
    const std::uint64_t o = end.last + cycle.length() - launched - before;
    const SignHistory::Token& token = cycle.token(o);
    host_reads = host_reads || token.kind == SignKind::kCopyToHost;
    if (!host_reads || !is_work(token.kind) || cycle.is_optimizer(o) || token.first < earliest ||
        token.hash == first.hash)
      continue;
    // An interval in which a step was skipped has two of them.
    if (cycle.is_single(o) || (alone && precedes_steps(history, repetition, token.hash, before)))
      return token.hash;
  }
  return 0;
}

/// Whether the stream may begin in the middle of an iteration: most kinds of work among its first signs are
/// the iteration's. The order in which kinds were first seen is then meaningless.
bool may_begin_inside(const SignHistory& history, const Cycle& cycle) {
  std::vector<bool> own(history.tokens());
  for (std::uint64_t o = 0; o < cycle.length(); ++o) own[history.event(cycle.at(o)).function] = true;
  std::size_t kinds = 0;
  std::size_t known = 0;
  for (std::uint32_t id = 1; id < history.tokens(); ++id) {
    const SignHistory::Token& token = history.token(id);
    if (token.function != id || token.first >= kFirstSigns || !is_work(token.kind)) continue;
    ++kinds;
    known += own[id];
  }
  return known * 2 > kinds;
}

/// Whether there is work between an iteration's end and the beginning of the next one.
bool works_between(const Cycle& cycle, std::uint64_t end, std::uint64_t begin) {
  for (std::uint64_t o = end + 1; o < begin; ++o)
    if (is_work(cycle.token(o).kind)) return true;
  return false;
}

/// Whether the marks give about as many boundaries as there are intervals, `expected` among them.
bool marks_hold(const SignHistory& history, const Repetition& repetition, const IterationMarks& marks,
                std::uint64_t expected) {
  Anchored anchored = Anchored::kNo;
  bool met = false;
  unsigned boundaries = 0;
  unsigned before_steps = 0;  // including the skipped ones
  for (std::uint64_t p = repetition.begin(); p < history.total(); ++p) {
    before_steps += marks.other_anchor != 0 && history.matches(p, marks.other_anchor);
    if (const auto* gap = history.gap_before(p); gap != nullptr && !gap->bracketed) anchored = Anchored::kNo;
    if (history.begins(p, marks, anchored)) {
      anchored = after_begin(anchored);
      ++boundaries;
      met = met || p == expected;
    }
    anchored = history.anchored(p, marks, anchored);
  }
  return met && boundaries + 1 >= static_cast<unsigned>(std::popcount(repetition.covered)) &&
         boundaries <= std::max(repetition.intervals, before_steps) + 1;
}

}  // namespace

std::optional<IterationLock> find_marks(const SignHistory& history, const Repetition& repetition) {
  const Cycle cycle(history, repetition);
  const bool by_steps = repetition.optimizer && history.knows_by_steps();
  const auto end = by_steps               ? end_by_steps(history, cycle, repetition.steps)
                   : repetition.optimizer ? end_by_optimizer(cycle)
                                          : end_by_order(history, cycle);
  if (!end) return std::nullopt;
  const CycleBegin begin = begin_after(history, cycle, *end, by_steps);

  IterationLock lock;
  lock.by_shape = repetition.by_shape;
  lock.optimizer = repetition.optimizer;
  lock.intervals = static_cast<unsigned>(std::popcount(repetition.covered));
  lock.events = repetition.spacing;
  lock.marks_found = static_cast<unsigned>(repetition.once.size());
  // Right after an optimizer, an iteration begins regardless of what was seen first.
  const bool by_order = !repetition.optimizer || works_between(cycle, end->last, begin.first);
  lock.counted = end->counted;
  lock.rough = begin.rough || (by_order && cycle.length() > 1 && may_begin_inside(history, cycle));
  // The boundary within this cycle; if it lies beyond the pivot, the previous cycle's is as good.
  const std::uint64_t expected = cycle.at(begin.first);
  const auto hash_of = [&](std::uint64_t offset, bool by_shape) {
    return history.token(history.token_at(cycle.at(offset), by_shape)).hash;
  };
  const std::vector<std::uint64_t> anchors = anchors_for(cycle, *end, by_steps);
  std::vector<std::uint64_t> others;
  if (by_steps) others.push_back(anchor_before_step(history, repetition, cycle, *end, begin));
  if (others.empty() || others.back() != 0) others.push_back(0);
  // By function rather than by shape, since the last batch of an epoch is smaller.
  for (const bool begin_by_shape : {false, true}) {
    lock.marks.begin = hash_of(begin.first, begin_by_shape);
    lock.marks.other_begin = hash_of(begin.work, begin_by_shape);
    for (const std::uint64_t anchor : anchors) {
      const SignHistory::Token& token = cycle.token(anchor);
      lock.marks.anchor = token.kind == SignKind::kStep ? history.step_mark(cycle.id(anchor)) : token.hash;
      for (const std::uint64_t other : others) {
        lock.marks.other_anchor = other;
        if (!marks_hold(history, repetition, lock.marks, expected)) continue;
        lock.begin_name = history.name_of(cycle.id(begin.first));
        lock.anchor_name = history.name_of(cycle.id(anchor));
        return lock;
      }
    }
  }
  return std::nullopt;
}

}  // namespace inject
