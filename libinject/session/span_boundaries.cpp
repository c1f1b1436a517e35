// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/span_boundaries.h"

#include <algorithm>
#include <utility>

namespace inject {

void SpanBoundaries::hold(Nanoseconds came, Nanoseconds opened) {
  const MutexLock held(held_mutex_);
  if (held_.size() == kMaxHeld) held_.pop_front();
  held_.emplace_back(came, opened);
}

// The window of what begins at this time: a window that closes at a boundary does not include what comes
// after it.
std::uint32_t SpanBoundaries::window_from(Nanoseconds time) const {
  const std::uint32_t window = windows_.at(time);
  return window != 0 && windows_.span(window).end == time ? 0 : window;
}

// If CUPTI can't be attached, there are windows without it.
bool SpanBoundaries::in_window(Nanoseconds begin, Nanoseconds end) const {
  const std::uint32_t window = windows_.opened_by(end - 1);
  if (window == 0) return false;
  const Nanoseconds closed = windows_.span(window).end;
  return closed == 0 || closed > begin;
}

void SpanBoundaries::start_anew() {
  anew_ = true;
  iteration_begun_ = followed_ = false;
}

// Marks an iteration as unprofiled if it, and what came before it, ran without CUPTI: what the profiler
// leaves in caches and queues must not affect it. `end`: of the span that ends here.
void SpanBoundaries::emit(IterationBoundary boundary, Nanoseconds end) {
  if (begun_.end == end) boundary.units_before = begun_.units;
  begun_ = {};
  boundary.anew = std::exchange(anew_, false);
  boundary.unprofiled_before = iteration_begun_ && boundary.number == told_number_ + 1 && boundary.followed &&
                               !after_cut_ && told_before_ != 0 && !in_window(told_until_, boundary.begin) &&
                               !profiled_.overlap(told_before_, boundary.begin);
  kept_pace_ = boundary.unprofiled_before &&
               (kept_pace_ || static_cast<double>(boundary.begin - told_until_) >= paced_step_);
  if (kept_pace_) unprofiled_.fetch_add(1, std::memory_order_relaxed);
  targets_.emit(boundary);
  told_before_ = followed_ ? told_until_ : 0;
  followed_ = boundary.followed;
  told_until_ = boundary.begin;
  told_number_ = boundary.number;
  iteration_begun_ = boundary.followed && boundary.label == IterationLabel::kIteration;
}

void SpanBoundaries::add(const IterationSpan& span) {
  if (!span.cut || span.begin != 0) add_beginning(span);
  end_ = span.end;
  last_event_ = span.last_event_time;
  next_ = span.phase ? span.number : span.number + 1;
  after_cut_ = span.cut;
  if (span.cut) add_cut(span);
}

void SpanBoundaries::add_beginning(const IterationSpan& span) {
  IterationBoundary boundary;
  boundary.number = span.number;
  boundary.begin = span.begin;
  {
    const MutexLock held(held_mutex_);
    for (; !held_.empty() && held_.front().first <= span.begin; held_.pop_front())
      if (held_.front().first == span.begin) boundary.begin = held_.front().second;
  }
  boundary.window = window_from(boundary.begin);
  // After a gap, what ends here has not been seen from its beginning, whatever its window.
  boundary.window_before =
      after_cut_ ? boundary.window : windows_.at(last_event_ == 0 ? span.begin - 1 : last_event_);
  if (windows_cut_ && !after_cut_) {
    const Nanoseconds end = windows_.span(boundary.window_before).end;
    if (end != 0 && end < span.begin) boundary.window_before = 0;
  }
  boundary.label = span.checkpoint ? IterationLabel::kCheckpoint
                   : span.phase    ? IterationLabel::kValidation
                                   : IterationLabel::kIteration;
  if (boundary.begin <= told_until_ && told_until_ != 0) {
    begun_ = {};
    return;
  }
  emit(boundary, span.begin);
  begun_ = {span.units, span.end};
  if (boundary.window != 0) targets_.keep_numbers(span.phase ? span.number : span.number + 1, told_until_);
}

// What the next window shows first began unseen, after the window before it.
void SpanBoundaries::add_cut(const IterationSpan& span) {
  const std::uint32_t window = windows_.at(span.last_event_time);
  IterationBoundary boundary;
  boundary.number = next_ = span.following;
  boundary.begin = std::max(window == 0 ? 0 : windows_.span(window).end, span.last_event_time + 1);
  boundary.window_before = span.whole ? window : 0;
  end_ = boundary.begin;
  if (boundary.begin <= told_until_) return;
  emit(boundary, span.end);
  targets_.keep_numbers(boundary.number, told_until_);
}

void SpanBoundaries::restart(Nanoseconds time) {
  if (told_until_ == 0) return;
  IterationBoundary boundary;
  boundary.begin = std::max(time, told_until_ + 1);
  boundary.followed = false;
  emit(boundary, 0);
  end_ = last_event_ = 0;
  after_cut_ = false;
}

void SpanBoundaries::finish(const std::optional<IterationSpan>& trailing, std::uint32_t clock_window,
                            bool clock_ended) {
  // A window that ends with an iteration, as is common with the profiler API's calls.
  const std::uint32_t last = trailing ? windows_.at(trailing->end) : 0;
  if (last != 0 && last != clock_window && !clock_ended && !windows_cut_) {
    add(*trailing);
    end_ = begun_.end = windows_.span(last).end;
  }
  if (end_ <= told_until_) return;
  IterationBoundary boundary;
  boundary.number = next_;
  boundary.begin = end_;
  boundary.window = window_from(end_);
  boundary.window_before = windows_.at(last_event_);
  emit(boundary, end_);
  iteration_begun_ = false;  // a validation may follow
}

}  // namespace inject
