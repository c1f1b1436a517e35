// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/iteration_metrics.h"

#include <algorithm>
#include <utility>

namespace inject {

void IterationMetrics::note(std::uint32_t window, const IterationStatistics& iterations,
                            const KernelMetrics& metrics) {
  const std::size_t count = metrics.metrics().size();
  for (const IterationRow& row : iterations.rows_of(window)) {
    const std::uint64_t duration = row.end > row.begin ? row.end - row.begin : 0;
    for (const IterationDeviceRow& device : row.devices) {
      if (device.last <= device.first) continue;
      const Nanoseconds until = device.first + device.time(duration);
      std::vector<WeightedMean> means;
      means.reserve(count);
      for (std::size_t m = 0; m < count; ++m)
        means.push_back(metrics.mean_between(device.device, m, device.first, until));
      if (std::none_of(means.begin(), means.end(), [](const WeightedMean& mean) { return mean.weight > 0; }))
        continue;
      means_[{row.window, row.begin, device.device}] = std::move(means);
      if (means_.size() > kMaxKept) means_.erase(means_.begin());
    }
  }
}

std::span<const WeightedMean> IterationMetrics::means(const IterationRow& row, std::uint32_t device) const {
  const auto found = means_.find({row.window, row.begin, device});
  if (found == means_.end()) return {};
  return found->second;
}

}  // namespace inject
