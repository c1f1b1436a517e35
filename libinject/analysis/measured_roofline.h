// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <optional>

#include "libinject/analysis/gemm_hints.h"
#include "libinject/analysis/peaks.h"

namespace inject {

/// Where a kernel lies under the roof of its device, by the memory traffic that was measured rather than by
/// the least that its operands need: docs/metrics.md.
struct MeasuredRoofline {
  double bytes = 0;      ///< to and from the device's memory
  double bandwidth = 0;  ///< bytes a second
  double rate = 0;       ///< operations a second; 0: not known
  Roofline roof;         ///< intensity, what bounds it, what it could attain
  /// Rate by what is attainable, 0 … 1; nothing where one of them is not known. Where the operations are not
  /// known, the share of the bandwidth's peak: the least that it can be.
  std::optional<double> share;
  bool impossible = false;  ///< there is no share because it can't be (possible_share)
};

/// `dram_percent`: of the peak bandwidth, reads and writes together, over `seconds`, in which `flops` (0: not
/// known) were computed. Nothing if the time or the device's bandwidth is not known, or nothing was measured.
std::optional<MeasuredRoofline> measured_roofline(double seconds, std::optional<double> dram_percent,
                                                  double flops, std::optional<Arithmetic> arithmetic,
                                                  const DeviceSpecs& device) noexcept;

}  // namespace inject
