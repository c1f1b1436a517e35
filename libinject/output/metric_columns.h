// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Columns of hardware metrics in the tables (docs/metrics.md). There are none if no metrics are collected.
#pragma once

#include <string_view>

#include "libinject/output/table_cells.h"
#include "libinject/report/report.h"

namespace inject {

inline constexpr Unit kMetric{"as the title says", "≥ 0; of percentages ≤ 100", 2};
/// The title of the single column that stands for all metrics in the documentation.
inline constexpr std::string_view kAnyMetric = "*metric*";

/// Adds a column for each metric; `values` returns the row's MetricValues.
template <typename Row, typename Values>
void add_metric_columns(Columns<Row>& columns, const Report& report, Values values) {
  const std::vector<MetricInfo>& metrics = report.statistics->metrics().metrics();
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    columns.of(values).add(
        metrics[m].title, kMetric, [m](const MetricValues& of) { return of[m]; },
        "Mean over the samples from the row's time (metrics.md); only if metrics were collected.",
        "not sampled");
  }
}

}  // namespace inject
