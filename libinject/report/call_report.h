// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Library calls by shape: the rate at which they compute, the peak with which it is compared, and what could
// be improved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libinject/analysis/gemm_hints.h"
#include "libinject/analysis/hints.h"
#include "libinject/analysis/kernel_class.h"
#include "libinject/analysis/peaks.h"
#include "libinject/analysis/tensor_eligibility.h"
#include "libinject/model/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Calls of one function with one shape. Unknown values are empty.
struct CallReport {
  const CallShapeRow* call = nullptr;
  TensorCoreUse use;               ///< of the kernels that take the most time
  std::uint64_t calls_on_gpu = 0;  ///< calls whose kernels ran, to which GPU times refer
  std::optional<Arithmetic> arithmetic;
  std::optional<double> rate;  ///< operations per second; empty if impossible
  PeakShare peak_share;        ///< of the arithmetic's peak
  Roofline roof;
  TensorEligibility eligibility;  ///< for products, convolutions, attention and recurrent layers
  std::vector<Hint> hints;
};

/// Without hints.
CallReport call_report(const CallShapeRow& call, const RunInfo& run);

/// For Statistics::call_shapes(), in that order.
std::vector<CallReport> call_reports(const Statistics& statistics, const RunInfo& run);

}  // namespace inject
