// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <nccl.h>

#include "libinject/hooks/shim.h"

namespace inject {

template <>
struct Missing<ncclResult_t> {
  static ncclResult_t value() noexcept { return ncclSystemError; }
};

}  // namespace inject

#include "libinject/hooks/nccl.def"
