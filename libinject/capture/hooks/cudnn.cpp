// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <cudnn.h>

#include "libinject/capture/hooks/cudnn_arguments.h"
#include "libinject/capture/hooks/cudnn_plans.h"
#include "libinject/capture/hooks/shim.h"

namespace inject {

template <>
struct Missing<cudnnStatus_t> {
  static cudnnStatus_t value() noexcept { return CUDNN_STATUS_NOT_INITIALIZED; }
};

}  // namespace inject

#include "libinject/model/cudnn.def"
