// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Reads CUPTI activity records; no CUPTI call, no state.
#pragma once

#include <cupti_activity.h>

#include "libinject/model/events.h"

namespace inject {

/// The prefix that the kernel records of CUDA 12 and 13 (CUpti_ActivityKernel5 … 10) share.
struct KernelActivity {
  KernelEvent event;  ///< `launch` and `name` are set by the caller
  const char* name = nullptr;
};

enum class ActivityKind { kKernel, kTransfer, kOther };

ActivityKind activity_kind(const CUpti_Activity& record) noexcept;
/// `record` is of kind kKernel.
KernelActivity decode_kernel(const CUpti_Activity& record) noexcept;
/// `record` is of kind kTransfer: MEMCPY, MEMCPY2 (between devices) or MEMSET.
TransferEvent decode_transfer(const CUpti_Activity& record) noexcept;

/// False for a record without usable times: forced flushes give zero times for unfinished work, and devices
/// that ran out of profiling buffers give end < start.
inline bool times_valid(Nanoseconds start, Nanoseconds end) noexcept {
  return start != 0 && end >= start;
}

}  // namespace inject
