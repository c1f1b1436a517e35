// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/metric_timeline.h"

#include <algorithm>

#include "libinject/base/csv.h"

namespace inject {

std::vector<ColumnInfo> sample_columns(std::span<const MetricInfo> metrics) {
  std::vector<ColumnInfo> columns{{"Device", units::kNumber, "The GPU's number in the process.", ""},
                                  {"Start (ns)", units::kMoment, "When the sample began.", ""},
                                  {"End (ns)", units::kMoment, "When it ended.", ""}};
  for (const MetricInfo& metric : metrics) {
    columns.push_back({metric.title,
                       {"as the title says", "≥ 0; of percentages ≤ 100", 3},
                       "Mean over the sample.",
                       "not a number"});
  }
  return columns;
}

bool MetricTimeline::open(const std::string& folder) {
  return file_.open(folder + "/metric_samples.csv", OutputFile::Existing::kRefuse);
}

void MetricTimeline::add(const MetricSample& sample, std::span<const MetricInfo> columns) {
  if (rows_left_ == 0 || !file_.is_open() || !file_.has_room()) {
    ++rows_left_out_;
    return;
  }
  --rows_left_;
  const std::size_t values = std::min(columns.size(), sample.values.size());
  if (!has_header_) {
    has_header_ = true;
    file_.buffer() += header_line(sample_columns(columns.first(values))) + "\n";
  }
  CsvRow row(file_.buffer());
  row.number(sample.device)
      .number(static_cast<std::int64_t>(sample.start - base_))
      .number(static_cast<std::int64_t>(sample.end - base_));
  for (std::size_t i = 0; i < values; ++i) row.decimal(static_cast<double>(sample.values[i]), 3);
  row.end();
  file_.end_row();
}

}  // namespace inject
