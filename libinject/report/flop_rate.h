// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <optional>

#include "libinject/analysis/shape_work.h"

namespace inject {

/// What library calls of known shape computed over a span of time, and at what rate.
struct FlopRate {
  FlopSum flops = 0;
  std::optional<double> teraflops;  ///< 10^12 per second; empty without work or time, or if impossible
  PeakShare peak_share;  ///< time that the devices need at the first one's peaks, divided by the time taken
};

/// `duration`: ns, 0 if unknown. `devices`: how many may have worked concurrently in it.
FlopRate flop_rate(const FlopCount& flops, double duration, const DeviceSpecs& device,
                   std::size_t devices = 1);

}  // namespace inject
