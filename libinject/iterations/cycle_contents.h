// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "libinject/iterations/sign_history.h"

namespace inject {

/// How the contents of stretches of the stream repeat: of those between `edges`, the latest first, each
/// without the event at its beginning and with the one at its end. 1 if they are all alike, or come in no
/// order; 3 if every third is like the others' third ones. None if it is too early to say.
///
/// Stretches are alike if one of them has all that the other has: a validation, a report or an optimizer's
/// step that was skipped make one longer. Or if they differ in launch shapes alone, as with the last batch of
/// an epoch, or data of any size. Those of two models have each something that the other lacks.
std::optional<std::uint64_t> pattern_of(const SignHistory& history, std::span<const std::uint64_t> edges);
/// Likewise, and whether nearly all of them are of one kind. Where they are not, and have no period, 1 is the
/// best that can be said.
struct CyclePattern {
  std::optional<std::uint64_t> period;
  bool alike = false;
};
CyclePattern pattern_and_kinds(const SignHistory& history, std::span<const std::uint64_t> edges);
/// Whether they are all of one kind, and not of two lengths in turn.
bool all_alike(const SignHistory& history, std::span<const std::uint64_t> edges);
/// So many edges are of use to pattern_of().
inline constexpr std::size_t kMaxEdges = 37;

/// How many cycles of a program's optimizer steps make an iteration, by what runs in them. Two optimizers of
/// one class that launch the same make a cycle of one step, but the models between their steps differ: two
/// critics' steps and a generator's come in turn.
class CycleContents {
 public:
  /// pattern_of() the cycles. Looks at the history only after further steps.
  std::optional<std::uint64_t> per_iteration(const SignHistory& history);
  /// CyclePattern::alike, as of the last call.
  bool alike() const { return found_.alike; }
  /// Events that the last call has looked at.
  std::int64_t visits() const { return visits_; }

 private:
  std::uint64_t steps_ = 0;  // when `found_` was found
  std::uint64_t length_ = 0;
  CyclePattern found_;
  std::int64_t visits_ = 0;
};

}  // namespace inject
