// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/summary_parts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "libinject/report/display_text.h"

namespace inject {

namespace {

void time_table(TextPage& page, const std::vector<TimeRow>& rows, std::string_view title) {
  std::uint64_t total = 0;
  for (const TimeRow& row : rows) total += row.stats->sum();
  TextTable table({"Time(%)", "Time", "Calls", "Avg", "Min", "Max"}, title);
  for (std::size_t i = 0; i < std::min(rows.size(), TextTable::kMaxRows); ++i) {
    const SampleStats& stats = *rows[i].stats;
    table.row({share_text(stats.sum(), total), time_text(static_cast<double>(stats.sum())),
               std::to_string(stats.count()), time_text(stats.mean()),
               time_text(static_cast<double>(stats.min())), time_text(static_cast<double>(stats.max()))},
              rows[i].name);
  }
  page.table(table, rows.size());
}

void library_table(TextPage& page, const std::vector<LibraryRow>& rows, std::uint64_t kernel_time) {
  TextTable table({"GPU(%)", "GPU time", "Kernels", "Calls", "Host time", "Avg"}, "Library call (inclusive)");
  std::size_t outer = 0;
  for (const LibraryRow& row : rows) {
    // The outer calls' figures include the calls inside them.
    if (row.depth != 0 || row.host.count == 0) continue;
    if (++outer > TextTable::kMaxRows) continue;
    table.row({share_text(row.inclusive.kernels.sum, kernel_time),
               time_text(static_cast<double>(row.inclusive.kernels.sum)),
               std::to_string(row.inclusive.kernels.count), std::to_string(row.host.count),
               time_text(static_cast<double>(row.host.sum)), time_text(row.host.mean())},
              row.path);
  }
  page.table(table, outer);
}

void operation_table(TextPage& page, const Statistics& statistics) {
  const std::vector<TimeRow> times = statistics.operation_times();
  const std::vector<TimeRow> sizes = statistics.operation_sizes();
  TextTable table({"Time", "Calls", "Size", "Avg size", "Throughput"}, "Copies and memsets");
  for (std::size_t i = 0; i < std::min(times.size(), TextTable::kMaxRows); ++i) {
    const auto size = std::find_if(sizes.begin(), sizes.end(),
                                   [&](const TimeRow& row) { return row.name == times[i].name; });
    const auto time = static_cast<double>(times[i].stats->sum());
    const double bytes = size == sizes.end() ? 0.0 : static_cast<double>(size->stats->sum());
    const double count = static_cast<double>(times[i].stats->count());
    table.row({time_text(time), std::to_string(times[i].stats->count()), size_text(bytes),
               size_text(bytes / count), time > 0 ? size_text(bytes / time * 1e9) + "/s" : "-"},
              times[i].name);
  }
  page.table(table, times.size());
}

}  // namespace

void write_tables(TextPage& page, const Statistics& statistics) {
  time_table(page, statistics.kernels(), "Kernel");
  library_table(page, statistics.library_calls(), statistics.device_total().kernels.sum);
  operation_table(page, statistics);
  time_table(page, statistics.api_calls(), "API call");
}

}  // namespace inject
