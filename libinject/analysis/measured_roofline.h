// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <optional>

#include "libinject/analysis/gemm_hints.h"
#include "libinject/analysis/peaks.h"

namespace inject {

/// A kernel's position under its device's roofline, by measured memory traffic rather than the minimum that
/// its operands need: docs/metrics.md.
struct MeasuredRoofline {
  double bytes = 0;      ///< to and from the device's memory
  double bandwidth = 0;  ///< bytes per second
  double rate = 0;       ///< operations per second; 0: unknown
  Roofline roof;         ///< its intensity, what bounds it, and what is attainable
  /// Rate divided by the attainable rate, 0 … 1; empty if either is unknown. If the operations are unknown,
  /// the share of peak bandwidth, which is a lower bound.
  std::optional<double> share;
  bool impossible = false;  ///< `share` is empty because its value would be impossible (possible_share)
};

/// `dram_percent`: of the peak bandwidth, reads and writes together, over `seconds`, in which `flops` (0:
/// unknown) were computed. Empty if the time or the device's bandwidth is unknown, or nothing was measured.
std::optional<MeasuredRoofline> measured_roofline(double seconds, std::optional<double> dram_percent,
                                                  double flops, std::optional<Arithmetic> arithmetic,
                                                  const DeviceSpecs& device) noexcept;

}  // namespace inject
