// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/flop_rate.h"

#include <algorithm>

namespace inject {

FlopRate flop_rate(const FlopCount& flops, std::uint64_t duration, const DeviceSpecs& device,
                   std::size_t devices) {
  FlopRate rate;
  rate.flops = flops.total();
  if (rate.flops == 0 || duration == 0) return rate;
  const auto nanoseconds = static_cast<double>(duration);
  rate.teraflops = static_cast<double>(rate.flops) / nanoseconds / 1e3;
  if (const auto least = flops.least_time(device)) {
    const double share = *least * 1e9 / nanoseconds;
    // The share is of one device's peak, while all devices may have worked.
    rate.peak_share =
        possible_share(share / static_cast<double>(std::max<std::size_t>(devices, 1)), nanoseconds);
    if (rate.peak_share.value) rate.peak_share.value = share;
    if (rate.peak_share.impossible) rate.teraflops.reset();
  }
  return rate;
}

}  // namespace inject
