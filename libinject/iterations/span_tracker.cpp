// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/span_tracker.h"

#include <algorithm>
#include <bit>

namespace inject {

namespace {

constexpr std::size_t kMaxSpans = 65536;
constexpr std::size_t kMaxBegins = 65536;
// Copies to the host in a row, at least this many and four times as many as end an iteration: parameters are
// being saved.
constexpr std::uint64_t kCheckpointCopies = 16;
// If of the latest eight iterations more than this many have `begin` more often, the iteration has become
// longer: no phase precedes every second one.
constexpr std::uint32_t kLatest = 0xFF;
constexpr int kMostExceeded = 4;

/// The number of `begin` events in an iteration, from position `from` on; 0 if that varies. `in_steps`:
/// including those that optimizers launch in their steps.
std::uint64_t begins_in_each(const SignHistory& history, const IterationMarks& marks, std::uint64_t from,
                             bool in_steps) {
  Anchored anchored = Anchored::kNo;
  bool whole = false;  // what came before the first boundary may have been setup
  std::uint64_t begins = 0;
  std::uint64_t expected = 0;
  for (std::uint64_t p = from; p < history.total(); ++p) {
    const bool is_begin = history.matches(p, marks.begin);
    if (history.gap_before(p) != nullptr) {
      anchored = Anchored::kNo;
      whole = false;
      begins = 0;
    }
    if (history.begins(p, marks, anchored)) {
      anchored = after_begin(anchored);
      whole = true;
      begins = 0;
    }
    if (is_begin && (in_steps || history.event(p).in_step == 0)) ++begins;
    const Anchored before = anchored;
    anchored = history.anchored(p, marks, before);
    if (is_near_end(anchored) && !is_near_end(before) && begins != 0 && whole) {
      if (expected != 0 && begins != expected) return 0;
      expected = begins;
    }
  }
  return expected;
}

}  // namespace

void SpanTracker::follow(const SignHistory& history, const IterationMarks& marks, double events,
                         std::uint64_t from) {
  marks_ = marks;
  events_ = events;
  // The amount of work in an iteration gives no information on what ran before it.
  const bool is_any = marks.begin == IterationMarks::kAnyWork;
  // An optimizer's first step also creates its state, possibly with the kernel that begins iterations. But a
  // step may also do all of an iteration's work.
  begins_in_steps_ = false;
  begins_expected_ = is_any ? 0 : begins_in_each(history, marks, from, begins_in_steps_);
  if (begins_expected_ == 0 && !is_any) {
    begins_in_steps_ = true;
    begins_expected_ = begins_in_each(history, marks, from, begins_in_steps_);
  }
  spans_.clear();
  begins_.clear();
  anchored_ = Anchored::kNo;
  in_iteration_ = false;
  number_ = 0;
  durations_seen_ = 0;
  phases_ = 0;
  exceeded_ = 0;
  begins_vary_ = false;
  copies_ = usual_copies_ = tail_.position = 0;
  tail_known_ = false;
  // The first boundary is the first `begin` that its iteration needs; there is no anchor before it.
  for (std::uint64_t p = history.oldest(); p < history.total(); ++p) track(history, p);
}

// The same steps as in emit_sign() on the program's threads, plus what can be determined only afterwards:
// where `begin` occurred more often than in an iteration, something else ran before it.
void SpanTracker::track(const SignHistory& history, std::uint64_t position) {
  if (const auto* gap = history.gap_before(position); gap != nullptr && position > history.oldest()) {
    on_gap(history, *gap);
  }
  const SignHistory::Event& event = history.event(position);
  const Place place{position, event.time};
  const bool is_begin = history.matches(position, marks_.begin);
  if (history.begins(position, marks_, anchored_)) on_boundary(history, place);
  if (is_begin && marks_.begin != IterationMarks::kAnyWork && (begins_in_steps_ || event.in_step == 0)) {
    // Keep the latest.
    if (begins_.size() == kMaxBegins) begins_.erase(begins_.begin(), begins_.begin() + kMaxBegins / 2);
    begins_.push_back(place);
  }
  const Anchored before = anchored_;
  anchored_ = history.anchored(position, marks_, before);
  if (is_near_end(anchored_) && !is_near_end(before)) on_anchor(history);
  // Only the first since the boundary, and its step: if no boundary follows, these are no iterations.
  if (anchored_ != before) last_anchor_ = position;
  count_copy(history.token(event.function).kind, place);
}

// The iteration in progress ended unobserved, and others may have begun and ended. A program that switches
// the profiler off between two iterations leaves no gap in what is seen of them.
void SpanTracker::on_gap(const SignHistory& history, const SignHistory::Gap& gap) {
  // `other_begin` may also occur later in an iteration, so it is no evidence after a gap.
  if (gap.bracketed && in_iteration_ && anchor_seen() && history.matches(gap.position, marks_.begin)) return;
  IterationSpan cut;
  cut.number = number_;
  cut.end = cut.last_event_time = history.event(gap.position - 1).time;
  cut.first_event = begin_.position;
  cut.end_event = gap.position;
  cut.cut = true;
  if (in_iteration_) {
    cut.begin = begin_.time;
    cut.whole = gap.bracketed && anchor_seen() && has_usual_length(gap.position - begin_.position);
  }
  if (in_iteration_ || anchor_seen()) ++number_;
  cut.following = number_;
  add_span(cut);
  in_iteration_ = false;
  anchored_ = Anchored::kNo;
  begins_.clear();
  copies_ = 0;
}

void SpanTracker::on_boundary(const SignHistory& history, Place place) {
  const bool checkpoint = in_iteration_ && ends_with_checkpoint(history);
  if (in_iteration_ && spans_.size() < kMaxSpans) {
    const Place end = checkpoint ? tail_ : place;
    spans_.push_back({.number = number_,
                      .begin = begin_.time,
                      .end = end.time,
                      .last_event_time = history.event(end.position - 1).time,
                      .first_event = begin_.position,
                      .end_event = end.position});
    if (checkpoint) {
      spans_.push_back({.number = number_ + 1,
                        .begin = tail_.time,
                        .end = place.time,
                        .last_event_time = history.event(place.position - 1).time,
                        .first_event = tail_.position,
                        .phase = true,
                        .checkpoint = true,
                        .end_event = place.position});
    }
  }
  if (!checkpoint) {
    usual_copies_ = copies_;
    tail_known_ = true;
  }
  // Where the first iteration began may be unknown, but it did take place.
  ++number_;
  if (in_iteration_) {
    durations_[durations_seen_++ % durations_.size()] = (checkpoint ? tail_ : place).time - begin_.time;
  }
  in_iteration_ = true;
  anchored_ = after_begin(anchored_);
  begin_ = place;
  begins_.clear();
}

// The first anchor since the boundary: what came before the last `begins_expected_` was not an iteration.
void SpanTracker::on_anchor(const SignHistory& history) {
  if (begins_expected_ == 0) return;
  exceeded_ = exceeded_ << 1 | (in_iteration_ && begins_.size() > begins_expected_ ? 1u : 0u);
  if (std::popcount(exceeded_ & kLatest) > kMostExceeded) {
    begins_expected_ = 0;
    begins_vary_ = true;
    return;
  }
  if (begins_.size() < begins_expected_) return;
  const Place begin = begins_[begins_.size() - begins_expected_];
  if (!in_iteration_) {
    // The first iteration, recognised from its end.
    in_iteration_ = true;
    begin_ = begin;
  } else if (begins_.size() > begins_expected_) {
    const Nanoseconds before =
        begin.position > history.oldest() ? history.event(begin.position - 1).time : begin.time;
    ++phases_;
    add_span({.number = number_,
              .begin = begin_.time,
              .end = begin.time,
              .last_event_time = before,
              .first_event = begin_.position,
              .phase = true,
              .end_event = begin.position});
    begin_ = begin;
  }
}

void SpanTracker::count_copy(SignKind kind, Place place) {
  if (is_work(kind)) {
    copies_ = 0;
  } else if (kind == SignKind::kCopyToHost && ++copies_ == usual_copies_ + 1) {
    tail_ = place;
  }
}

bool SpanTracker::ends_with_checkpoint(const SignHistory& history) const {
  return tail_known_ && tail_.position > begin_.position && tail_.position > history.oldest() &&
         copies_ >= kCheckpointCopies && copies_ >= 4 * usual_copies_;
}

bool SpanTracker::has_usual_length(std::uint64_t length) const {
  return static_cast<double>(length) >= 0.97 * events_ && static_cast<double>(length) <= 1.5 * events_;
}

void SpanTracker::add_span(const IterationSpan& span) {
  if (spans_.size() < kMaxSpans) spans_.push_back(span);
}

Nanoseconds SpanTracker::typical_duration() const {
  const std::size_t count = std::min(durations_seen_, durations_.size());
  if (count == 0) return 0;
  auto latest = durations_;
  const auto middle = latest.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(latest.begin(), middle, latest.begin() + static_cast<std::ptrdiff_t>(count));
  return *middle;
}

std::optional<std::uint64_t> SpanTracker::begin_event() const {
  return in_iteration_ ? std::optional(begin_.position) : std::nullopt;
}

std::optional<IterationSpan> SpanTracker::unfinished_span(const SignHistory& history) const {
  if (!in_iteration_ || !anchor_seen()) return std::nullopt;
  const Nanoseconds last = history.event(history.total() - 1).time;
  return IterationSpan{.number = number_,
                       .begin = begin_.time,
                       .end = last,
                       .last_event_time = last,
                       .first_event = begin_.position,
                       .end_event = history.total()};
}

std::optional<IterationSpan> SpanTracker::trailing_span(const SignHistory& history) const {
  auto span = unfinished_span(history);
  if (!span || !has_usual_length(history.total() - begin_.position)) return std::nullopt;
  return span;
}

void SpanTracker::keep_numbers(std::uint64_t next, Nanoseconds until) {
  next_number_ = next;
  numbered_until_ = until;
}

// The least offset to a new lock's numbers with which none is shown twice.
std::uint64_t SpanTracker::min_shift() const {
  std::uint64_t next = in_iteration_ && begin_.time <= numbered_until_ ? number_ + 1 : number_;
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

void SpanTracker::renumber(std::uint64_t over) {
  // Each boundary that was passed began another iteration, regardless of the vote.
  if (!spans_.empty()) over = std::max(over, number_ - spans_.front().number);
  const auto shift = [this](std::uint64_t by) {
    for (IterationSpan& span : spans_) {
      span.number += by;
      span.following += by;
    }
    number_ += by;
  };
  shift(over - number_);
  shift(min_shift());
}

}  // namespace inject
