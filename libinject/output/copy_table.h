// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libinject/output/columns.h"
#include "libinject/report/report.h"

namespace inject {

struct CopyTableRow {
  CopyRow copies;
  std::optional<double> rate;  ///< bytes a nanosecond
  std::optional<double> link;  ///< bytes a second that the copies' way has at most
  std::string hint;
};

/// copy_sum.csv: docs/copies.md.
Columns<CopyTableRow> copy_columns(const Report& report);
std::vector<CopyTableRow> copy_rows(const Report& report);

}  // namespace inject
