// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Hardware metrics in the tables: kernel_metrics.csv, and columns of window_sum.csv and iteration_sum.csv.
// docs/metrics.md explains them. Where no metrics are taken there are none.
#pragma once

#include <string>
#include <vector>

#include "libinject/output/columns.h"
#include "libinject/report/report.h"

namespace inject {

bool takes_metrics(const Report& report);

Columns<MeasuredKernel> kernel_metric_columns(const Report& report);
const std::vector<MeasuredKernel>& kernel_metric_rows(const Report& report);

inline constexpr Unit kMetric{"as the title says", "≥ 0; of percentages ≤ 100", 2};
/// Documentation has one column for all metrics, under this title.
inline constexpr std::string_view kAnyMetric = "*metric*";

/// A column for each metric; `values` gives a row's.
template <typename Row, typename Values>
void add_metric_columns(Columns<Row>& columns, const Report& report, Values values) {
  const std::vector<MetricInfo>& metrics = report.statistics->metrics().metrics();
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    columns.add(
        metrics[m].title, kMetric, [m, values](const Row& row) { return Cell(values(row)[m]); },
        "Mean over the samples of the row's time (metrics.md); only where metrics were taken.",
        "not sampled");
  }
}

/// The studies' utilization is that of what multiplies: null for any other metric.
const char* utilization_title(Quantity quantity);

}  // namespace inject
