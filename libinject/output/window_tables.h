// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the windows, their iterations and their phases were spent on: window_sum.csv (docs/diagnosis.md),
// iteration_sum.csv (docs/iterations.md) and phase_sum.csv.
#pragma once

#include <string>

#include "libinject/output/table_files.h"

namespace inject {

void window_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);
void iteration_rows(const Statistics& statistics, const RunInfo& run, std::string& text,
                    const TextSink& sink);
void phase_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

}  // namespace inject
