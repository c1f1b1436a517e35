// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Matrix products that a library computes inside calls of another kind: those of cuDNN's recurrent networks.
// Their sizes follow from the calls' shapes (analysis/rnn_products.h), their time from the calls' kernels.
#pragma once

#include <deque>
#include <span>

#include "libinject/report/call_report.h"

namespace inject {

/// A row of gemm_sum.csv. `report` refers to `row`.
struct DerivedProducts {
  enum class Kind : std::uint8_t {
    kCall,     ///< all products of calls of one shape, with their time
    kProduct,  ///< those of one size among them: their part of the time is unknown
  };
  Kind kind = Kind::kCall;
  CallShapeRow row;  ///< with a GemmShape, whose sizes are 0 if products differ
  CallReport report;
};

/// By descending time: each `kCall`, followed by its `kProduct`s. Calls whose operations are unknown have no
/// `kProduct`s, and no sizes.
std::deque<DerivedProducts> derived_products(std::span<const CallReport> calls, const RunInfo& run);

}  // namespace inject
