// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the measured metrics say of kernels: how much of the device they leave unused, and where they lie
// under its roof. docs/metrics.md has the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libinject/analysis/measured_roofline.h"
#include "libinject/model/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// What is not known is left out: also the busiest of several of which one was measured and has no value.
/// Percentages are 0 … 100.
struct MeasuredKernel {
  KernelMetricRow row;
  std::optional<double> sm_active;
  std::optional<double> arithmetic;  ///< the busiest of the pipes
  std::optional<double> dram;        ///< of the peak bandwidth, reads and writes together
  std::optional<double> achieved_occupancy;
  std::optional<double> theoretical_occupancy;
  std::string busiest;  ///< of the pipes, the L2 cache and the memory, the one that was used most …
  std::optional<double> utilization;         ///< … and how much of it
  std::optional<std::uint64_t> unused_time;  ///< of the kernel's time, what utilization lacks
  std::optional<MeasuredRoofline> place;
};

/// Statistics::kernel_metrics(), in that order.
std::vector<MeasuredKernel> measured_kernels(const Statistics& statistics, const RunInfo& run);

/// Those whose unused time is known, by that, descending: long kernels with low utilization first.
std::vector<MeasuredKernel> kernels_by_unused_time(std::vector<MeasuredKernel> kernels);

}  // namespace inject
