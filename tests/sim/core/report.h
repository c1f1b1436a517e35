// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The simulation's own list of what ran, against which a profiler's figures are checked.
#pragma once

#include "tests/sim/core/base.h"
#include "tests/sim/core/timeline.h"

namespace inject::sim::report {

struct Work {
  const char* kind = "";
  const char* name = "";
  int device = 0;
  std::uint32_t context = 0;
  std::uint32_t stream = 0;
  std::uint32_t correlation = 0;
  Nanoseconds host = 0;
  std::uint64_t bytes = 0;
  OpRef op;
};

bool enabled();
void add(Work work);

}  // namespace inject::sim::report
