// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <cublasLt.h>

#include "libinject/capture/hooks/gemm_arguments.h"
#include "libinject/capture/hooks/shim.h"

namespace inject {

template <>
struct Missing<cublasStatus_t> {
  static cublasStatus_t value() noexcept { return CUBLAS_STATUS_NOT_INITIALIZED; }
};

}  // namespace inject

#include "libinject/model/cublaslt.def"
