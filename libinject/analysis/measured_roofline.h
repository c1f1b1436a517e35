// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <optional>

#include "libinject/analysis/gemm_hints.h"
#include "libinject/analysis/peaks.h"

namespace inject {

/// Where a kernel lies under its device's roofline, by measured memory traffic rather than the minimum that
/// its operands need: docs/metrics.md.
struct MeasuredRoofline {
  double bytes = 0;      ///< to and from the device's memory
  double bandwidth = 0;  ///< bytes per second
  double rate = 0;       ///< operations per second; 0: not known
  Roofline roof;         ///< its intensity, what bounds it, and what is attainable
  /// Rate divided by what is attainable, 0 … 1; empty if either is not known. If the operations are not
  /// known, the share of peak bandwidth, which is a lower bound.
  std::optional<double> share;
  bool impossible = false;  ///< there is no share because it would be impossible (possible_share)
};

/// `dram_percent`: of the peak bandwidth, reads and writes together, over `seconds`, in which `flops` (0: not
/// known) were computed. Empty if the time or the device's bandwidth is not known, or nothing was measured.
std::optional<MeasuredRoofline> measured_roofline(double seconds, std::optional<double> dram_percent,
                                                  double flops, std::optional<Arithmetic> arithmetic,
                                                  const DeviceSpecs& device) noexcept;

}  // namespace inject
