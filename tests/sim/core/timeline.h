// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// When device work runs. Nothing is executed: a piece of work has a known duration, starts when what it
// depends on has ended, and is over when real time (CLOCK_MONOTONIC) has reached its end.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/sim/core/base.h"

namespace inject::sim {

struct Op;
using OpRef = std::shared_ptr<Op>;

struct Op {
  Nanoseconds earliest = 0;  ///< not before the host asked for it
  Nanoseconds duration = 0;
  std::atomic<Nanoseconds> start{kUnknown};
  std::atomic<Nanoseconds> end{kUnknown};
  std::vector<OpRef> after;  ///< emptied once the start is known
  bool hangs = false;
  int waits_for = -1;
  std::vector<int> sets;
  std::function<void()>
      host;  ///< host function: runs on a thread of the simulation, its return ends the work

  bool ended_by(Nanoseconds now) const { return end.load(std::memory_order_acquire) <= now; }
  bool started_by(Nanoseconds now) const { return start.load(std::memory_order_acquire) <= now; }
};

namespace timeline {

/// Puts work on the timeline.
OpRef submit(OpRef op);
OpRef submit(Nanoseconds earliest, Nanoseconds duration, std::vector<OpRef> after);

/// Sleeps until the work is over; for ever if it hangs.
void wait(const OpRef& op);
/// The same with a deadline; false if it has not ended by then.
bool wait_until(const OpRef& op, Nanoseconds deadline);

/// Work that is running at `now` or has been submitted and not ended.
std::vector<OpRef> running(Nanoseconds now);
std::vector<OpRef> unfinished(Nanoseconds now);

}  // namespace timeline
}  // namespace inject::sim
