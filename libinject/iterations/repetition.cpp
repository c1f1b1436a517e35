// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/repetition.h"

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>
#include <utility>

namespace inject {

namespace {

constexpr unsigned kMaxIntervals = Repetition::kMaxIntervals;
constexpr unsigned kMinIntervals = 3;
constexpr unsigned kMinIntervalsUnnamed = 4;
constexpr double kCovered = 0.97;
// If this share of the kinds that occur once elsewhere occur twice in an interval, it is two intervals with a
// step left out.
constexpr double kDouble = 0.67;
// Nothing is trained in less: it is a kernel launched over and over. Not required with an optimizer's name.
constexpr Nanoseconds kMinDuration = 20 * kMicrosecond;
// With this few events, this many of the latest repetitions must look like it.
constexpr std::uint64_t kFewEvents = 8;
constexpr unsigned kFewEventsIntervals = 64;
// No thread is preempted for this long, except on a hopelessly overloaded machine.
constexpr Nanoseconds kLongerThanPreemption = 100 * kMillisecond;
// Of the kinds of events in an iteration without an optimizer's name, at least one in this many occurs once.
constexpr std::size_t kOnceShare = 10;
// The further work of a longer repetition: as a share of the shorter one's events, …
constexpr double kFurtherOfInner = 0.2;
// … and, if the shorter one has been followed, as a share of its own events; and at least this many events.
constexpr double kFurtherOfOuter = 0.1;
constexpr std::uint64_t kLeastFurther = 8;
// What occurs fewer times than this in the longer one is not an iteration that runs many times between two
// reports.
constexpr double kFewTimes = 2.5;
constexpr std::size_t kMaxPivots = 48;
constexpr std::size_t kMinPivots = 4;
// One analysis visits at most this many events, except with kMinPivots.
constexpr std::uint64_t kMaxVisits = 2'000'000;
// Once analyses have used up their budget.
constexpr std::size_t kScarcePivots = 12;
// An optimizer that has not been seen for this many events is not waited for.
constexpr std::uint64_t kOptimizerPatience = 1u << 16;
constexpr std::uint64_t kOptimizerGaps = 64;
// A graph is an iteration if it has been replayed without a step for this many replays, and for this many
// times the largest distance between two steps.
constexpr double kStepFreeReplays = 64;
constexpr std::uint64_t kStepFreeGaps = 2;
// A PyTorch program without an optimizer for this long has none that can be recognised by name.
constexpr Nanoseconds kMinOptimizerIntervals = 30 * kSecond;

/// Eight classes per power of two. (libm is not linked.)
int distance_class(double spacing) {
  const auto scaled = static_cast<std::uint64_t>(spacing * 16);
  const auto width = static_cast<int>(std::bit_width(scaled | 8u));
  return width * 8 + static_cast<int>(scaled >> (width - 4) & 7);
}

/// For iterations of one step: whether each of the intervals that agree has a step, except for a few that are
/// the same without it, since steps are skipped when a gradient is not finite. (With two alternating models
/// there are also intervals without a step. They have less in them than the others. If gradients are
/// accumulated over a varying number of batches, there are as well, but no step could have been skipped.)
bool skips_steps(const SignHistory& history, const Repetition& found) {
  std::uint64_t shortest = ~std::uint64_t{0};  // shortest interval with a step, without the step's own signs
  std::vector<std::uint64_t> without;
  bool may_skip = true;
  for (unsigned j = 0; j < found.intervals; ++j) {
    if ((found.covered >> j & 1u) == 0) continue;
    const std::uint64_t length = found.at[j] - found.at[j + 1];
    const std::uint64_t steps = history.steps().count_between(found.at[j + 1], found.at[j]);
    if (steps > 1) return false;
    if (steps == 0) {
      without.push_back(length);
    } else {
      const auto step = history.steps().first_from(found.at[j + 1]);
      may_skip = may_skip && step && history.may_skip_step(*step);
      shortest = std::min(shortest, length - std::min(length, history.steps().signs_in(found.at[j + 1]) + 1));
    }
  }
  if (!without.empty() && !may_skip) return false;
  if (!may_be_skipped(without.size(), static_cast<std::size_t>(std::popcount(found.covered)))) return false;
  return std::ranges::all_of(without, [&](std::uint64_t length) {
    return static_cast<double>(length) >= kCovered * static_cast<double>(shortest);
  });
}

// A few launches repeated by threads that briefly wait for each other may take long in the latest intervals;
// then the earlier intervals decide. While there are few of these, only measured times are used: if a thread
// lost its CPU once, all launches around it appear to have taken long.
bool is_too_short(const SignHistory& history, const Repetition& candidate) {
  const std::uint64_t length = (static_cast<std::uint64_t>(2 * candidate.spacing) + 1) / 2;
  if (length == 0 || length > kFewEvents) return false;
  const auto takes_its_time = [&](std::uint64_t last) {
    unsigned intervals = 0;
    unsigned long_enough = 0;
    unsigned measured = 0;  // of these
    std::uint64_t p = last;
    for (; intervals < kFewEventsIntervals && p >= history.oldest() + length; p -= length) {
      const SignHistory::Event& end = history.event(p);
      const SignHistory::Event& begin = history.event(p - length);
      if (end.function != begin.function) break;
      ++intervals;
      if (end.time - begin.time < kMinDuration) continue;
      ++long_enough;
      measured += end.timed != 0 && begin.timed != 0;
    }
    const bool many = intervals == kFewEventsIntervals ||
                      history.event(last).time - history.event(p).time >= kLongerThanPreemption;
    return intervals >= kMinIntervals && 2 * (many ? long_enough : measured) > intervals;
  };
  const std::uint64_t last = history.total() - 1;
  if (last < history.oldest() + length ||
      history.event(last).function != history.event(last - length).function)
    return false;
  // The only sign of a cycle that has a time may be the one that follows a wait.
  for (std::uint64_t back = 0; back < length && back <= last; ++back) {
    if (takes_its_time(last - back)) return false;
  }
  return true;
}

// Work in the latest interval of `outer`, a longer repetition that contains `inner` several times, that inner
// lacks.
struct FurtherWork {
  std::uint64_t events = 0;
  std::uint64_t known = 0;  // … of functions that inner has with another launch shape
};
FurtherWork further_work(const SignHistory& history, const Repetition& inner, const Repetition& outer) {
  std::vector<bool> core(history.tokens());
  for (const std::uint32_t id : inner.core) core[history.token(id).function] = core[id] = true;
  const auto latest = static_cast<unsigned>(std::countr_zero(outer.covered));
  FurtherWork further;
  for (std::uint64_t p = outer.at[latest + 1]; p < outer.at[latest]; ++p) {
    const std::uint32_t id = history.token_at(p, inner.by_shape);
    if (core[id] || !is_work(history.token(id).kind)) continue;
    ++further.events;
    further.known += core[history.token(id).function];
  }
  return further;
}

// Whether there is too much work of functions that inner lacks for a report, which a program may make every
// few iterations.
bool is_no_report(const FurtherWork& further, const Repetition& inner, const Repetition& outer) {
  const std::uint64_t own = further.events - further.known;
  return own >= kLeastFurther && static_cast<double>(own) >= std::max(kFurtherOfInner * inner.spacing,
                                                                      kFurtherOfOuter * outer.spacing);
}

// Whether `outer` does something of its own: an optimizer without a name, the rest of a step around its
// layers. A validation, which is the same work again, does not, nor do the few kernels and copies of a
// report.
bool does_more(const SignHistory& history, const Repetition& inner, const Repetition& outer) {
  const FurtherWork further = further_work(history, inner, outer);
  if (is_no_report(further, inner, outer)) return true;
  return static_cast<double>(further.events) >= kFurtherOfInner * inner.spacing &&
         further.known * 2 < further.events;
}

// The longest of the repetitions, starting from `chosen`, that does more than the shorter one inside it.
const Repetition* longest_with_work(const SignHistory& history, const std::vector<Repetition>& candidates,
                                    const Repetition* chosen) {
  std::vector<const Repetition*> longer;
  for (const Repetition& candidate : candidates) {
    if (candidate.by_shape == chosen->by_shape && !candidate.once.empty()) longer.push_back(&candidate);
  }
  std::ranges::sort(longer, {}, [](const Repetition* c) { return c->spacing; });
  for (const Repetition* candidate : longer) {
    if (candidate->spacing >= 1.5 * chosen->spacing && does_more(history, *chosen, *candidate))
      chosen = candidate;
  }
  return chosen;
}

const Repetition* choose(const SignHistory& history, const std::vector<Repetition>& candidates,
                         bool wants_optimizer) {
  // By launch shape if that finds anything: two alternating models differ in nothing else.
  for (const bool by_shape : {true, false}) {
    const Repetition* shortest = nullptr;
    for (const Repetition& candidate : candidates) {
      if (candidate.by_shape != by_shape || candidate.once.empty()) continue;
      if (wants_optimizer && !candidate.optimizer) continue;
      if (shortest == nullptr || candidate.spacing < shortest->spacing) shortest = &candidate;
    }
    if (shortest == nullptr) continue;
    return wants_optimizer ? shortest : longest_with_work(history, candidates, shortest);
  }
  return nullptr;
}

// Whether new launch shapes keep appearing: then it is useless to wait for intervals with the same shapes.
// Otherwise there may be two alternating models.
bool has_new_shapes(const SignHistory& history, const Repetition& candidate) {
  std::uint64_t fresh = 0;
  for (std::uint64_t p = candidate.at[1]; p < candidate.at[0]; ++p) {
    fresh += history.token(history.event(p).shape).first >= candidate.at[2];
  }
  return fresh * 20 >= candidate.at[0] - candidate.at[1];
}

// Whether a repetition without an optimizer's name has lasted long enough.
bool has_lasted(const SignHistory& history, const Repetition& repetition) {
  const bool full = repetition.intervals == kMaxIntervals;
  const auto agreed = static_cast<unsigned>(std::popcount(repetition.covered));
  if (agreed < (full ? kMinIntervalsUnnamed : std::max(repetition.intervals, kMinIntervalsUnnamed)))
    return false;
  // PyTorch's optimizers have names, and its layers, and tuning that runs the same kernels for minutes,
  // precede the first one.
  if (!history.has_pytorch() || repetition.graph) return true;
  return full && repetition.kinds_of_work >= 3 &&
         history.event(history.total() - 1).time - history.first_time() >= kMinOptimizerIntervals;
}

// Whether the repetition may be the replays of a graph that contains a whole iteration, including its
// optimizer step: certainly if the step was captured. Otherwise an iteration may replay a graph many times
// before it steps, as with gradient accumulation, and only the absence of steps is evidence. `waits`: for the
// steps that the program reports; else steps are recognised by name.
bool may_hold_step(const SignHistory& history, const Repetition& candidate, bool waits) {
  if (!candidate.graph) return false;
  const std::uint64_t end = waits ? history.steps().end() : history.optimizer_end();
  if (candidate.begin() < end) return false;
  if (!waits || history.step_is_captured()) return true;
  std::uint64_t first = history.total();
  for (const std::uint32_t id : candidate.core) {
    if (history.token(id).kind == SignKind::kGraph) first = std::min(first, history.token(id).first);
  }
  const std::uint64_t since = history.total() - std::max(first, end);
  return static_cast<double>(since) >= kStepFreeReplays * candidate.spacing &&
         since > kStepFreeGaps * history.steps().longest_gap();
}

}  // namespace

// Latest positions of every event in the tail, and from them the pivots to try: a few of each distance,
// starting with the distances that most kinds of events share.
std::vector<std::uint32_t> RepetitionSearch::gather_pivots(const SignHistory& history, std::uint64_t depth,
                                                           bool by_shape, bool scarce) {
  const std::size_t most =
      std::clamp<std::size_t>(kMaxVisits / depth, kMinPivots, scarce ? kScarcePivots : kMaxPivots);
  visits_ += static_cast<std::int64_t>(depth);
  ++tails_epoch_;
  if (tails_.size() < history.tokens()) tails_.resize(history.tokens());
  std::vector<std::uint32_t> met;
  for (std::uint64_t p = history.total(); p-- > history.total() - depth;) {
    const std::uint32_t id = history.token_at(p, by_shape);
    Tail& tail = tails_[id];
    if (tail.epoch != tails_epoch_) {
      tail.epoch = tails_epoch_;
      tail.count = 0;
      met.push_back(id);
    }
    if (tail.count <= kMaxIntervals) tail.at[tail.count] = p;
    ++tail.count;
  }
  struct Group {
    std::vector<std::uint32_t> tokens;
    std::size_t size = 0;
    bool optimizer = false;
  };
  std::map<int, Group> groups;
  for (const std::uint32_t id : met) {
    const Tail& tail = tails_[id];
    const SignHistory::Token& token = history.token(id);
    if (id == 0 || tail.count <= kMinIntervals || token.kind == SignKind::kSync) continue;
    const unsigned last = std::min(tail.count - 1, kMaxIntervals);
    const double spacing = static_cast<double>(tail.at[0] - tail.at[last]) / last;
    Group& group = groups[distance_class(spacing)];
    ++group.size;
    group.optimizer = group.optimizer || history.is_optimizer(token);
    // Prefer work to copies, and take few of each distance.
    if (group.tokens.size() < 3) {
      group.tokens.push_back(id);
    } else if (is_work(token.kind)) {
      for (std::uint32_t& other : group.tokens) {
        if (!is_work(history.token(other).kind)) {
          other = id;
          break;
        }
      }
    }
  }
  std::vector<const Group*> order;
  order.reserve(groups.size());
  for (const auto& [distance, group] : groups) order.push_back(&group);
  std::ranges::stable_sort(order, [](const Group* a, const Group* b) {
    return std::pair(a->optimizer, a->size) > std::pair(b->optimizer, b->size);
  });
  std::vector<std::uint32_t> pivots;
  for (const Group* group : order) {
    for (const std::uint32_t id : group->tokens) {
      if (pivots.size() >= most) return pivots;
      pivots.push_back(id);
    }
  }
  return pivots;
}

void RepetitionSearch::Masks::mark(const SignHistory& history, const Repetition& repetition) {
  ++epoch_;
  tokens_.clear();
  if (masks_.size() < history.tokens()) masks_.resize(history.tokens());
  for (unsigned j = 0; j < repetition.intervals; ++j) {
    const std::uint32_t bit = 1u << j;
    for (std::uint64_t p = repetition.at[j + 1]; p < repetition.at[j]; ++p) {
      const std::uint32_t id = history.token_at(p, repetition.by_shape);
      Mask& mask = masks_[id];
      if (mask.epoch != epoch_) {
        mask = {0, 0, epoch_};
        tokens_.push_back(id);
      }
      mask.twice |= mask.present & bit;
      mask.present |= bit;
    }
  }
}

bool RepetitionSearch::Masks::is_double(unsigned interval) const {
  std::size_t singles = 0;
  std::size_t twice = 0;
  for (const std::uint32_t id : tokens_) {
    const Mask& mask = masks_[id];
    if ((mask.present & ~mask.twice) == 0) continue;
    ++singles;
    twice += mask.twice >> interval & 1u;
  }
  return static_cast<double>(twice) >= kDouble * static_cast<double>(singles);
}

std::optional<Repetition> RepetitionSearch::evaluate(const SignHistory& history, std::uint32_t pivot,
                                                     bool by_shape) {
  const Tail& tail = tails_[pivot];
  Repetition found;
  found.by_shape = by_shape;
  found.intervals = std::min(tail.count - 1, kMaxIntervals);
  found.at = tail.at;
  const unsigned count = found.intervals;
  const std::uint64_t events = tail.at[0] - tail.at[count];
  found.spacing = static_cast<double>(events) / count;
  std::uint64_t longest = 0;
  for (unsigned j = 0; j < count; ++j) longest = std::max(longest, tail.at[j] - tail.at[j + 1]);
  if (history.total() - tail.at[0] > longest + longest / 2 + 16) return std::nullopt;  // it no longer occurs

  visits_ += static_cast<std::int64_t>(2 * events);
  masks_.mark(history, found);
  const unsigned most = count >= 5 ? (count * 6 + 9) / 10 : count;
  const auto in_core = [&](std::uint32_t id) {
    return static_cast<unsigned>(std::popcount(masks_.of(id).present)) >= most;
  };
  const std::uint64_t steps =
      history.knows_by_steps() ? history.steps().cycle()->length * cycles_.value_or(1) : 0;
  unsigned covered_count = 0;
  std::uint64_t covered_events = 0;
  unsigned with_optimizer = 0;
  for (unsigned j = 0; j < count; ++j) {
    std::uint64_t covered = 0;
    bool work = false;
    bool optimizer = false;
    for (std::uint64_t p = tail.at[j + 1]; p < tail.at[j]; ++p) {
      const std::uint32_t id = history.token_at(p, by_shape);
      if (!in_core(id)) continue;
      ++covered;
      optimizer = optimizer || history.is_optimizer(history.token(id));
      work = work || (is_work(history.token(id).kind) && !history.is_optimizer(history.token(id)));
    }
    // The number of steps in an iteration: a report in every second one, or an epoch of a few batches,
    // repeats as well.
    if (steps != 0) optimizer = history.steps().count_between(tail.at[j + 1], tail.at[j]) == steps;
    const std::uint64_t length = tail.at[j] - tail.at[j + 1];
    if (optimizer && steps != 0 && masks_.is_double(j)) continue;
    // Steps within an optimizer are not iterations, and neither are copies alone.
    if (!work || static_cast<double>(covered) < kCovered * static_cast<double>(length)) continue;
    found.covered |= 1u << j;
    ++covered_count;
    covered_events += length;
    with_optimizer += optimizer;
  }
  if (covered_count < std::max(kMinIntervals, most) || (found.covered & 3u) == 0) return std::nullopt;
  // Every second one: the pivot occurs twice in an iteration, whose other half is as regular.
  if (count == 5 && found.covered == 0b10101) return std::nullopt;
  // Every interval has one, or the optimizer belongs to something longer.
  found.optimizer = with_optimizer == covered_count;
  if (!found.optimizer && steps == 1 && skips_steps(history, found)) found.optimizer = true;
  if (found.optimizer) found.steps = steps;
  if (!found.optimizer) {
    // A kernel that a step launches a few times in a row, followed by the rest of the step.
    if (covered_count < count && covered_events <= kFewEvents * covered_count) return std::nullopt;
    // Most of them, since some may include the time between two windows, where nothing is seen, or another
    // process's.
    unsigned long_enough = 0;
    for (unsigned j = 0; j < count; ++j)
      long_enough += history.event(tail.at[j]).time - history.event(tail.at[j + 1]).time >= kMinDuration;
    if (2 * long_enough <= count || is_too_short(history, found)) return std::nullopt;
  }
  for (const std::uint32_t id : masks_.tokens()) {
    if (!in_core(id)) continue;
    if (history.token(id).tuning) return std::nullopt;
    found.core.push_back(id);
    found.graph = found.graph || history.token(id).kind == SignKind::kGraph;
    found.kinds_of_work += is_work(history.token(id).kind) && !history.is_optimizer(history.token(id));
    const Mask& mask = masks_.of(id);
    if ((mask.present & found.covered) == found.covered && (mask.twice & found.covered) == 0) {
      found.once.push_back(id);
    }
  }
  // A long stretch contains all kinds of things that a program does in no order.
  if (!found.optimizer && found.once.size() * kOnceShare < found.core.size()) return std::nullopt;
  return found;
}

std::optional<Repetition> RepetitionSearch::find(const SignHistory& history, std::uint64_t depth, bool scarce,
                                                 double least) {
  visits_ = 0;
  if (depth < 4) return std::nullopt;
  cycles_ = cycles_per_iteration(history);
  if (cycles_) visits_ += contents_.visits();
  std::vector<Repetition> candidates;
  for (const bool by_shape : {true, false}) {
    for (const std::uint32_t pivot : gather_pivots(history, depth, by_shape, scarce)) {
      auto candidate = evaluate(history, pivot, by_shape);
      if (candidate && candidate->spacing >= least) candidates.push_back(std::move(*candidate));
    }
  }
  // Between two optimizers there is at least one step, and sometimes a validation.
  const bool wants_optimizer =
      history.has_optimizer() && history.total() - history.optimizer_end() <
                                     std::max(kOptimizerPatience, kOptimizerGaps * history.optimizer_gap());
  const bool waits = history.waits_for_steps() || (history.knows_by_steps() && !cycles_);
  const Repetition* chosen = waits ? nullptr : choose(history, candidates, wants_optimizer);
  // Two alternating models have their optimizers' kernels in common.
  while (chosen != nullptr && chosen->optimizer && chosen->by_shape && !history.knows_by_steps() &&
         !all_alike(history, std::span(chosen->at).first(chosen->intervals + 1))) {
    visits_ += static_cast<std::int64_t>(4 * (chosen->at[0] - chosen->begin()));
    candidates.erase(candidates.begin() + (chosen - candidates.data()));
    chosen = choose(history, candidates, wants_optimizer);
  }
  if (chosen == nullptr && (wants_optimizer || waits)) {
    std::erase_if(candidates,
                  [&](const Repetition& candidate) { return !may_hold_step(history, candidate, waits); });
    chosen = choose(history, candidates, false);
  }
  if (chosen == nullptr) return std::nullopt;
  if (!chosen->optimizer && !has_lasted(history, *chosen)) return std::nullopt;
  if (!chosen->by_shape && chosen->intervals < kMaxIntervals && !has_new_shapes(history, *chosen))
    return std::nullopt;
  return *chosen;
}

bool replaces(const SignHistory& history, const Repetition& inner, const Repetition& outer) {
  if (outer.spacing < kFewTimes * inner.spacing) return true;
  return is_no_report(further_work(history, inner, outer), inner, outer);
}

std::uint64_t count_before(const SignHistory& history, const Repetition& repetition, std::uint64_t position) {
  std::unordered_map<std::uint32_t, std::uint64_t> after;
  for (std::uint64_t p = position; p < history.total(); ++p)
    ++after[history.token_at(p, repetition.by_shape)];
  std::map<std::uint64_t, std::size_t> votes;
  for (const std::uint32_t id : repetition.once) {
    const auto later = after.find(id);
    ++votes[history.token(id).count - (later == after.end() ? 0 : later->second)];
  }
  std::uint64_t best = 0;
  std::size_t most = 0;
  for (const auto& [count, number] : votes) {
    if (number >= most) {
      most = number;
      best = count;
    }
  }
  return best;
}

}  // namespace inject
