// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Carrying out a piece of work: its bytes are moved at once, it takes its time on the timeline, CUPTI gets a
// record of it and the report a line.
#pragma once

#include "tests/sim/core/device/records.h"

#pragma GCC visibility push(hidden)
namespace inject::sim::internal {

/// Where a piece of work goes.
struct Destination {
  Stream* stream = nullptr;
  /// When the program asked for it. The thread may come to submit it much later, and the work begins when it
  /// would have begun.
  Nanoseconds host = 0;
  Nanoseconds latency = 0;  ///< from there to the earliest start of a copy or set
  GraphPlace graph;
  std::vector<OpRef> after;  ///< what a graph's node waits for; elsewhere that follows from the stream
};

OpRef carry_out(const KernelWork& work, Destination to);
OpRef carry_out(const CopyWork& work, Destination to);
OpRef carry_out(const SetWork& work, Destination to);
OpRef carry_out(const HostWork& work, Destination to);

}  // namespace inject::sim::internal
#pragma GCC visibility pop
