// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Library calls by shape: the rate of what they compute, what it is held against, and what could be better.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libinject/analysis/gemm_hints.h"
#include "libinject/analysis/kernel_class.h"
#include "libinject/analysis/peaks.h"
#include "libinject/model/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Calls of one function with one shape. What is not known is left out.
struct CallReport {
  const CallShapeRow* call = nullptr;
  TensorCoreUse use;               ///< of the kernels that take most of the time
  std::uint64_t calls_on_gpu = 0;  ///< whose kernels ran: what the GPU's time is a rate of
  std::optional<Arithmetic> arithmetic;
  std::optional<double> rate;  ///< operations a second
  PeakShare peak_share;        ///< of the arithmetic's peak
  Roofline roof;
  // Of a product alone:
  TensorEligibility eligibility;
  std::vector<Hint> hints;
};

/// As Statistics::call_shapes(), in that order.
std::vector<CallReport> call_reports(const Statistics& statistics, const RunInfo& run);

}  // namespace inject
