// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/model/data_type.h"

namespace inject {

/// What fp32 is computed in where a call lets it be rounded to TF32: that, unless NVIDIA_TF32_OVERRIDE=0
/// forbids it to all of NVIDIA's libraries, whatever the program asks them for. cuDNN then runs the engines
/// that it has for tensor cores without them: so of 35 of a ResNet-50's 68 convolutions (H200, cuDNN 9), of
/// which no kernel was one of TF32.
ComputeType tf32_if_allowed() noexcept;

/// `compute`, or kOther where the environment lets cuBLAS emulate fp32 or fp64 by other types
/// (CUBLAS_EMULATE_SINGLE_PRECISION, CUBLAS_EMULATE_DOUBLE_PRECISION): whether it does is its own choice.
ComputeType unless_emulated(ComputeType compute) noexcept;

}  // namespace inject
