// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "libinject/iterations/cycle_contents.h"
#include "libinject/iterations/sign_history.h"

namespace inject {

/// Something that the latest events repeat: intervals between occurrences of one token, the pivot, which
/// consist of the same tokens.
struct Repetition {
  static constexpr unsigned kMaxIntervals = 8;

  bool by_shape = false;
  bool optimizer = false;   ///< each interval has an optimizer
  std::uint64_t steps = 0;  ///< optimizer steps reported by the program in each interval
  bool graph = false;
  unsigned kinds_of_work = 0;
  unsigned intervals = 0;
  unsigned covered = 0;  ///< one bit per interval, latest first: it consists of the core
  double spacing = 0;    ///< in events
  std::vector<std::uint32_t> core;
  std::vector<std::uint32_t> once;                    ///< tokens that occur once in every covered interval
  std::array<std::uint64_t, kMaxIntervals + 1> at{};  ///< positions of the pivot, latest first

  /// Position of its first event.
  std::uint64_t begin() const { return at[intervals]; }
};

/// Whether so many of the steps may have been skipped: at most three of eight. (With two micro-batches per
/// step, it is missing in three of seven.)
constexpr bool may_be_skipped(std::uint64_t missing, std::uint64_t all) {
  return 8 * missing <= 3 * all;
}

/// How many repetitions came before `position`, by a vote of the tokens that occur once in each: some were
/// missing from the first ones (tuning, a skipped optimizer), some came before them (a validation check).
std::uint64_t count_before(const SignHistory& history, const Repetition& repetition, std::uint64_t position);

/// Whether `outer`, a longer repetition without an optimizer, is the iteration rather than `inner`, which was
/// assumed to be the iteration so far: outer has work of functions that inner lacks, and more of it than a
/// report that a program makes every few iterations. If inner occurs twice in outer, as half of an iteration
/// may, outer always is.
bool replaces(const SignHistory& history, const Repetition& inner, const Repetition& outer);

/// Finds what repeats in the latest events, and which repetition is the iteration: the shortest one with an
/// optimizer in each interval; without an optimizer, the longest whose further events do not just repeat
/// those of the shorter one.
class RepetitionSearch {
 public:
  /// Analyses the latest `depth` events. `scarce`: with fewer pivots. Repetitions of fewer than `least`
  /// events are ignored.
  std::optional<Repetition> find(const SignHistory& history, std::uint64_t depth, bool scarce,
                                 double least = 0);
  /// Events visited by the last find().
  std::int64_t visits() const { return visits_; }
  /// CycleContents::per_iteration(); also empty if the program reports no steps.
  std::optional<std::uint64_t> cycles_per_iteration(const SignHistory& history) {
    return history.knows_by_steps() ? contents_.per_iteration(history) : std::nullopt;
  }
  /// Whether an iteration is assumed to be one cycle although the cycles are not alike; only if steps are
  /// known.
  bool cycles_differ(const SignHistory& history) {
    return cycles_per_iteration(history) == 1 && !contents_.alike();
  }

 private:
  /// The latest positions of a token.
  struct Tail {
    std::array<std::uint64_t, Repetition::kMaxIntervals + 1> at{};  // latest first
    std::uint32_t count = 0;
    std::uint32_t epoch = 0;
  };

  /// The intervals of a repetition in which a token occurs, one bit per interval.
  struct Mask {
    std::uint32_t present = 0;
    std::uint32_t twice = 0;  // or more often
    std::uint32_t epoch = 0;
  };
  class Masks {
   public:
    void mark(const SignHistory& history, const Repetition& repetition);
    const Mask& of(std::uint32_t id) const { return masks_[id]; }
    /// The tokens that occur, in the order in which they were found.
    const std::vector<std::uint32_t>& tokens() const { return tokens_; }
    /// Whether that interval contains what two of the others contain.
    bool is_double(unsigned interval) const;

   private:
    std::vector<Mask> masks_;  // by token
    std::vector<std::uint32_t> tokens_;
    std::uint32_t epoch_ = 0;
  };

  std::vector<std::uint32_t> gather_pivots(const SignHistory& history, std::uint64_t depth, bool by_shape,
                                           bool scarce);
  std::optional<Repetition> evaluate(const SignHistory& history, std::uint32_t pivot, bool by_shape);

  std::int64_t visits_ = 0;
  std::vector<Tail> tails_;  // by token, of one gather_pivots()
  std::uint32_t tails_epoch_ = 0;
  Masks masks_;  // of one evaluate()
  CycleContents contents_;
  std::optional<std::uint64_t> cycles_;  // cycles of the program's steps in an iteration, for one find()
};

}  // namespace inject
