// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/iterations/analysis_schedule.h"
#include "libinject/iterations/boundary_marks.h"
#include "libinject/iterations/repetition.h"
#include "libinject/iterations/sign_history.h"
#include "libinject/iterations/span_tracker.h"
#include "libinject/record/launch_sign.h"

namespace inject {

/// Finds training iterations in a stream of launches, without a marker in the program. Pure: no clock, no
/// CUDA; one thread.
///
/// An iteration is looked for as the interval between two occurrences of some event (a *pivot*) such that the
/// latest intervals consist of the same kinds of events. Layers within a step, micro-batches within an
/// accumulation and steps all repeat like that; the optimizer, recognised by kernel names, tells which
/// of them is the iteration: the shortest interval that has one in it. Where no name says so, the longest
/// repetition wins whose further events are not those of the shorter one over again (as those of a validation
/// are). Then events that come exactly once in every interval give the marks (IterationMarks) by which each
/// boundary is recognised at once; where in the cycle it begins follows from the order in which the events
/// were first seen, as the first iteration began with its first event.
///
/// If the program reports its optimizers' steps (SignKind::kStep), these define how long an iteration is. If
/// what lies between them repeats, it is found and followed as above; if it does not (data of any length),
/// the steps alone are the marks, and an iteration begins with the first work after the last of them.
///
/// What is seen is kept by SignHistory, RepetitionSearch finds what repeats, find_marks() where that begins,
/// and SpanTracker follows the marks from then on.
class IterationDetector {
 public:
  using Lock = IterationLock;

  /// Sets the name of a kernel.
  void name(std::uint64_t function, std::string_view mangled) { history_.name(function, mangled); }
  /// The next event; marks, names and boundaries are no events.
  void add(const LaunchSign& sign);
  /// The program has run on without a sign of it; the next event comes from somewhere later. `bracketed`: the
  /// program itself ended the observation, and may have done so between two iterations.
  void resume(bool bracketed) { history_.add_gap(bracketed); }

  /// SignHistory::expect_steps().
  void expect_steps(bool few) { history_.expect_steps(few); }

  /// Analyses wait that would look at more events than this (some 2 ns each) before the next call.
  void allow(std::int64_t visits) { schedule_.allow(visits); }

  const std::optional<Lock>& lock() const { return lock_; }
  /// No iteration has begun for so long that the program must be doing something else now.
  bool is_overdue() const;
  /// PyTorch's kernels were seen: if a lock has no optimizer yet, PyTorch's own may still appear.
  bool expects_optimizer() const { return history_.has_pytorch(); }
  /// Counts how often lock() has changed.
  std::uint64_t changes() const { return changes_; }
  /// The user has been shown iterations below `next`, all that began by `until`: another lock numbers what
  /// began later from `next` on.
  void keep_numbers(std::uint64_t next, Nanoseconds until) { tracker_.keep_numbers(next, until); }
  /// The `next` of keep_numbers().
  std::uint64_t next_number() const { return tracker_.next_number(); }
  /// Iterations that have begun so far: the one in progress has this number less one. 0 before the lock.
  std::uint64_t begun() const { return lock_ ? tracker_.number() + 1 : 0; }
  /// SpanTracker::first_since().
  std::uint64_t first_since(Nanoseconds time) const { return tracker_.first_since(time); }
  /// Spans that have ended since the last call, in order; at the lock also those of the history. Boundaries
  /// of one lock are consistent; a changed lock (`changes()`) counts from the start, but for keep_numbers().
  std::vector<IterationSpan> take_spans() { return tracker_.take_spans(); }
  /// The iteration in progress, once its anchor has come: from then on its beginning is certain. Ends with
  /// the last event so far.
  std::optional<IterationSpan> unfinished_span() const { return tracker_.unfinished_span(history_); }
  /// The same, if it looks as if it were over: it has as many events as others.
  std::optional<IterationSpan> trailing_span() const { return tracker_.trailing_span(history_); }
  /// Mean duration of the last iterations, 0 if not known.
  Nanoseconds typical_duration() const { return tracker_.typical_duration(); }
  /// StepSequence::are_doubtful() of the latest ones, as another thread may begin to step.
  bool steps_are_doubtful() const { return history_.knows_by_steps() && history_.steps().are_doubtful(); }
  /// SpanTracker::has_many_phases().
  bool has_many_phases() const { return tracker_.has_many_phases(); }
  std::uint64_t events() const { return history_.total(); }
  /// Of the first event that is kept, if there is one.
  Nanoseconds earliest_time() const { return history_.event(history_.oldest()).time; }
  /// Of the last event; 0 if there was none.
  Nanoseconds latest_time() const { return events() == 0 ? 0 : history_.event(events() - 1).time; }
  std::size_t kinds() const { return history_.tokens(); }
  /// What was seen, for a run in which nothing was found: a sentence.
  std::string report() const { return history_.report(); }

 private:
  void analyse_if_due();
  void accept(const Repetition& found);
  void lock_by_steps();
  void follow(IterationLock lock, std::uint64_t from, const Repetition* found);
  bool has_other_steps() const;
  std::uint64_t steps_each() const;
  void look_at_cycles();
  void look_at_iterations();
  bool is_better(const Repetition& found) const;

  SignHistory history_;
  AnalysisSchedule schedule_;
  RepetitionSearch search_;
  SpanTracker tracker_;
  std::optional<Lock> lock_;
  std::optional<Repetition> repetition_;   // that the lock is of; none where the steps alone are its marks
  std::uint64_t cycles_ = 1;               // of the program's steps in an iteration, as far as is known
  std::vector<std::uint64_t> boundaries_;  // of the latest iterations, where kernels' names tell them
  std::uint64_t followed_ = 0;             // how many there have been since the lock
  std::uint64_t turns_ = 1;                // so many of them are one, of several models
  std::uint64_t next_then_ = 0;            // next_number() as the lock was made
  std::uint64_t changes_ = 0;
};

}  // namespace inject
