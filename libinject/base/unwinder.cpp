// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/unwinder.h"

#include <unwind.h>

namespace inject {

void prepare_unwinder() noexcept {
  _Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_NORMAL_STOP; }, nullptr);
}

}  // namespace inject
