// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Prints docs/columns.md: what the tables' columns say of themselves.
#include <iostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/output/metric_columns.h"
#include "libinject/output/metric_timeline.h"
#include "libinject/output/table_files.h"
#include "libinject/output/trace.h"

using namespace inject;

namespace {

constexpr std::string_view kIntroduction = R"(# Columns
Every column of every table. This page is generated from the columns in the source: `cmake --build build --target columns_page`
regenerates it, and a test compares the two.

- Times are in nanoseconds; 1 MB is 10^6 bytes. No share of the GPU's time exceeds 100; where kernels overlap, the sum of
  their times is longer than the elapsed time.
- An empty cell means that a figure is not known or does not apply; the last column says when. 0 is a value.
- Points in time count from `time_zero` in `run.json`, the process's initialisation of CUDA; earlier ones are negative.
- A file covers all windows. A summary table has at most 10,000 rows; the rest is in a row `[other]`. limits.md has the limits of the
  raw records.
- *metric* stands for each metric requested in INJECT_METRICS, under its own title.
)";

/// A bar would end a cell.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

void print(std::string_view file, std::string_view rows, std::string_view when,
           const std::vector<ColumnInfo>& columns) {
  std::cout << "\n## " << file << "\n" << rows;
  if (!when.empty()) std::cout << " Written " << when << ".";
  std::cout << "\n\n| column | unit | range | meaning | empty |\n|---|---|---|---|---|\n";
  std::set<std::string> shown;
  for (const ColumnInfo& column : columns) {
    // One line stands for all metrics.
    if (!shown.insert(column.header).second) continue;
    std::cout << "| " << cell(column.header) << " | " << cell(column.unit.name) << " | "
              << cell(column.unit.range) << " | " << cell(column.meaning) << " | " << cell(column.empty)
              << " |\n";
  }
}

}  // namespace

int main() {
  NameTable names{16, 1 << 12};
  RangeTree ranges{16};
  ShapeTable shapes{16};
  Statistics statistics(names, ranges, shapes);
  const std::vector<MetricInfo> metrics{{"", std::string(kAnyMetric), Quantity::kFma},
                                        {"", std::string(kAnyMetric), Quantity::kTensor}};
  statistics.set_metrics(metrics);
  const RunInfo run;
  const Report report = build_report(statistics, run);
  std::cout << kIntroduction;
  for (const TableFile& table : table_files())
    if (table.columns != nullptr) print(table.name, table.rows, table.when, table.columns(report));
  for (const TraceFile& file : trace_files())
    print(file.name, file.rows, "with `INJECT_TRACE=csv`", file.columns());
  print("metric_samples.csv", "A sample of a device's counters (metrics.md).",
        "with `INJECT_METRICS_TIMELINE=1`", sample_columns(metrics));
  return std::cout ? 0 : 1;
}
