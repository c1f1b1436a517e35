// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the measured metrics show about kernels: how much of the device they leave unused, and where they are
// under its roofline. docs/metrics.md has the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libinject/analysis/measured_roofline.h"
#include "libinject/model/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Unknown values are empty, including the busiest of several units if one of them was measured but has no
/// value. Percentages are 0 … 100.
struct MeasuredKernel {
  KernelMetricRow row;
  std::optional<double> sm_active;
  std::optional<double> arithmetic;  ///< the busiest of the pipes
  std::optional<double> dram;        ///< of the peak bandwidth, reads and writes together
  std::optional<double> achieved_occupancy;
  std::optional<double> theoretical_occupancy;
  std::string busiest;                       ///< the most used of the pipes, the L2 cache and the memory
  std::optional<double> utilization;         ///< how much of it was used
  std::optional<std::uint64_t> unused_time;  ///< the part of the kernel's time that utilization leaves unused
  std::optional<MeasuredRoofline> place;
};

/// For Statistics::kernel_metrics(), in that order.
std::vector<MeasuredKernel> measured_kernels(const Statistics& statistics, const RunInfo& run);

/// Those whose unused time is known, by descending unused time: long kernels with low utilization first.
std::vector<MeasuredKernel> kernels_by_unused_time(std::vector<MeasuredKernel> kernels);

}  // namespace inject
