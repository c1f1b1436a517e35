// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the windows, their iterations and their phases were spent on: window_sum.csv (docs/diagnosis.md),
// iteration_sum.csv (docs/iterations.md) and phase_sum.csv.
#pragma once

#include <string>

#include "libinject/analysis/shape_work.h"
#include "libinject/output/table_files.h"

namespace inject {

/// What of the first device's peaks the calls of a window or an iteration of this duration reach.
PeakShare peak_share(const FlopCount& flops, std::uint64_t duration, const RunInfo& run);

void window_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);
void iteration_rows(const Statistics& statistics, const RunInfo& run, std::string& text,
                    const TextSink& sink);
void phase_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

}  // namespace inject
