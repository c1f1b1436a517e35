// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// memory_sum.csv: docs/memory.md explains it.
#pragma once

#include <string>

#include "libinject/output/table_files.h"

namespace inject {

void memory_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

}  // namespace inject
