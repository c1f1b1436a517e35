// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/record/thread_registry.h"

namespace inject {

/// Fills the function table of one NVTX client (each library that uses NVTX has its own) with our functions.
/// `get_export_table` is the NvtxGetExportTableFunc_t that the client passes to InitializeInjectionNvtx2.
/// Returns 1 if the client's tables were understood, else 0; the client's calls then have no effect.
int nvtx_attach(const void* (*get_export_table)(std::uint32_t)) noexcept;

/// Removes ranges that other threads have ended from the calling thread's path.
void nvtx_forget_ended(ThreadState& thread) noexcept;

/// The NVTX ranges open on the calling thread, as a node of the range tree.
inline std::uint32_t nvtx_current(ThreadState& thread) noexcept {
  if (thread.ended_ranges.load(std::memory_order_relaxed) != 0) [[unlikely]]
    nvtx_forget_ended(thread);
  return thread.range;
}

/// Number of start/end ranges that exceeded the limit of those open at once.
std::uint64_t nvtx_ranges_lost() noexcept;

}  // namespace inject
