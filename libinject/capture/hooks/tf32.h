// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/model/data_type.h"

namespace inject {

/// The compute type of fp32 if a call allows TF32: TF32, unless NVIDIA_TF32_OVERRIDE=0
/// disables it in all of NVIDIA's libraries, whatever the program requests. cuDNN then runs its tensor-core
/// engines without tensor cores: for example, 35 of a ResNet-50's 68 convolutions (H200, cuDNN 9),
/// none of whose kernels used TF32.
ComputeType tf32_if_allowed() noexcept;

/// `compute`, or kOther if the environment lets cuBLAS emulate fp32 or fp64 by other types
/// (CUBLAS_EMULATE_SINGLE_PRECISION, CUBLAS_EMULATE_DOUBLE_PRECISION): cuBLAS decides whether it does.
ComputeType unless_emulated(ComputeType compute) noexcept;

}  // namespace inject
