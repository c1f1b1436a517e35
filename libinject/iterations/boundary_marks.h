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

/// What was recognised as the program's iterations, and the marks by which they are followed from then on.
struct IterationLock {
  IterationMarks marks;
  std::uint64_t locked_at = 0;    ///< position in the stream
  std::uint64_t seen_before = 0;  ///< iterations that were over when it was found
  double events = 0;              ///< of an iteration, on average
  bool optimizer = false;         ///< an optimizer's kernels were recognised, or its steps
  /// Optimizer steps per iteration, if the program reports them; 0: it does not.
  std::uint64_t steps = 0;
  /// … and two optimizers that look alike would count as one; or it reports none that fit.
  bool doubtful = false;
  bool by_shape = false;     ///< events were distinguished by launch shape, too
  unsigned intervals = 0;    ///< that agreed
  unsigned marks_found = 0;  ///< kinds of events that come once in each
  bool rough = false;        ///< where in the cycle the boundary is, or in which of the cycles, is a guess
  bool mixed = false;        ///< iterations of another number of steps have been shown before
  std::string begin_name;
  std::string anchor_name;
};

/// Where in the repetition's cycle an iteration begins, and its marks. Derived from the order in which events
/// were first seen, as the first iteration began with its first event. Nothing if there are no marks
/// that give the same boundaries all over the intervals. Leaves `locked_at` and `seen_before` alone.
std::optional<IterationLock> find_marks(const SignHistory& history, const Repetition& repetition);

}  // namespace inject
