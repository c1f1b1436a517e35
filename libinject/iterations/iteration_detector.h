// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
/// An iteration is searched for as the interval between two occurrences of some event (a *pivot*) such that
/// the latest intervals consist of the same kinds of events. Layers within a step, micro-batches within an
/// accumulation and steps all repeat in this way; the optimizer, recognised by kernel names, determines which
/// of them is the iteration: the shortest interval that contains one. If no name identifies it, the longest
/// repetition wins whose further events do not just repeat those of the shorter one (as a validation's do).
/// Then events that occur exactly once in every interval give the marks (IterationMarks) by which each
/// boundary is recognised immediately; where in the cycle it begins follows from the order in which the
/// events were first seen, since the first iteration began with its first event.
///
/// If the program reports its optimizers' steps (SignKind::kStep), these define how long an iteration is. If
/// what lies between them repeats, it is found and followed as above; if it does not (data of varying
/// length), the steps alone are the marks, and an iteration begins with the first work after the last of
/// them.
///
/// SignHistory keeps what is seen, RepetitionSearch finds what repeats, find_marks() finds where that begins,
/// and SpanTracker follows the marks from then on.
class IterationDetector {
 public:
  using Lock = IterationLock;

  /// Sets the name of a kernel.
  void name(std::uint64_t function, std::string_view mangled) { history_.name(function, mangled); }
  /// The next event; marks, names and boundaries are not events.
  void add(const LaunchSign& sign);
  /// The program has run on unobserved; the next event is from some later time. `bracketed`: the program
  /// itself ended the observation, and may have done so between two iterations.
  void resume(bool bracketed) { history_.add_gap(bracketed); }

  /// SignHistory::expect_steps().
  void expect_steps(bool few) { history_.expect_steps(few); }

  /// Limits the events that analyses may visit (about 2 ns each) before the next call; beyond that they wait.
  void allow(std::int64_t visits) { schedule_.allow(visits); }

  const std::optional<Lock>& lock() const { return lock_; }
  /// Whether no iteration has begun for so long that the program must be doing something else now.
  bool is_overdue() const;
  /// Whether PyTorch's kernels were seen: if a lock has no optimizer yet, PyTorch's own may still appear.
  bool expects_optimizer() const { return history_.has_pytorch(); }
  /// Number of changes of lock().
  std::uint64_t changes() const { return changes_; }
  /// Iterations numbered below `next`, all of which began by `until`, have been shown to the user: another
  /// lock numbers iterations that began later from `next` on.
  void keep_numbers(std::uint64_t next, Nanoseconds until) { tracker_.keep_numbers(next, until); }
  /// The `next` of keep_numbers().
  std::uint64_t next_number() const { return tracker_.next_number(); }
  /// Number of iterations begun so far, so the one in progress has this number minus one. 0 before the lock.
  std::uint64_t begun() const { return lock_ ? tracker_.number() + 1 : 0; }
  /// SpanTracker::first_since().
  std::uint64_t first_since(Nanoseconds time) const { return tracker_.first_since(time); }
  /// Spans that ended since the last call, in order; after locking, also those of the history. Boundaries of
  /// one lock are consistent; a changed lock (`changes()`) counts from the start, except for keep_numbers().
  std::vector<IterationSpan> take_spans() { return tracker_.take_spans(); }
  /// The iteration in progress, once its anchor has occurred: from then on its beginning is certain. Ends
  /// with the latest event.
  std::optional<IterationSpan> unfinished_span() const { return tracker_.unfinished_span(history_); }
  /// The same, if the iteration appears to be over: it has as many events as others.
  std::optional<IterationSpan> trailing_span() const { return tracker_.trailing_span(history_); }
  /// Median duration of the last iterations, 0 if unknown.
  Nanoseconds typical_duration() const { return tracker_.typical_duration(); }
  /// StepSequence::are_doubtful() of the latest steps, since another thread may begin to step.
  bool steps_are_doubtful() const { return history_.knows_by_steps() && history_.steps().are_doubtful(); }
  /// SpanTracker::has_many_phases().
  bool has_many_phases() const { return tracker_.has_many_phases(); }
  std::uint64_t events() const { return history_.total(); }
  /// Time of the first event that is kept, if there is one.
  Nanoseconds earliest_time() const { return history_.event(history_.oldest()).time; }
  /// Time of the last event; 0 if there is none.
  Nanoseconds latest_time() const { return events() == 0 ? 0 : history_.event(events() - 1).time; }
  std::size_t kinds() const { return history_.tokens(); }
  /// What was seen, as a sentence, for a run in which nothing was found.
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
  void look_at_steps();
  bool is_before_step(std::uint64_t end) const;
  bool is_better(const Repetition& found) const;

  SignHistory history_;
  AnalysisSchedule schedule_;
  RepetitionSearch search_;
  SpanTracker tracker_;
  std::optional<Lock> lock_;
  std::optional<Repetition> repetition_;   // basis of the lock; empty if the steps alone are its marks
  std::uint64_t cycles_ = 1;               // number of step cycles in an iteration, as far as known
  std::vector<std::uint64_t> boundaries_;  // of the latest iterations, if recognised by kernels' names
  std::uint64_t followed_ = 0;             // number of iterations since the lock
  // Of the latest iterations, one bit each: no step was in it. And the last one before these, if they are
  // recognised by steps.
  std::uint32_t without_step_ = 0;
  std::uint64_t since_step_ = 0;      // number of iterations since the latest with a step
  std::uint64_t between_steps_ = 0;   // … between the two before that
  std::uint64_t equally_apart_ = 0;   // how often that was the same, and more than one
  std::uint64_t away_from_step_ = 0;  // number of latest iterations with a step, but not is_before_step()
  struct Known {
    std::uint64_t number = 0;
    std::uint64_t begin = 0;
  };
  std::optional<Known> latest_;
  std::optional<Known> known_;
  std::uint64_t in_vain_ = 0;  // steps before the first lock's iterations that made none
  // first_step_of() an iteration of so many steps, when that was first asked: later, the beginning may be
  // gone.
  std::optional<std::pair<std::uint64_t, FirstStep>> first_;
  std::uint64_t turns_ = 1;      // this many are one iteration, of several models
  std::uint64_t next_then_ = 0;  // next_number() when the lock was made
  std::uint64_t changes_ = 0;
};

}  // namespace inject
