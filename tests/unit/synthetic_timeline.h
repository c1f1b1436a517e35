// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "libinject/stats/kernel_metrics.h"

namespace inject {

/// A device's kernels with their counter values, and the samples that result.
class SyntheticTimeline {
 public:
  struct Kernel {
    std::uint32_t row;
    Nanoseconds start;
    Nanoseconds end;
    double value;
  };

  Nanoseconds now = 1000;
  std::vector<Kernel> kernels;
  std::uint32_t device = 0;

  void run(std::uint32_t row, Nanoseconds duration, double value) {
    kernels.push_back({row, now, now + duration, value});
    now += duration;
  }
  void idle(Nanoseconds duration) { now += duration; }

  /// Samples of one metric; the counter is the sum over running kernels. Kernels are in order of start.
  std::vector<MetricSample> samples(Nanoseconds interval, Nanoseconds phase = 0,
                                    std::uint32_t window = 1) const {
    std::vector<MetricSample> result;
    std::size_t first = 0;
    for (Nanoseconds start = 1000 + phase; start + interval <= now; start += interval) {
      MetricSample sample;
      sample.start = start;
      sample.end = start + interval;
      sample.device = device;
      sample.window = window;
      sample.values.fill(std::numeric_limits<float>::quiet_NaN());
      while (first < kernels.size() && kernels[first].end <= start) ++first;
      double sum = 0;
      for (std::size_t i = first; i < kernels.size() && kernels[i].start < sample.end; ++i) {
        const Nanoseconds begin = std::max(kernels[i].start, sample.start);
        const Nanoseconds end = std::min(kernels[i].end, sample.end);
        if (end > begin) sum += kernels[i].value * static_cast<double>(end - begin);
      }
      sample.values[0] = static_cast<float>(sum / static_cast<double>(interval));
      result.push_back(sample);
    }
    return result;
  }
};

inline MetricInfo sm_active() {
  return {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed", "SM Active (%)", Quantity::kSmActive};
}

}  // namespace inject
