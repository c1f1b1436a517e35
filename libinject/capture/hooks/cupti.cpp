// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <cupti.h>
#include <cupti_profiler_target.h>

#include "libinject/capture/hooks/foreign_cupti.h"
#include "libinject/capture/hooks/shim.h"

namespace inject {

template <>
struct Missing<CUptiResult> {
  static CUptiResult value() noexcept { return CUPTI_ERROR_NOT_INITIALIZED; }
};

}  // namespace inject

#include "libinject/model/cupti.def"
