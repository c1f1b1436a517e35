// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "libinject/iterations/sign_history.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

/// A stretch of the program that is over: a training iteration, or what ran between two of them (validation).
struct IterationSpan {
  std::uint64_t number =
      0;  ///< 0-based from the first iteration that ran; of a phase, the iteration that follows
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  Nanoseconds last_event_time = 0;  ///< time of its last event
  std::uint64_t first_event = 0;    ///< position of its first event in the stream of signs
  bool phase = false;               ///< not an iteration: ran between two
  bool checkpoint = false;          ///< … and did nothing but copy to the host
  /// The signs pause here (IterationDetector::resume()). `begin` is 0 if no iteration is known to have begun;
  /// what follows belongs to iteration `following`.
  bool cut = false;
  bool whole = false;  ///< … and the iteration appears to be over
  std::uint64_t following = 0;
  std::uint64_t end_event = 0;       ///< position after its last event
  std::optional<double> units = {};  ///< IterationBoundary::units_before of its end
};

/// Follows a lock's marks through the events: where iterations begin and end, what ran between two of them
/// (phases), and their numbers.
class SpanTracker {
 public:
  /// Starts again with other marks, from the oldest event that is kept. Iterations have `events` events, and
  /// the marks are known to be valid from position `from` on.
  void follow(const SignHistory& history, const IterationMarks& marks, double events, std::uint64_t from);
  /// The next event.
  void track(const SignHistory& history, std::uint64_t position);
  /// `over` iterations had ended before the one in progress; more if more boundaries were passed, or their
  /// numbers have been shown.
  void renumber(std::uint64_t over);
  /// IterationDetector::keep_numbers().
  void keep_numbers(std::uint64_t next, Nanoseconds until);
  std::uint64_t next_number() const { return next_number_; }

  /// Number of the iteration in progress.
  std::uint64_t number() const { return number_; }
  /// Number of the first iteration that begins at `time` or later: the one in progress, or the next one.
  std::uint64_t first_since(Nanoseconds time) const {
    return in_iteration_ && begin_.time >= time ? number_ : number_ + 1;
  }
  /// Position of its first event, if known.
  std::optional<std::uint64_t> begin_event() const;
  /// Whether the anchor has occurred since the last boundary.
  bool anchor_seen() const { return is_near_end(anchored_); }
  /// Position of the last anchor that was the first since a boundary.
  std::uint64_t last_anchor() const { return last_anchor_; }
  /// Whether more than one iteration in ten came after a phase, or once more than every second one.
  /// Validation is not run so often; rather, the event that begins an iteration sometimes occurs in it once
  /// more, or once less.
  bool has_many_phases() const {
    return begins_vary_ || (phases_ >= 3 && kFewPhases * phases_ > durations_seen_);
  }
  /// As in IterationDetector.
  std::vector<IterationSpan> take_spans() { return std::exchange(spans_, {}); }
  std::optional<IterationSpan> unfinished_span(const SignHistory& history) const;
  std::optional<IterationSpan> trailing_span(const SignHistory& history) const;
  /// The median of the latest durations, 0 if no iteration is over yet: the first iteration may take a
  /// thousand times as long as later ones (kernels are compiled, libraries tuned, loaders started).
  Nanoseconds typical_duration() const;

 private:
  static constexpr std::uint64_t kFewPhases = 10;
  /// Position and time of an event.
  struct Place {
    std::uint64_t position = 0;
    Nanoseconds time = 0;
  };

  void on_gap(const SignHistory& history, const SignHistory::Gap& gap);
  void on_boundary(const SignHistory& history, Place place);
  void on_anchor(const SignHistory& history);
  void count_copy(SignKind kind, Place place);
  bool ends_with_checkpoint(const SignHistory& history) const;
  bool has_usual_length(std::uint64_t length) const;
  void add_span(const IterationSpan& span);
  std::uint64_t min_shift() const;

  IterationMarks marks_;
  double events_ = 0;                  // per iteration
  std::uint64_t begins_expected_ = 0;  // `begin` events in an iteration, 0 if that varies
  std::uint32_t exceeded_ = 0;         // one bit for each of the latest iterations: it had more of them
  bool begins_vary_ = false;           // begins_expected_ did not hold

  std::uint64_t number_ = 0;   // of the iteration in progress
  bool in_iteration_ = false;  // its beginning is known: begin_
  Anchored anchored_ = Anchored::kNo;
  Place begin_;
  std::vector<Place> begins_;     // `begin` events since the boundary
  bool begins_in_steps_ = false;  // those that optimizers launch count as well
  std::uint64_t last_anchor_ = 0;
  std::array<Nanoseconds, 15> durations_{};  // of the latest iterations, as a ring
  std::size_t durations_seen_ = 0;
  std::uint64_t phases_ = 0;  // since follow(), except for checkpoints
  // Since the last work: copies to the host, and the first one beyond those that end an iteration.
  std::uint64_t copies_ = 0;
  std::uint64_t usual_copies_ = 0;
  bool tail_known_ = false;  // whether usual_copies_ is known
  Place tail_;
  std::vector<IterationSpan> spans_;

  // keep_numbers()
  std::uint64_t next_number_ = 0;
  Nanoseconds numbered_until_ = 0;
};

}  // namespace inject
