// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libinject/iterations/repetition.h"
#include "libinject/iterations/sign_history.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

/// The program's iterations as they were recognised, and the marks by which they are followed from then on.
struct IterationLock {
  IterationMarks marks;
  std::uint64_t locked_at = 0;    ///< position in the stream
  std::uint64_t seen_before = 0;  ///< iterations that were over when the lock was found
  double events = 0;              ///< per iteration, on average
  bool optimizer = false;         ///< an optimizer's kernels or steps were recognised
  /// Optimizer steps per iteration if the program reports them, otherwise 0.
  std::uint64_t steps = 0;
  /// Two optimizers that look alike would count as one; or the program reports no steps that fit.
  bool doubtful = false;
  bool by_shape = false;     ///< events were also distinguished by launch shape
  unsigned intervals = 0;    ///< number of intervals that agreed
  unsigned marks_found = 0;  ///< number of event kinds that occur once in each interval
  bool rough = false;        ///< the boundary's position in the cycle, or the cycle in which it lies, is a
                             ///< guess
  bool counted = false;      ///< which step is the last follows from counting
  bool mixed = false;        ///< iterations with another number of steps were shown before
  std::string begin_name;
  std::string anchor_name;
};

/// Where in the repetition's cycle an iteration begins, and its marks. Derived from the order in which events
/// were first seen, since the first iteration began with its first event. Empty if no marks give the same
/// boundaries throughout the intervals. Does not set `locked_at` and `seen_before`.
std::optional<IterationLock> find_marks(const SignHistory& history, const Repetition& repetition);

}  // namespace inject
