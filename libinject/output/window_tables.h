// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the windows, their iterations and their phases were spent on: window_sum.csv (docs/diagnosis.md),
// iteration_sum.csv (docs/iterations.md) and phase_sum.csv.
#pragma once

#include <vector>

#include "libinject/output/columns.h"
#include "libinject/output/table_cells.h"
#include "libinject/report/report.h"

namespace inject {

Columns<WindowReport> window_columns(const Report& report);
const std::vector<WindowReport>& window_rows(const Report& report);
Columns<IterationReport> iteration_columns(const Report& report);
const std::vector<IterationReport>& iteration_rows(const Report& report);
Columns<Listed<PhaseRow>> phase_columns(const Report& report);
std::vector<Listed<PhaseRow>> phase_rows(const Report& report);

}  // namespace inject
