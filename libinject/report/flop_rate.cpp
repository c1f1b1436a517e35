// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/flop_rate.h"

#include <algorithm>

namespace inject {

FlopRate flop_rate(const FlopCount& flops, double duration, const DeviceSpecs& device, std::size_t devices) {
  FlopRate rate;
  rate.flops = flops.total();
  if (rate.flops == 0 || !(duration > 0)) return rate;
  rate.teraflops = static_cast<double>(rate.flops) / duration / 1e3;
  if (const auto least = flops.least_time(device)) {
    const double each = *least * 1e9 / static_cast<double>(std::max<std::size_t>(devices, 1));
    rate.peak_share = possible_share(each / duration, duration);
    if (rate.peak_share.impossible) rate.teraflops.reset();
  }
  return rate;
}

}  // namespace inject
