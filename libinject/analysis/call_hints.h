// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Hints on how to make convolutions and recurrent layers faster. docs/shapes.md explains the rules.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "libinject/analysis/gemm_hints.h"
#include "libinject/analysis/hints.h"
#include "libinject/analysis/kernel_class.h"
#include "libinject/analysis/peaks.h"
#include "libinject/analysis/tensor_eligibility.h"
#include "libinject/model/call_shape.h"

namespace inject {

/// Measurements of a convolution's calls.
struct MeasuredConvolution {
  TensorCores cores = TensorCores::kUnknown;
  Bound bound = Bound::kUnknown;
  double layout_share = 0;    ///< share of its kernels' time spent in kernels with changes_layout(): 0 … 1
  bool tf32_is_used = false;  ///< by other convolutions of the process
};

/// Whether kernels of this name convert tensors between channels first and channels last.
bool changes_layout(std::string_view name) noexcept;

/// Hints from the shape and the measurements.
std::vector<Hint> convolution_hints(const ConvolutionShape& shape, const MeasuredConvolution& measured,
                                    const DeviceSpecs& device);

/// One line of rnn_sum.csv.
struct RnnRow {
  RnnShape shape;
  double rate = 0;  ///< operations per second; 0 if unknown
  std::vector<Hint> hints;
};

/// Hints from the shape alone; `cores` as for arithmetic_of().
std::vector<Hint> rnn_hints(const RnnShape& shape, TensorCores cores, const DeviceSpecs& device);

/// Adds hints from comparing rows, which must be of one device.
void add_algorithm_hints(std::span<RnnRow> rows);

}  // namespace inject
