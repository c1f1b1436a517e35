// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libinject/window/iteration_watch.h"
#include "libinject/window/launch_sign.h"

namespace inject {

/// A stretch of the program that is over: a training iteration, or what ran between two of them (validation).
struct IterationSpan {
  std::uint64_t number =
      0;  ///< 0-based from the first iteration that ran; of a phase, the iteration that follows
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  Nanoseconds last_event_time = 0;  ///< its last event's
  std::uint64_t first_event = 0;    ///< position of its first event in the stream of signs
  bool phase = false;               ///< no iteration: ran between two
  bool checkpoint = false;          ///< … and did nothing but copy to the host
  /// The signs end here for a while (IterationDetector::resume()). `begin` is 0 where no iteration is known
  /// to have begun; what follows is of iteration `following`.
  bool cut = false;
  bool whole = false;  ///< … and the iteration looks as if it were over
  std::uint64_t following = 0;
};

/// Finds training iterations in a stream of launches, without a marker in the program. Pure: no clock, no
/// CUDA; one thread.
///
/// An iteration is looked for as the interval between two occurrences of some event (a *pivot*) such that the
/// latest intervals consist of the same kinds of events. Layers within a step, micro-batches within an
/// accumulation and steps all repeat like that; the optimizer, which the names of kernels betray, tells which
/// of them is the iteration: the shortest interval that has one in it. Where no name says so, the longest
/// repetition wins whose further events are not those of the shorter one over again (as those of a validation
/// are). Then events that come exactly once in every interval give the marks (IterationMarks) by which each
/// boundary is recognised at once; where in the cycle it begins follows from the order in which the events
/// were first seen, as the first iteration began with its first event.
///
/// Bounded: 2^20 events of history (16 MB), 2^17 kinds of events.
class IterationDetector {
 public:
  struct Lock {
    IterationMarks marks;
    std::uint64_t locked_at = 0;    ///< position in the stream
    std::uint64_t seen_before = 0;  ///< iterations that were over when it was found
    double events = 0;              ///< of an iteration, on average
    bool optimizer = false;         ///< an optimizer's kernels were recognised
    bool by_shape = false;          ///< events were told apart by launch shape, too
    unsigned intervals = 0;         ///< that agreed
    unsigned marks_found = 0;       ///< kinds of events that come once in each
    bool rough = false;             ///< the place of the boundary within the cycle is a guess
    std::string begin_name;
    std::string anchor_name;
  };

  IterationDetector();

  /// Tells the name of a kernel.
  void name(std::uint64_t function, std::string_view mangled);
  /// The next event; marks, names and boundaries are no events.
  void add(const LaunchSign& sign);
  /// The program has run on without a sign of it; the next event comes from somewhere later. `bracketed`: the
  /// program itself said when no more was to be seen, and may have said so between two iterations.
  void resume(bool bracketed);

  /// Analyses wait that would look at more events than this (some 2 ns each) before the next call.
  void allow(std::int64_t looks) { allowed_ = looks; }

  const std::optional<Lock>& lock() const { return lock_; }
  /// Kernels of PyTorch's were seen, and of a lock without an optimizer it may be that its own will show.
  bool expects_optimizer() const { return optimizer_will_show_; }
  /// Counts how often lock() has changed.
  std::uint64_t changes() const { return changes_; }
  /// The user has been shown iterations below `next`, all that began by `until`: another lock numbers what
  /// began later from `next` on.
  void keep_numbers(std::uint64_t next, Nanoseconds until);
  /// The `next` of keep_numbers().
  std::uint64_t next_number() const { return next_number_; }
  /// Iterations that have begun so far: the one in progress has this number less one. 0 before the lock.
  std::uint64_t begun() const { return lock_ ? number_ + 1 : 0; }
  /// Spans that have ended since the last call, in order; at the lock also those of the history. Boundaries
  /// of one lock are consistent; a changed lock (`changes()`) counts anew, but for keep_numbers().
  std::vector<IterationSpan> take_spans();
  /// The iteration in progress, once its anchor has come: from then on its beginning is certain. Ends with
  /// the last event so far.
  std::optional<IterationSpan> unfinished_span() const;
  /// The same, if it looks as if it were over: it has as many events as others.
  std::optional<IterationSpan> trailing_span() const;
  /// Mean duration of the last iterations, 0 if not known.
  Nanoseconds mean_duration() const;
  std::uint64_t events() const { return total_; }
  std::size_t kinds() const { return tokens_.size(); }
  /// What was seen, for a run in which nothing was found: a sentence.
  std::string report() const;

