// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <vector>

#include "libinject/output/columns.h"
#include "libinject/report/report.h"

namespace inject {

/// memory_sum.csv: docs/memory.md.
Columns<MemoryRow> memory_columns(const Report& report);
const std::vector<MemoryRow>& memory_rows(const Report& report);

}  // namespace inject
