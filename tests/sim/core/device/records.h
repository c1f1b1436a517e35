// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// CUPTI's records of device work. A record is reserved before the work is submitted and committed after it;
// both do nothing where nobody asked for such records.
#pragma once

#include "tests/sim/core/device/copy_class.h"
#include "tests/sim/core/trace.h"

#pragma GCC visibility push(hidden)
namespace inject::sim::internal {

/// The graph's node that the work is; all zeros outside graphs.
struct GraphPlace {
  std::uint32_t graph = 0;
  std::uint64_t node = 0;
};

trace::ActivityRef reserve_kernel();
trace::ActivityRef reserve_copy(const CopyClass& copy);
trace::ActivityRef reserve_set();

void commit_kernel(const trace::ActivityRef& activity, const KernelWork& work, const Stream& stream,
                   GraphPlace graph, const OpRef& op);
void commit_copy(const trace::ActivityRef& activity, const CopyWork& work, const CopyClass& copy,
                 const Stream& stream, GraphPlace graph, const OpRef& op);
void commit_set(const trace::ActivityRef& activity, const SetWork& work, const Stream& stream,
                GraphPlace graph, const OpRef& op);

}  // namespace inject::sim::internal
#pragma GCC visibility pop
