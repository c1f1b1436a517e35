// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libinject/analysis/diagnosis.h"
#include "libinject/stats/device_time.h"
#include "libinject/stats/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// What a device's kernels but collectives' are limited by, over the run: those of unknown calls by their
/// families, those of calls of known shape by the roofline.
KernelLimits kernel_limits(const Statistics& statistics, const RunInfo& run, std::uint32_t device);

/// The median duration of iterations outside windows; nothing where too few are known.
std::optional<double> step_time_outside(const IterationStatistics& iterations);
/// What we take of a step: 1 - step_time_outside() / `step_time`, the mean of `count` steps inside. Nothing
/// where too few are known. Small negative values are noise.
std::optional<double> profiler_overhead(const std::optional<double>& outside, std::uint64_t count,
                                        double step_time);

/// A cause of lost time, and what says so.
struct Evidence {
  Bottleneck kind = Bottleneck::kNone;
  std::uint64_t time = 0;
  std::uint64_t gain = 0;  ///< what the remedy could win at most
  std::string text;  ///< `cudaStreamSynchronize on thread 4711 (python): 10 gaps, 12.345 ms`; may be empty
};

/// One device over all settled windows.
struct DeviceDiagnosis {
  std::uint32_t device = 0;
  DeviceTimes times;
  std::uint64_t taken_by_collectives = 0;
  Diagnosis diagnosis;
  std::vector<Evidence> evidence;  ///< of what the verdict is about first
};

/// By ascending device; without devices of which no window is settled.
std::vector<DeviceDiagnosis> device_diagnoses(const Statistics& statistics, const RunInfo& run);

}  // namespace inject
