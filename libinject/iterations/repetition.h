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
  bool optimizer = false;   ///< each interval has one
  std::uint64_t steps = 0;  ///< of optimizers, as the program tells, in each interval
  bool graph = false;
  unsigned kinds_of_work = 0;
  unsigned intervals = 0;
  unsigned covered = 0;  ///< bit per interval, latest first: it consists of the core
  double spacing = 0;    ///< events
  std::vector<std::uint32_t> core;
  std::vector<std::uint32_t> once;                    ///< tokens that come once in every covered interval
  std::array<std::uint64_t, kMaxIntervals + 1> at{};  ///< where the pivot came, latest first

  /// Position of the first event in it.
  std::uint64_t begin() const { return at[intervals]; }
};

/// How often a repetition had come before `position`, by a vote of the tokens that come once in each: some
/// were missing from the first ones (tuning, a skipped optimizer), some came before them (a check of the
/// validation).
std::uint64_t count_before(const SignHistory& history, const Repetition& repetition, std::uint64_t position);

/// Whether `outer`, a longer repetition without an optimizer, is the iteration rather than `inner`, which has
/// been assumed to be it so far: it has work of functions that inner lacks, and more than the report that a
/// program makes every so many iterations. If inner occurs twice in it, as half of an iteration may, it
/// always is.
bool replaces(const SignHistory& history, const Repetition& inner, const Repetition& outer);

/// Finds what repeats in the latest events, and which repetition is the iteration: with an optimizer the
/// shortest one that has one in each interval; else the longest whose further events are not those of the
/// shorter one over again.
class RepetitionSearch {
 public:
  /// Looks at the latest `depth` events. `scarce`: at fewer pivots. What has fewer than `least` events is
  /// none.
  std::optional<Repetition> find(const SignHistory& history, std::uint64_t depth, bool scarce,
                                 double least = 0);
  /// Events that the last find() has visited.
  std::int64_t visits() const { return visits_; }
  /// CycleContents::per_iteration(); none also where the program tells of no steps.
  std::optional<std::uint64_t> cycles_per_iteration(const SignHistory& history) {
    return history.knows_by_steps() ? contents_.per_iteration(history) : std::nullopt;
  }
  /// An iteration is taken for one cycle although the cycles are not alike; where steps are known.
  bool cycles_differ(const SignHistory& history) {
    return cycles_per_iteration(history) == 1 && !contents_.alike();
  }

 private:
  /// Where a token came last.
  struct Tail {
    std::array<std::uint64_t, Repetition::kMaxIntervals + 1> at{};  // latest first
    std::uint32_t count = 0;
    std::uint32_t epoch = 0;
  };

  /// In which of a repetition's intervals a token comes, a bit per interval.
  struct Mask {
    std::uint32_t present = 0;
    std::uint32_t twice = 0;  // or more often
    std::uint32_t epoch = 0;
  };
  class Masks {
   public:
    void mark(const SignHistory& history, const Repetition& repetition);
    const Mask& of(std::uint32_t id) const { return masks_[id]; }
    /// The tokens that come, in the order in which they were met.
    const std::vector<std::uint32_t>& tokens() const { return tokens_; }
    /// Whether that interval holds what two of the others hold.
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
  std::optional<std::uint64_t> cycles_;  // of the program's steps in an iteration, for one find()
};

}  // namespace inject
