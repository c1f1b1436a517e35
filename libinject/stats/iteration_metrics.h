// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "libinject/stats/iterations.h"
#include "libinject/stats/kernel_metrics.h"

namespace inject {

/// Hardware metrics of iterations. Samples are dropped once their window is settled; the means over its
/// iterations are kept here.
class IterationMetrics {
 public:
  /// To be called before the window is settled in `metrics`.
  void note(std::uint32_t window, const IterationStatistics& iterations, const KernelMetrics& metrics);
  /// By metric; empty if nothing was sampled.
  std::span<const WeightedMean> means(const IterationRow& row, std::uint32_t device) const;

 private:
  // By window, begin of the iteration and device; the oldest are dropped first.
  using Key = std::array<std::uint64_t, 3>;
  static constexpr std::size_t kMaxKept = 16'384;
  std::map<Key, std::vector<WeightedMean>> means_;
};

}  // namespace inject
