// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libinject/analysis/diagnosis.h"
#include "libinject/analysis/input_cause.h"
#include "libinject/model/run_info.h"
#include "libinject/report/call_report.h"
#include "libinject/report/measured_kernels.h"
#include "libinject/report/profiler_overhead.h"
#include "libinject/stats/device_time.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// A cause of lost time, with the evidence for it.
struct Evidence {
  Bottleneck kind = Bottleneck::kNone;
  std::uint64_t time = 0;
  std::optional<std::uint64_t> gain;        ///< the most that the remedy could save; empty if unbounded
  InputCause cause = InputCause::kUnknown;  ///< for kInput: the verdict's cause
  std::string text;  ///< `cudaStreamSynchronize on thread 4711 (python): 10 gaps, 12.345 ms`; may be empty
};

/// What to do about it, in one line; empty if there is nothing to say.
inline std::string_view evidence_advice(const Evidence& evidence) {
  return evidence.cause == InputCause::kUnknown ? bottleneck_advice(evidence.kind)
                                                : input_cause_advice(evidence.cause);
}

/// One device over all settled windows.
struct DeviceDiagnosis {
  std::uint32_t device = 0;
  DeviceTimes times;
  std::uint64_t taken_by_collectives = 0;
  std::optional<WithoutProfiler> without_profiler;
  Diagnosis diagnosis;             ///< of the times without the profiler, if these are known
  std::vector<Evidence> evidence;  ///< the verdict's first; its times are those in windows
  std::string clocks;  ///< that they were throttled, why, and the maximum cost; empty if they were not
};

struct DeviceKernel;

/// Diagnoses the devices of one run. Keeps references to its arguments.
class DeviceDiagnoser {
 public:
  DeviceDiagnoser(const Statistics& statistics, const RunInfo& run, std::span<const CallReport> calls,
                  std::span<const MeasuredKernel> measured);

  /// What limits a device's kernels, except for collectives, over the run: by measurements if there are any,
  /// by the roofline for calls of known shape, otherwise by their families.
  KernelLimits limits(std::uint32_t device) const;
  /// What limits `time` of kernels with these details; nothing for a collective.
  KernelLimits limits_of(const DetailRow& detail, std::uint64_t time) const;
  DeviceDiagnosis diagnose(const DeviceTimeRow& device, const KernelLimits& limits,
                           const std::optional<OverheadEstimate>& overhead) const;

 private:
  std::vector<DeviceKernel> kernels_of(std::uint32_t device) const;
  void add_cause(Evidence& evidence, const DeviceTimeRow& device) const;

  const Statistics& statistics_;
  const RunInfo& run_;
  HostSum host_;
  std::unordered_map<std::string_view, const KernelFamilyRow*> families_;
  /// The share of each kernel's time in calls that are memory-bound by the roofline.
  std::unordered_map<std::string_view, double> memory_bound_;
  /// What limits kernels with enough measurements, by row of the kernels' details.
  std::unordered_map<std::uint32_t, Bottleneck> measured_;
};

}  // namespace inject
