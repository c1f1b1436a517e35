// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "libinject/iterations/sign_history.h"

namespace inject {

/// The period with which the contents of stretches of the stream repeat. The stretches lie between `edges`
/// (latest first), each without the event at its beginning and with the one at its end. 1 if they are all
/// alike, or occur in no order; 3 if every third one is like the third one before it. Empty if it is too
/// early to tell.
///
/// Stretches are alike if one contains everything that the other does: a validation, a report or a skipped
/// optimizer step makes one longer. They are also alike if they differ only in launch shapes, as with the
/// last batch of an epoch, or data of varying size. The stretches of two models each contain something that
/// the other lacks.
std::optional<std::uint64_t> pattern_of(const SignHistory& history, std::span<const std::uint64_t> edges);
/// The same, and whether nearly all stretches are of one kind. If they are not, and have no period, the
/// result is 1 for lack of a better one.
struct CyclePattern {
  std::optional<std::uint64_t> period;
  bool alike = false;
};
CyclePattern pattern_and_kinds(const SignHistory& history, std::span<const std::uint64_t> edges);
/// Whether the stretches are all of one kind, and do not alternate between two lengths.
bool all_alike(const SignHistory& history, std::span<const std::uint64_t> edges);
/// Whether the stretches are all of one kind in what was launched outside of optimizers' steps, there is such
/// work in each, and they do not alternate between two amounts of it. False if there are too few of them.
bool all_alike_outside_steps(const SignHistory& history, std::span<const std::uint64_t> edges);
/// Whether the program's first step was the first of an iteration's `each`, as far as what came before it
/// shows.
enum class FirstStep : std::uint8_t {
  kUsual,     ///< before it came what now comes before the step in the same place
  kSkipped,   ///< and most of what now comes before the other steps: one of them was skipped
  kDoubtful,  ///< what came before it is not kept
};
FirstStep first_step_of(const SignHistory& history, std::uint64_t each);
/// The largest number of edges used by pattern_of().
inline constexpr std::size_t kMaxEdges = 37;

/// The number of cycles of a program's optimizer steps in an iteration, based on what runs in them. Two
/// optimizers of one class with the same launches make a cycle of one step, but the models between their
/// steps differ: for example, two critics' steps and a generator's take turns.
class CycleContents {
 public:
  /// pattern_of() the cycles. Reads the history only after further steps.
  std::optional<std::uint64_t> per_iteration(const SignHistory& history);
  /// CyclePattern::alike, as of the last call.
  bool alike() const { return found_.alike; }
  /// Events visited by the last call.
  std::int64_t visits() const { return visits_; }

 private:
  std::uint64_t steps_ = 0;  // when `found_` was determined
  std::uint64_t length_ = 0;
  CyclePattern found_;
  std::int64_t visits_ = 0;
};

}  // namespace inject