 private:
  struct Token {
    std::uint64_t hash = 0;
    std::uint64_t first = 0;  // position
    std::uint64_t last = 0;
    std::uint64_t count = 0;
    std::uint32_t function = 0;  // a function's own id for itself
    SignKind kind = SignKind::kKernel;
    bool optimizer = false;
    bool tuning = false;
  };
  struct Event {
    std::uint32_t shape;
    std::uint32_t function;
    Nanoseconds time;
  };
  static constexpr unsigned kMaxIntervals = 8;
  struct Tail {
    std::array<std::uint64_t, kMaxIntervals + 1> at{};  // latest first
    std::uint32_t count = 0;
    std::uint32_t epoch = 0;
  };
  struct Candidate {
    std::uint32_t pivot = 0;
    bool by_shape = false;
    bool optimizer = false;
    bool graph = false;
    unsigned kinds_of_work = 0;
    unsigned intervals = 0;
    unsigned covered = 0;  // bit per interval, latest first
    double spacing = 0;    // events
    std::vector<std::uint32_t> core;
    std::vector<std::uint32_t> once;  // tokens that come once in every covered interval
    std::array<std::uint64_t, kMaxIntervals + 1> at{};
  };

  std::uint32_t token_of(std::uint64_t hash, SignKind kind, std::uint32_t function);
  const Event& event(std::uint64_t position) const { return history_[position & (history_.size() - 1)]; }
  std::uint64_t oldest() const { return total_ > history_.size() ? total_ - history_.size() : 0; }
  std::uint32_t token_at(std::uint64_t position, bool by_shape) const {
    return by_shape ? event(position).shape : event(position).function;
  }
  void track(std::uint64_t position);
  void pass_gap(std::uint64_t position, bool bracketed);
  bool is_as_long(std::uint64_t length) const;
  void analyse_if_due();
  void analyse(std::uint64_t depth);
  void gather(std::uint64_t begin, bool by_shape, std::vector<std::uint32_t>& pivots);
  std::optional<Candidate> evaluate(std::uint32_t pivot, bool by_shape);
  const Candidate* choose(const std::vector<Candidate>& candidates, bool wants_optimizer);
  bool further_work(const Candidate& inner, const Candidate& outer);
  bool is_too_short(const Candidate& candidate) const;
  bool has_new_shapes(const Candidate& candidate) const;
  std::optional<Lock> find_marks(const Candidate& candidate);
  bool marks_hold(const Candidate& candidate, const IterationMarks& marks, std::uint64_t expected) const;
  void accept(Lock found, const Candidate& candidate);
  std::uint64_t count_before(const Candidate& candidate, std::uint64_t position) const;
  std::uint64_t least_shift() const;
  bool matches(std::uint64_t position, std::uint64_t mark) const;
  std::string name_of(std::uint32_t token) const;

  std::vector<Event> history_;  // a ring, its size a power of two
  std::uint64_t total_ = 0;
  std::vector<Token> tokens_;
  std::unordered_map<std::uint64_t, std::uint32_t> ids_;
  std::unordered_map<std::uint64_t, std::string> names_;
  std::int64_t credit_;  // for analyses
  std::int64_t allowed_ = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, 9> shares_{};  // for those of each depth, at most 0
  bool scarce_ = false;
  static constexpr std::size_t kCached = 4096;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> cache_;  // of ids_
  std::uint64_t last_optimizer_ = 0;                            // position + 1
  std::uint64_t optimizer_gap_ = 0;                             // longest seen between two
  bool optimizer_will_show_ = false;                            // PyTorch's have names
  Nanoseconds first_time_ = 0;

  // Scratch of one analysis, by token.
  std::vector<Tail> tails_;
  std::vector<std::uint32_t> masks_;
  std::vector<std::uint32_t> twice_;
  std::vector<std::uint32_t> mask_epoch_;
  std::uint32_t epoch_ = 0;
  std::array<std::uint64_t, 9> analysed_at_{};

  std::optional<Lock> lock_;
  std::uint64_t changes_ = 0;
  std::vector<std::uint32_t> lock_once_;

  struct Gap {
    std::uint64_t position;  // of the first event after it
    bool bracketed;
  };
  const Gap* gap_at(std::uint64_t position) const;
  std::vector<Gap> gaps_;  // in order

  // Following the marks.
  bool anchor_seen_ = false;
  std::uint64_t number_ = 0;  // of the iteration in progress
  bool in_iteration_ = false;
  // Since the last kernel: copies to the host, and the first one that iterations do not end with.
  std::uint64_t copies_ = 0;
  std::uint64_t usual_copies_ = 0;
  bool tail_known_ = false;  // … how many are usual
  std::uint64_t tail_event_ = 0;
  Nanoseconds tail_time_ = 0;
  std::uint64_t begins_expected_ = 0;  // `begin` events in an iteration, 0 where that varies
  std::vector<std::pair<std::uint64_t, Nanoseconds>> begins_;
  std::uint64_t begin_event_ = 0;
  Nanoseconds begin_time_ = 0;
  std::uint64_t last_anchor_ = 0;
  double mean_ = 0;
  std::vector<IterationSpan> spans_;

  // keep_numbers()
  std::uint64_t next_number_ = 0;
  Nanoseconds numbered_until_ = 0;
};

/// Whether a kernel's (mangled) name is an optimizer's.
bool is_optimizer_name(std::string_view name);
/// Whether it is one that a compiler runs to choose among kernels (XLA): what repeats around it is no
/// training.
bool is_tuning_name(std::string_view name);

}  // namespace inject
