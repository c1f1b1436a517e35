// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// copy_sum.csv: docs/copies.md explains it.
#pragma once

#include <string>
#include <string_view>

#include "libinject/output/table_files.h"

namespace inject {

inline constexpr std::string_view kCopyHeader =
    "Device,Direction,Source,Target,Count,Total Time (ns),Avg (ns),Total (MB),Avg (MB),Throughput "
    "(GB/s),Link (GB/s),Link (%),Small Copies,Small Copies (%),Overlap with Kernels (%),Synchronizing,"
    "Synchronizing (%),Hint";
void copy_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

}  // namespace inject
