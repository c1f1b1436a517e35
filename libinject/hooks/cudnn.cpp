// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <cudnn.h>

#include "libinject/hooks/cudnn_arguments.h"
#include "libinject/hooks/cudnn_plans.h"
#include "libinject/hooks/shim.h"

namespace inject {

template <>
struct Missing<cudnnStatus_t> {
  static cudnnStatus_t value() noexcept { return CUDNN_STATUS_NOT_INITIALIZED; }
};

}  // namespace inject

#include "libinject/hooks/cudnn.def"
