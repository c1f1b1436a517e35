// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/measured_roofline.h"

namespace inject {

std::optional<MeasuredRoofline> measured_roofline(double seconds, std::optional<double> dram_percent,
                                                  double flops, std::optional<Arithmetic> arithmetic,
                                                  const DeviceSpecs& device) noexcept {
  const std::optional<double> bandwidth = peak_bandwidth(device);
  if (!(seconds > 0) || !dram_percent || !(*dram_percent >= 0) || !bandwidth) return std::nullopt;
  MeasuredRoofline result;
  result.bandwidth = *bandwidth * *dram_percent / 100;
  result.bytes = result.bandwidth * seconds;
  if (!(flops > 0)) {
    result.share = *dram_percent / 100;
    return result;
  }
  result.rate = flops / seconds;
  const std::optional<double> peak = arithmetic ? peak_flops(device, *arithmetic) : std::nullopt;
  result.roof = roofline(flops, result.bytes, peak, bandwidth);
  if (result.bytes <= 0 && peak) {
    // All traffic was served by the caches.
    result.roof.bound = Bound::kCompute;
    result.roof.attainable = *peak;
  }
  if (result.roof.attainable > 0) result.share = result.rate / result.roof.attainable;
  return result;
}

}  // namespace inject
