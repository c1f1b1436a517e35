// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Whether a device's tensor cores could do a library call's products: by type, shape and alignment.
// docs/gemm.md and docs/shapes.md explain the rules.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "libinject/analysis/peaks.h"
#include "libinject/model/call_shape.h"

namespace inject {

enum class Eligible : std::uint8_t {
  kUnknown,
  kNo,
  kMisaligned,  ///< possible at a lower rate; libraries before CUDA 11 would not use them
  kYes,
};

/// "yes", "misaligned", "no", "unknown".
std::string_view eligible_name(Eligible eligible) noexcept;

struct TensorEligibility {
  Eligible eligible = Eligible::kUnknown;
  std::string reason;       ///< why not, or what is misaligned; empty for kYes
  bool misaligned = false;  ///< alignment is the reason; for fp8 products that means kNo
};

TensorEligibility tensor_eligibility(const GemmShape& shape, const DeviceSpecs& device);
TensorEligibility tensor_eligibility(const ConvolutionShape& shape, const DeviceSpecs& device);
TensorEligibility tensor_eligibility(const AttentionShape& shape, const DeviceSpecs& device);
TensorEligibility tensor_eligibility(const RnnShape& shape, const DeviceSpecs& device);

/// The types of the two tensors that are multiplied, which depend on the direction.
std::pair<DataType, DataType> multiplied_types(const ConvolutionShape& shape) noexcept;

}  // namespace inject
