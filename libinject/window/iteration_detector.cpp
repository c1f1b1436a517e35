// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/window/iteration_detector.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <map>
#include <utility>

#include "libinject/analysis/kernel_class.h"

namespace inject {

namespace {

constexpr std::size_t kFirstHistory = std::size_t{1} << 12;
constexpr std::size_t kMaxHistory = std::size_t{1} << 20;
constexpr std::size_t kMaxTokens = std::size_t{1} << 17;
constexpr std::size_t kMaxNames = 8192;
constexpr std::size_t kMaxSpans = 65536;
constexpr std::size_t kMaxBegins = 65536;
constexpr std::size_t kMaxGaps = 4096;
// To the host, one after the other and four times as many as an iteration ends with: parameters are saved.
constexpr std::uint64_t kCheckpointCopies = 16;
// An analysis looks at so many of the latest events, and again when a sixteenth of them is new: the lock
// comes at most a quarter of an iteration late once four are there, and the work is some 30 looks an event.
constexpr std::array<std::uint64_t, 9> kDepths = {1u << 6,  1u << 8,  1u << 10, 1u << 12, 1u << 14,
                                                  1u << 16, 1u << 18, 1u << 20, 0};
constexpr std::uint64_t kDueShare = 16;
// While there is a lock, only a better one is looked for.
constexpr std::uint64_t kLockedDueShare = 2;
constexpr unsigned kMinIntervals = 3;
constexpr unsigned kMinIntervalsUnnamed = 4;
constexpr double kCovered = 0.97;
// Nothing is trained in less: a kernel launched over and over. With an optimizer's name anything goes.
constexpr Nanoseconds kMinDuration = 20'000;
// Of so few events, so many of the latest repetitions must look like it.
constexpr std::uint64_t kFewEvents = 8;
constexpr unsigned kFewEventsIntervals = 64;
// Of the kinds of events in an iteration without an optimizer's name, one in so many at least comes once.
constexpr std::size_t kOnceShare = 10;
constexpr std::size_t kMaxPivots = 48;
constexpr std::size_t kMinPivots = 4;
// What analyses may cost, in events looked at (some 2 ns each): so many at first, which covers the search in
// nearly all programs, and so many more with every event; and one analysis at most so many.
constexpr std::int64_t kFirstCredit = 100'000'000;
constexpr std::int64_t kCreditPerEvent = 32;
constexpr std::uint64_t kMaxPerAnalysis = 2'000'000;
// When that is used up, each depth has a share of its own, or the small ones, which are due more often, would
// leave nothing to the others; and fewer pivots.
constexpr std::int64_t kShareOfDepth = 7;
constexpr std::size_t kScarcePivots = 12;
// Events between two boundaries' neighbours that are looked at for where an iteration begins.
constexpr std::size_t kMaxZone = 512;
// An optimizer that has not been seen for this many events is not waited for.
constexpr std::uint64_t kOptimizerPatience = 1u << 16;
constexpr std::uint64_t kOptimizerGaps = 64;
// A PyTorch program in which none has been seen for so long has none that is known by its name.
constexpr Nanoseconds kOptimizerShows = 30'000'000'000;
// Anchors that stay away for this many times an iteration's events: the program does something else now.
constexpr double kOverdue = 8;
constexpr double kOverdueUnnamed = 16;

/// Eight classes for every doubling. (libm is not linked.)
int distance_class(double spacing) {
  const auto scaled = static_cast<std::uint64_t>(spacing * 16);
  const auto width = static_cast<int>(std::bit_width(scaled | 8u));
  return width * 8 + static_cast<int>(scaled >> (width - 4) & 7);
}

bool is_work(SignKind kind) {
  return kind == SignKind::kKernel || kind == SignKind::kGraph || kind == SignKind::kCall;
}

}  // namespace

bool is_optimizer_name(std::string_view name) {
  static constexpr std::string_view kWords[] = {"multi_tensor_apply",
                                                "multitensorapply",
                                                "adam",
                                                "sgd",
                                                "adagrad",
                                                "rmsprop",
                                                "adadelta",
                                                "adafactor",
                                                "fusedlamb",
                                                "^lamb_",
                                                "^lars_",
                                                "^lion_",
                                                "momentum",
                                                "optimizer",
                                                "update_weight",
                                                "weight_update",
                                                "apply_gradient",
                                                "apply_grad",
                                                "update_params",
                                                "param_update"};
  std::string lower(name.substr(0, 2048));
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto has = [&](std::string_view words) { return name_has_words(lower, words); };
  // Gradients are set to zero by the same kernels, but at the beginning; and shards of parameters are copied
  // by them in the forward and backward passes (FSDP).
  if (has("zerofunctor") || has("foreach_zero") || has("multi_tensor_apply copy")) return false;
  return std::ranges::any_of(kWords, has);
}

bool is_tuning_name(std::string_view name) {
  static constexpr std::string_view kWords[] = {"delay_kernel",       "xla_fp_comparison",
                                                "redzone_checker",    "RedzoneAllocator",
                                                "RepeatBufferKernel", "buffer_comparator"};
  return std::ranges::any_of(kWords,
                             [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

IterationDetector::IterationDetector() : history_(kFirstHistory), credit_(kFirstCredit), cache_(kCached) {
  tokens_.emplace_back();  // 0: whatever no longer fits
}

void IterationDetector::name(std::uint64_t function, std::string_view mangled) {
  if (names_.size() >= kMaxNames) return;
  const auto [at, fresh] = names_.emplace(function, mangled.substr(0, 512));
  if (!fresh) return;
  optimizer_will_show_ = optimizer_will_show_ || mangled.find("at6native") != std::string_view::npos;
  const bool optimizer = is_optimizer_name(mangled);
  const bool tuning = is_tuning_name(mangled);
  // The kernel may have come before its name.
  const auto id = ids_.find(function);
  if (id == ids_.end() || (!optimizer && !tuning)) return;
  for (Token& token : tokens_) {
    if (token.function != id->second) continue;
    token.optimizer = optimizer;
    token.tuning = tuning;
  }
  if (optimizer) last_optimizer_ = std::max(last_optimizer_, tokens_[id->second].last + 1);
}

std::uint32_t IterationDetector::token_of(std::uint64_t hash, SignKind kind, std::uint32_t function) {
  auto& [cached_hash, cached_id] = cache_[hash % kCached];
  if (cached_hash == hash) return cached_id;
  const auto found = ids_.find(hash);
  if (found != ids_.end()) {
    cached_hash = hash;
    cached_id = found->second;
    return cached_id;
  }
  if (tokens_.size() >= kMaxTokens) return function;
  const auto id = static_cast<std::uint32_t>(tokens_.size());
  Token token;
  token.hash = hash;
  token.first = total_;
  token.kind = kind;
  token.function = function == 0 ? id : function;
  if (function != 0) {
    token.optimizer = tokens_[function].optimizer;
    token.tuning = tokens_[function].tuning;
  } else if (const auto known = names_.find(hash); known != names_.end()) {
    token.optimizer = is_optimizer_name(known->second);
    token.tuning = is_tuning_name(known->second);
  }
  tokens_.push_back(token);
  ids_.emplace(hash, id);
  return id;
}

void IterationDetector::add(const LaunchSign& sign) {
  if (sign.kind >= SignKind::kMark) return;
  if (total_ >= history_.size() && history_.size() < kMaxHistory) {
    std::vector<Event> larger(history_.size() * 2);
    for (std::uint64_t p = oldest(); p < total_; ++p) larger[p & (larger.size() - 1)] = event(p);
    history_ = std::move(larger);
  }
  const std::uint32_t function = token_of(sign.function, sign.kind, 0);
  const std::uint32_t shape = token_of(sign.shape, sign.kind, function);
  if (total_ == 0) first_time_ = sign.time;
  const std::uint64_t position = total_++;
  history_[position & (history_.size() - 1)] = {shape, function, sign.time};
  for (const std::uint32_t id : {function, shape}) {
    Token& token = tokens_[id];
    if (id == shape && shape == function) break;
    ++token.count;
    token.last = position;
  }
  if (tokens_[function].optimizer) {
    if (last_optimizer_ != 0) optimizer_gap_ = std::max(optimizer_gap_, position + 1 - last_optimizer_);
    last_optimizer_ = position + 1;
  }
  if (lock_) track(position);
  analyse_if_due();
}

bool IterationDetector::matches(std::uint64_t position, std::uint64_t mark) const {
  const Event& at = event(position);
  return tokens_[at.shape].hash == mark || tokens_[at.function].hash == mark;
}

void IterationDetector::resume(bool bracketed) {
  if (total_ == 0) return;
  if (!gaps_.empty() && gaps_.back().position == total_) {
    gaps_.back().bracketed = gaps_.back().bracketed && bracketed;  // nothing was launched in between
    return;
  }
  if (gaps_.size() == kMaxGaps) gaps_.erase(gaps_.begin(), gaps_.begin() + kMaxGaps / 2);
  gaps_.push_back({total_, bracketed});
}

const IterationDetector::Gap* IterationDetector::gap_at(std::uint64_t position) const {
  if (gaps_.empty() || gaps_.back().position < position) return nullptr;
  const auto gap = std::ranges::lower_bound(gaps_, position, {}, &Gap::position);
  return gap->position == position ? &*gap : nullptr;
}

bool IterationDetector::is_as_long(std::uint64_t length) const {
  return static_cast<double>(length) >= 0.97 * lock_->events &&
         static_cast<double>(length) <= 1.5 * lock_->events;
}

// What was in progress has come to its end unseen, and others may have begun and ended. A program that
// switches the profiler off between two iterations leaves no gap in what is seen of them.
void IterationDetector::pass_gap(std::uint64_t position, bool bracketed) {
  // `begin_too` may come later in an iteration: after a gap it tells nothing.
  if (bracketed && in_iteration_ && anchor_seen_ && matches(position, lock_->marks.begin)) return;
  IterationSpan cut;
  cut.number = number_;
  cut.end = cut.last_event_time = event(position - 1).time;
  cut.first_event = begin_event_;
  cut.cut = true;
  if (in_iteration_) {
    cut.begin = begin_time_;
    cut.whole = bracketed && anchor_seen_ && is_as_long(position - begin_event_);
  }
  if (in_iteration_ || anchor_seen_) ++number_;
  cut.following = number_;
  if (spans_.size() < kMaxSpans) spans_.push_back(cut);
  in_iteration_ = anchor_seen_ = false;
  begins_.clear();
  copies_ = 0;
}

// The same steps as emit_sign() takes on the program's threads, and what can be told only afterwards: where
// `begin` came more often than it does in an iteration, something else ran before it.
void IterationDetector::track(std::uint64_t position) {
  if (const Gap* gap = gap_at(position); gap != nullptr && position > oldest()) {
    pass_gap(position, gap->bracketed);
  }
  const IterationMarks& marks = lock_->marks;
  const bool begins = matches(position, marks.begin) || matches(position, marks.begin_too);
  const Nanoseconds time = event(position).time;
  if (anchor_seen_ && begins) {
    anchor_seen_ = false;
    const bool checkpoint = in_iteration_ && tail_known_ && tail_event_ > begin_event_ &&
                            tail_event_ > oldest() && copies_ >= kCheckpointCopies &&
                            copies_ >= 4 * usual_copies_;
    if (in_iteration_ && spans_.size() < kMaxSpans) {
      const std::uint64_t end = checkpoint ? tail_event_ : position;
      spans_.push_back({number_, begin_time_, checkpoint ? tail_time_ : time, event(end - 1).time,
                        begin_event_, false, false});
      if (checkpoint)
        spans_.push_back({number_ + 1, tail_time_, time, event(position - 1).time, tail_event_, true, true});
    }
    if (!checkpoint) {
      usual_copies_ = copies_;
      tail_known_ = true;
    }
    // Where the first iteration began may not be known, but it has been.
    ++number_;
    if (in_iteration_) {
      const auto duration = static_cast<double>((checkpoint ? tail_time_ : time) - begin_time_);
      mean_ = mean_ == 0 ? duration : mean_ + (duration - mean_) / 8;
    }
    in_iteration_ = true;
    begin_event_ = position;
    begin_time_ = time;
    begins_.clear();
  }
  if (matches(position, marks.begin)) {
    // The latest are those that count.
    if (begins_.size() == kMaxBegins) begins_.erase(begins_.begin(), begins_.begin() + kMaxBegins / 2);
    begins_.emplace_back(position, time);
  }
  if (matches(position, marks.anchor)) {
    last_anchor_ = position;
    if (!anchor_seen_ && !in_iteration_ && begins_expected_ != 0 && begins_.size() >= begins_expected_) {
      // The first one, seen from its end.
      in_iteration_ = true;
      begin_event_ = begins_[begins_.size() - begins_expected_].first;
      begin_time_ = begins_[begins_.size() - begins_expected_].second;
    } else if (!anchor_seen_ && in_iteration_ && begins_expected_ != 0 && begins_.size() > begins_expected_) {
      const auto& [event_begin, time_begin] = begins_[begins_.size() - begins_expected_];
      if (spans_.size() < kMaxSpans) {
        const Nanoseconds before = event_begin > oldest() ? event(event_begin - 1).time : time_begin;
        spans_.push_back({number_, begin_time_, time_begin, before, begin_event_, true, false});
      }
      begin_event_ = event_begin;
      begin_time_ = time_begin;
    }
    anchor_seen_ = true;
  }
  const SignKind kind = tokens_[event(position).function].kind;
  if (is_work(kind)) {
    copies_ = 0;
  } else if (kind == SignKind::kCopyToHost && ++copies_ == usual_copies_ + 1) {
    tail_event_ = position;
    tail_time_ = time;
  }
}

std::vector<IterationSpan> IterationDetector::take_spans() {
  return std::exchange(spans_, {});
}

std::optional<IterationSpan> IterationDetector::unfinished_span() const {
  if (!lock_ || !in_iteration_ || !anchor_seen_) return std::nullopt;
  const Nanoseconds last = event(total_ - 1).time;
  return IterationSpan{number_, begin_time_, last, last, begin_event_, false, false};
}

std::optional<IterationSpan> IterationDetector::trailing_span() const {
  auto span = unfinished_span();
  if (!span) return std::nullopt;
  if (!is_as_long(total_ - begin_event_)) return std::nullopt;
  return span;
}

Nanoseconds IterationDetector::mean_duration() const {
  return static_cast<Nanoseconds>(mean_);
}

void IterationDetector::analyse_if_due() {
  const bool overdue =
      lock_ && static_cast<double>(total_ - last_anchor_) >
                   (lock_->optimizer ? kOverdue : kOverdueUnnamed) * std::max(lock_->events, 8.0);
  const std::uint64_t share = lock_ && !overdue ? kLockedDueShare : kDueShare;
  const std::uint64_t there = total_ - oldest();
  credit_ = std::min(credit_ + kCreditPerEvent, kFirstCredit);
  for (std::size_t i = 0; kDepths[i] != 0; ++i) {
    const std::uint64_t due = std::max<std::uint64_t>(kDepths[i] / share, 4);
    shares_[i] = std::min<std::int64_t>(shares_[i] + kShareOfDepth, 0);
    scarce_ = credit_ <= 0;
    if (total_ - analysed_at_[i] >= due && (!scarce_ || shares_[i] == 0) && allowed_ > 0) {
      analysed_at_[i] = total_;
      const std::int64_t before = credit_;
      // A lock by shape with an optimizer in it is kept as long as it holds.
      if (!lock_ || overdue || !lock_->optimizer || !lock_->by_shape) analyse(std::min(kDepths[i], there));
      allowed_ -= before - credit_;
      if (scarce_) shares_[i] -= before - std::exchange(credit_, before);
    }
    if (kDepths[i] >= there) break;
  }
}

// Latest positions of every event in the tail, and from them the pivots to try: a few of each distance, from
// the distances that most kinds of events share.
void IterationDetector::gather(std::uint64_t begin, bool by_shape, std::vector<std::uint32_t>& pivots) {
  const std::uint64_t depth = total_ - begin;
  const std::size_t most =
      std::clamp<std::size_t>(kMaxPerAnalysis / depth, kMinPivots, scarce_ ? kScarcePivots : kMaxPivots);
  credit_ -= static_cast<std::int64_t>(depth);
  ++epoch_;
  if (tails_.size() < tokens_.size()) tails_.resize(tokens_.size());
  std::vector<std::uint32_t> met;
  for (std::uint64_t p = total_; p-- > begin;) {
    const std::uint32_t id = token_at(p, by_shape);
    Tail& tail = tails_[id];
    if (tail.epoch != epoch_) {
      tail.epoch = epoch_;
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
    const Token& token = tokens_[id];
    if (id == 0 || tail.count <= kMinIntervals || token.kind == SignKind::kSync) continue;
    const unsigned last = std::min(tail.count - 1, kMaxIntervals);
    const double spacing = static_cast<double>(tail.at[0] - tail.at[last]) / last;
    Group& group = groups[distance_class(spacing)];
    ++group.size;
    group.optimizer = group.optimizer || token.optimizer;
    // Work before copies, and few of each.
    if (group.tokens.size() < 3) {
      group.tokens.push_back(id);
    } else if (is_work(token.kind)) {
      for (std::uint32_t& other : group.tokens) {
        if (!is_work(tokens_[other].kind)) {
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
  for (const Group* group : order) {
    for (const std::uint32_t id : group->tokens) {
      if (pivots.size() >= most) return;
      pivots.push_back(id);
    }
  }
}

std::optional<IterationDetector::Candidate> IterationDetector::evaluate(std::uint32_t pivot, bool by_shape) {
  const Tail& tail = tails_[pivot];
  Candidate found;
  found.pivot = pivot;
  found.by_shape = by_shape;
  found.intervals = std::min(tail.count - 1, kMaxIntervals);
  found.at = tail.at;
  const unsigned count = found.intervals;
  found.spacing = static_cast<double>(tail.at[0] - tail.at[count]) / count;
  std::uint64_t longest = 0;
  for (unsigned j = 0; j < count; ++j) longest = std::max(longest, tail.at[j] - tail.at[j + 1]);
  if (total_ - tail.at[0] > longest + longest / 2 + 16) return std::nullopt;  // it has stopped coming

  ++epoch_;
  if (masks_.size() < tokens_.size()) {
    masks_.resize(tokens_.size());
    twice_.resize(tokens_.size());
    mask_epoch_.resize(tokens_.size());
  }
  credit_ -= static_cast<std::int64_t>(2 * (tail.at[0] - tail.at[count]));
  std::vector<std::uint32_t> met;
  for (unsigned j = 0; j < count; ++j) {
    const std::uint32_t bit = 1u << j;
    for (std::uint64_t p = tail.at[j + 1]; p < tail.at[j]; ++p) {
      const std::uint32_t id = token_at(p, by_shape);
      if (mask_epoch_[id] != epoch_) {
        mask_epoch_[id] = epoch_;
        masks_[id] = twice_[id] = 0;
        met.push_back(id);
      }
      if ((masks_[id] & bit) != 0) twice_[id] |= bit;
      masks_[id] |= bit;
    }
  }
  const unsigned most = count >= 5 ? (count * 6 + 9) / 10 : count;
  const auto in_core = [&](std::uint32_t id) {
    return static_cast<unsigned>(std::popcount(masks_[id])) >= most;
  };
  unsigned covered_count = 0;
  std::uint64_t covered_events = 0;
  unsigned with_optimizer = 0;
  for (unsigned j = 0; j < count; ++j) {
    std::uint64_t covered = 0;
    bool work = false;
    bool optimizer = false;
    for (std::uint64_t p = tail.at[j + 1]; p < tail.at[j]; ++p) {
      const std::uint32_t id = token_at(p, by_shape);
      if (!in_core(id)) continue;
      ++covered;
      optimizer = optimizer || tokens_[id].optimizer;
      work = work || (is_work(tokens_[id].kind) && !tokens_[id].optimizer);
    }
    const std::uint64_t length = tail.at[j] - tail.at[j + 1];
    // Steps within an optimizer are no iterations, and copies alone are none.
    if (!work || static_cast<double>(covered) < kCovered * static_cast<double>(length)) continue;
    found.covered |= 1u << j;
    ++covered_count;
    covered_events += length;
    with_optimizer += optimizer;
  }
  if (covered_count < std::max(kMinIntervals, most) || (found.covered & 3u) == 0) return std::nullopt;
  // Every other one: the pivot comes twice in an iteration, whose other half is as regular.
  if (count == 5 && found.covered == 0b10101) return std::nullopt;
  // Every interval has one, or the optimizer goes with something longer.
  found.optimizer = with_optimizer == covered_count;
  if (!found.optimizer) {
    // A kernel that a step launches a few times in a row, and then the rest of the step.
    if (covered_count < count && covered_events <= kFewEvents * covered_count) return std::nullopt;
    // Most of them: some may hold the time between two windows, where nothing is seen, or another process's.
    unsigned long_enough = 0;
    for (unsigned j = 0; j < count; ++j)
      long_enough += event(tail.at[j]).time - event(tail.at[j + 1]).time >= kMinDuration;
    if (2 * long_enough <= count || is_too_short(found)) return std::nullopt;
  }
  for (const std::uint32_t id : met) {
    if (!in_core(id)) continue;
    if (tokens_[id].tuning) return std::nullopt;
    found.core.push_back(id);
    found.graph = found.graph || tokens_[id].kind == SignKind::kGraph;
    found.kinds_of_work += is_work(tokens_[id].kind) && !tokens_[id].optimizer;
    if ((masks_[id] & found.covered) == found.covered && (twice_[id] & found.covered) == 0) {
      found.once.push_back(id);
    }
  }
  // Any long stretch has in it whatever a program does in no order.
  if (!found.optimizer && found.once.size() * kOnceShare < found.core.size()) return std::nullopt;
  return found;
}

// A few launches over and over, by threads that wait for each other for a moment, may take their time in the
// latest intervals; then those before them tell.
bool IterationDetector::is_too_short(const Candidate& candidate) const {
  const std::uint64_t length = (static_cast<std::uint64_t>(2 * candidate.spacing) + 1) / 2;
  if (length == 0 || length > kFewEvents) return false;
  unsigned intervals = 0;
  unsigned long_enough = 0;
  for (std::uint64_t p = total_ - 1; intervals < kFewEventsIntervals && p >= oldest() + length; p -= length) {
    if (event(p).function != event(p - length).function) break;
    ++intervals;
    long_enough += event(p).time - event(p - length).time >= kMinDuration;
  }
  return intervals != 0 && 2 * long_enough <= intervals;
}

// Whether `outer`, a longer repetition that contains `inner` several times, does something of its own: an
// optimizer without a name, the rest of a step around its layers. Not so: a validation, which is the same
// work over again, or a few kernels and copies of a report.
bool IterationDetector::further_work(const Candidate& inner, const Candidate& outer) {
  std::vector<bool> core(tokens_.size());
  for (const std::uint32_t id : inner.core) core[tokens_[id].function] = core[id] = true;
  const auto latest = static_cast<unsigned>(std::countr_zero(outer.covered));
  std::uint64_t further = 0;
  std::uint64_t known = 0;
  for (std::uint64_t p = outer.at[latest + 1]; p < outer.at[latest]; ++p) {
    const std::uint32_t id = token_at(p, inner.by_shape);
    if (core[id] || !is_work(tokens_[id].kind)) continue;
    ++further;
    known += core[tokens_[id].function];
  }
  return static_cast<double>(further) >= 0.2 * inner.spacing && known * 2 < further;
}

const IterationDetector::Candidate* IterationDetector::choose(const std::vector<Candidate>& candidates,
                                                              bool wants_optimizer) {
  // By launch shape where that finds anything: two models that take turns differ in nothing else.
  for (const bool by_shape : {true, false}) {
    const Candidate* chosen = nullptr;
    for (const Candidate& candidate : candidates) {
      if (candidate.by_shape != by_shape || candidate.once.empty()) continue;
      if (wants_optimizer && !candidate.optimizer) continue;
      if (chosen == nullptr || candidate.spacing < chosen->spacing) chosen = &candidate;
    }
    if (chosen == nullptr) continue;
    if (wants_optimizer) return chosen;
    std::vector<const Candidate*> longer;
    for (const Candidate& candidate : candidates) {
      if (candidate.by_shape == by_shape && !candidate.once.empty()) longer.push_back(&candidate);
    }
    std::ranges::sort(longer, {}, [](const Candidate* c) { return c->spacing; });
    for (const Candidate* candidate : longer) {
      if (candidate->spacing >= 1.5 * chosen->spacing && further_work(*chosen, *candidate))
        chosen = candidate;
    }
    return chosen;
  }
  return nullptr;
}

// Whether launch shapes come up that had not been seen: then it is no use to wait for intervals that are
// alike in them. Otherwise it may be two models that take turns.
bool IterationDetector::has_new_shapes(const Candidate& candidate) const {
  std::uint64_t fresh = 0;
  for (std::uint64_t p = candidate.at[1]; p < candidate.at[0]; ++p) {
    fresh += tokens_[event(p).shape].first >= candidate.at[2];
  }
  return fresh * 20 >= candidate.at[0] - candidate.at[1];
}

void IterationDetector::analyse(std::uint64_t depth) {
  if (depth < 4) return;
  const std::uint64_t begin = total_ - depth;
  // Between two optimizers lie a step at least, and a validation at times.
  const std::uint64_t quiet = total_ - last_optimizer_;
  const bool wants_optimizer =
      last_optimizer_ != 0 && quiet < std::max(kOptimizerPatience, kOptimizerGaps * optimizer_gap_);
  std::vector<Candidate> candidates;
  for (const bool by_shape : {true, false}) {
    std::vector<std::uint32_t> pivots;
    gather(begin, by_shape, pivots);
    const std::uint32_t tails = epoch_;
    for (const std::uint32_t pivot : pivots) {
      if (tails_[pivot].epoch != tails) continue;
      if (auto candidate = evaluate(pivot, by_shape)) candidates.push_back(std::move(*candidate));
    }
  }
  const Candidate* chosen = choose(candidates, wants_optimizer);
  if (chosen == nullptr && wants_optimizer) {
    // A graph holds a whole step, its optimizer included.
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return !candidate.graph || candidate.at[candidate.intervals] < last_optimizer_;
    });
    chosen = choose(candidates, false);
  }
  if (chosen == nullptr) return;
  if (!chosen->optimizer) {
    const auto agreed = static_cast<unsigned>(std::popcount(chosen->covered));
    if (agreed < (chosen->intervals < kMaxIntervals ? std::max(chosen->intervals, kMinIntervalsUnnamed)
                                                    : kMinIntervalsUnnamed)) {
      return;
    }
    // PyTorch's optimizers have names, and before the first one come its layers, and tuning that runs the
    // same kernels for minutes.
    if (optimizer_will_show_ && !chosen->graph &&
        (chosen->intervals < kMaxIntervals || chosen->kinds_of_work < 3 ||
         event(total_ - 1).time - first_time_ < kOptimizerShows)) {
      return;
    }
  }
  if (!chosen->by_shape && chosen->intervals < kMaxIntervals && !has_new_shapes(*chosen)) return;
  // The same iterations again?
  if (lock_ && (chosen->optimizer == lock_->optimizer || !chosen->optimizer) &&
      chosen->spacing < 1.5 * lock_->events &&
      total_ - last_anchor_ < static_cast<std::uint64_t>(4 * lock_->events) + 16) {
    return;
  }
  if (auto found = find_marks(*chosen)) accept(std::move(*found), *chosen);
}

bool IterationDetector::marks_hold(const Candidate& candidate, const IterationMarks& marks,
                                   std::uint64_t expected) const {
  bool seen = false;
  bool met = false;
  unsigned boundaries = 0;
  for (std::uint64_t p = candidate.at[candidate.intervals]; p < total_; ++p) {
    if (const Gap* gap = gap_at(p); gap != nullptr && !gap->bracketed) seen = false;
    if (seen && (matches(p, marks.begin) || matches(p, marks.begin_too))) {
      seen = false;
      ++boundaries;
      met = met || p == expected;
    }
    if (matches(p, marks.anchor)) seen = true;
  }
  return met && boundaries + 1 >= static_cast<unsigned>(std::popcount(candidate.covered)) &&
         boundaries <= candidate.intervals + 1;
}

std::optional<IterationDetector::Lock> IterationDetector::find_marks(const Candidate& candidate) {
  const bool by_shape = candidate.by_shape;
  const auto latest = static_cast<unsigned>(std::countr_zero(candidate.covered));
  const std::uint64_t begin = candidate.at[latest + 1];
  const std::uint64_t length = candidate.at[latest] - begin;
  std::vector<bool> once(tokens_.size());
  for (const std::uint32_t id : candidate.once) once[id] = true;
  // One cycle, from the pivot on; the boundary lies somewhere in it. Seen twice in a row, so that what lies
  // across the pivot can be read on: the cycle before it is as good as the one after it.
  const auto at = [&](std::uint64_t offset) { return begin + offset % length; };
  const auto id_at = [&](std::uint64_t offset) { return token_at(at(offset), by_shape); };

  // The end of the cycle.
  std::uint64_t end = length;
  std::uint64_t group_begin;                 // first event of what ends it
  std::uint64_t middle = ~std::uint64_t{0};  // when that was first seen
  if (candidate.optimizer) {
    std::vector<std::uint64_t> steps;
    for (std::uint64_t i = 0; i < length; ++i) {
      if (tokens_[id_at(i)].optimizer) steps.push_back(i);
    }
    if (steps.empty()) return std::nullopt;
    const std::uint64_t apart = std::max<std::uint64_t>(8, length / 20);
    std::uint64_t best = ~std::uint64_t{0};
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::uint64_t next = i + 1 < steps.size() ? steps[i + 1] : steps[0] + length;
      if (steps.size() > 1 && next - steps[i] <= apart) continue;
      // What follows this group: the iteration that was seen first began so.
      std::uint64_t first = ~std::uint64_t{0};
      for (std::uint64_t o = steps[i] + 1; o < next && o < steps[i] + 1 + kMaxZone; ++o) {
        if (once[id_at(o)] && is_work(tokens_[id_at(o)].kind)) {
          first = tokens_[id_at(o)].first;
          break;
        }
        if (o == steps[i] + 32 || o + 1 == next) first = std::min(first, tokens_[id_at(o)].first);
      }
      if (end == length || first < best) {
        best = first;
        end = steps[i];
      }
    }
    if (end == length) end = steps.back();
    group_begin = end;
    for (std::uint64_t back = 0, quiet = 0; back < length && quiet <= apart; ++back) {
      const Token& token = tokens_[id_at(end + length - back)];
      if (token.optimizer) {
        group_begin = (end + length - back) % length;
        middle = std::min(middle, token.first);
        quiet = 0;
      } else {
        ++quiet;
      }
    }
  } else {
    // The rotation that puts the first occurrences in order.
    std::vector<std::uint64_t> order;
    for (std::uint64_t i = 0; i < length; ++i) {
      if (once[id_at(i)]) order.push_back(i);
    }
    if (order.empty()) return std::nullopt;
    const std::size_t step = std::max<std::size_t>(1, order.size() / 96);
    std::vector<std::uint64_t> sample;
    for (std::size_t i = 0; i < order.size(); i += step) sample.push_back(order[i]);
    std::size_t best = 0;
    std::uint64_t least = ~std::uint64_t{0};
    const auto first_of = [&](std::size_t i) { return tokens_[id_at(sample[i % sample.size()])].first; };
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
    // The event before it, in the whole order again.
    const auto start =
        static_cast<std::size_t>(std::ranges::lower_bound(order, sample[best]) - order.begin());
    end = order[(start + order.size() - 1) % order.size()];
    group_begin = end;
    middle = tokens_[id_at(end)].first;
  }

  // From there to the first work that comes once in each iteration and is older than the end of the first
  // one: it belongs to the beginning. Failing that, the first work that is older.
  std::vector<std::uint64_t> zone;
  const auto first_seen = [&](std::uint64_t o) { return tokens_[id_at(o)].first; };
  std::size_t from = kMaxZone;
  for (std::uint64_t o = end + 1; o <= end + length && zone.size() < kMaxZone; ++o) {
    zone.push_back(o);
    const Token& token = tokens_[id_at(o)];
    if (!is_work(token.kind) || token.optimizer || token.first >= middle) continue;
    if (from == kMaxZone) from = zone.size() - 1;
    if (!once[id_at(o)]) continue;
    from = zone.size() - 1;
    break;
  }
  if (zone.empty()) return std::nullopt;
  // Backwards over what had been seen before the first iteration came to its end.
  std::size_t start = 0;
  const bool rough = from == kMaxZone && length > 1;
  if (!rough && length > 1) {
    start = from;
    for (std::size_t i = from; i-- > 0;) {
      const Token& token = tokens_[id_at(zone[i])];
      if (token.kind == SignKind::kSync) continue;
      if (token.kind == SignKind::kCopyToHost || token.optimizer || first_seen(zone[i]) >= middle) break;
      start = i;
    }
    // Copies to the device bring its data, whenever such a size was first seen: what follows them follows
    // them.
    for (std::size_t i = start; i-- > 0;) {
      const Token& token = tokens_[id_at(zone[i])];
      if (token.kind == SignKind::kCopyToHost || token.optimizer) break;
      if (token.kind == SignKind::kCopyToDevice) start = i;
    }
    zone.resize(from + 1);
  } else {
    // What it began with was replaced. Copies to the host and optimizers end an iteration.
    zone.resize(std::min<std::size_t>(zone.size(), 64));
    for (std::size_t i = 0; i + 1 < zone.size(); ++i) {
      const Token& token = tokens_[id_at(zone[i])];
      if (token.kind == SignKind::kCopyToHost || token.optimizer) start = i + 1;
    }
    while (start + 1 < zone.size() && tokens_[id_at(zone[start])].kind == SignKind::kSync) ++start;
  }

  Lock lock;
  lock.by_shape = by_shape;
  lock.optimizer = candidate.optimizer;
  lock.intervals = static_cast<unsigned>(std::popcount(candidate.covered));
  lock.events = candidate.spacing;
  lock.marks_found = static_cast<unsigned>(candidate.once.size());
  lock.rough = rough;
  // The boundary within this cycle; where it lies beyond the pivot, that of the cycle before is as good.
  const std::uint64_t expected = at(zone[start]);
  const auto function_of = [&](std::uint64_t o) { return tokens_[event(at(o)).function].hash; };
  const auto shape_of = [&](std::uint64_t o) { return tokens_[event(at(o)).shape].hash; };

  // The anchor: the optimizer's first event, which is there also where the optimizer itself is skipped
  // (gradients are checked first); else what comes before it; else the rest of it; else what of it comes
  // several times.
  std::vector<std::uint64_t> anchors;
  std::vector<std::uint64_t> rest;
  std::vector<std::uint64_t> repeated;
  for (std::uint64_t back = 0; back < length && anchors.size() < 64; ++back) {
    const std::uint64_t o = end + length - back;
    if (!once[id_at(o)]) {
      if (tokens_[id_at(o)].optimizer && repeated.size() < 8) repeated.push_back(o);
      continue;
    }
    const bool in_group = group_begin != end && back <= (end + length - group_begin) % length;
    if (in_group && (group_begin != o % length)) {
      rest.push_back(o);
    } else {
      anchors.push_back(o);
    }
  }
  anchors.insert(anchors.end(), rest.begin(), rest.end());
  anchors.insert(anchors.end(), repeated.begin(), repeated.end());
  // By function rather than by shape: the last batch of an epoch is smaller.
  for (const bool begin_by_shape : {false, true}) {
    lock.marks.begin = begin_by_shape ? shape_of(zone[start]) : function_of(zone[start]);
    lock.marks.begin_too = begin_by_shape ? shape_of(zone.back()) : function_of(zone.back());
    for (const std::uint64_t o : anchors) {
      lock.marks.anchor = tokens_[id_at(o)].hash;
      if (!marks_hold(candidate, lock.marks, expected)) continue;
      lock.begin_name = name_of(id_at(zone[start]));
      lock.anchor_name = name_of(id_at(o));
      return lock;
    }
  }
  return std::nullopt;
}

// How many iterations were over at `position`, by a vote of the events that come once in each: some were
// missing from the first ones (tuning, a skipped optimizer), some came before them (a check of the
// validation).
std::uint64_t IterationDetector::count_before(const Candidate& candidate, std::uint64_t position) const {
  std::unordered_map<std::uint32_t, std::uint64_t> after;
  for (std::uint64_t p = position; p < total_; ++p) ++after[token_at(p, candidate.by_shape)];
  std::map<std::uint64_t, std::size_t> votes;
  for (const std::uint32_t id : candidate.once) {
    const auto later = after.find(id);
    ++votes[tokens_[id].count - (later == after.end() ? 0 : later->second)];
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

void IterationDetector::keep_numbers(std::uint64_t next, Nanoseconds until) {
  next_number_ = next;
  numbered_until_ = until;
}

// By how much the numbers of a new lock have to grow so that none is shown twice.
std::uint64_t IterationDetector::least_shift() const {
  std::uint64_t next = in_iteration_ && begin_time_ <= numbered_until_ ? number_ + 1 : number_;
  for (const IterationSpan& span : spans_) {
    if (span.begin <= numbered_until_ && span.end <= numbered_until_) continue;
    if (span.begin > numbered_until_) {
      next = span.number;
    } else if (span.cut) {
      next = span.following;
    } else {
      next = span.phase ? span.number : span.number + 1;
    }
    break;
  }
  return next_number_ > next ? next_number_ - next : 0;
}

void IterationDetector::accept(Lock found, const Candidate& candidate) {
  // What had been taken for iterations before an optimizer was seen may have been anything.
  const bool count_on = lock_ && (lock_->optimizer || !found.optimizer);
  // The new iterations' first event may have been taken for another one of the old ones.
  const std::uint64_t old_ones = number_ + (anchor_seen_ ? 1 : 0);
  const std::uint64_t old_end = last_anchor_;
  found.locked_at = total_;

  // Followed through the whole history.
  lock_ = std::move(found);
  spans_.clear();
  begins_.clear();
  anchor_seen_ = in_iteration_ = false;
  number_ = 0;
  mean_ = 0;
  begins_expected_ = 0;
  copies_ = usual_copies_ = tail_event_ = 0;
  tail_known_ = false;
  // How often `begin` comes in an iteration, where that is always the same.
  {
    bool seen = false;
    bool whole = false;  // what came before the first boundary may have been set-up
    std::uint64_t begins = 0;
    std::uint64_t expected = 0;
    bool varies = false;
    for (std::uint64_t p = candidate.at[candidate.intervals]; p < total_; ++p) {
      const bool is_begin = matches(p, lock_->marks.begin);
      if (gap_at(p) != nullptr) {
        seen = whole = false;
        begins = 0;
      }
      if (seen && (is_begin || matches(p, lock_->marks.begin_too))) {
        seen = false;
        whole = true;
        begins = 0;
      }
      if (is_begin) ++begins;
      if (matches(p, lock_->marks.anchor)) {
        if (begins != 0 && !seen && whole) {
          varies = varies || (expected != 0 && begins != expected);
          expected = expected == 0 ? begins : std::min(expected, begins);
        }
        seen = true;
      }
    }
    if (!varies) begins_expected_ = expected;
  }
  // The first boundary is the first `begin` that its iteration needs; there is no anchor before it.
  for (std::uint64_t p = oldest(); p < total_; ++p) track(p);
  const std::uint64_t boundary = begin_event_;
  // By the boundaries passed, where hardly anything comes once only.
  const bool counted = candidate.once.size() < 5 && oldest() == 0 && in_iteration_;
  std::uint64_t before = counted ? number_ : count_before(candidate, in_iteration_ ? boundary : total_);
  if (count_on) {
    std::uint64_t first = ~std::uint64_t{0};
    for (const std::uint32_t id : candidate.once) first = std::min(first, tokens_[id].first);
    // The program goes on with other kernels.
    if (first > old_end) before += old_ones;
  }
  // Each boundary that was passed began another iteration, whatever the vote says.
  if (!spans_.empty()) before = std::max(before, number_ - spans_.front().number);
  const auto renumber = [this](std::uint64_t number) {
    for (IterationSpan& span : spans_) {
      span.number += number - number_;
      span.following += number - number_;
    }
    number_ = number;
  };
  renumber(before);
  renumber(before + least_shift());
  lock_->seen_before = number_;
  lock_once_ = candidate.once;
  ++changes_;
}

std::string IterationDetector::name_of(std::uint32_t token) const {
  const Token& it = tokens_[token];
  const auto found = names_.find(tokens_[it.function].hash);
  if (found != names_.end()) return found->second;
  switch (it.kind) {
    case SignKind::kGraph:
      return "a CUDA graph";
    case SignKind::kCopyToDevice:
      return "a copy to the device";
    case SignKind::kCopyToHost:
      return "a copy to the host";
    case SignKind::kCopy:
      return "a copy";
    case SignKind::kMemset:
      return "a memset";
    case SignKind::kSync:
      return "a synchronization";
    case SignKind::kCall:
      return "a library call";
    default:
      return "a kernel";
  }
}

std::string IterationDetector::report() const {
  std::uint64_t work = 0;
  std::size_t kinds = 0;
  for (const Token& token : tokens_) {
    if (token.function == 0 || tokens_[token.function].hash == token.hash) continue;
    ++kinds;
    if (is_work(token.kind)) work += token.count;
  }
  std::string text = std::to_string(total_) + " launches, copies and synchronizations of " +
                     std::to_string(kinds) + " kinds were seen (" + std::to_string(work) +
                     " launches and library calls)";
  text += last_optimizer_ == 0 ? ", none that an optimizer is known by" : ", an optimizer's among them";
  return text;
}

}  // namespace inject
