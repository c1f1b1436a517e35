// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libinject/base/write_behind_file.h"
#include "libinject/model/metric_samples.h"
#include "libinject/output/columns.h"

namespace inject {

/// The columns of metric_samples.csv.
std::vector<ColumnInfo> sample_columns(std::span<const MetricInfo> metrics);

/// INJECT_METRICS_TIMELINE=1: metric_samples.csv, one row per sample in order of arrival. As with the raw
/// traces (output/trace.h), rows are written as they arrive and their number is bounded; further rows are
/// counted. For one thread, with all signals blocked (OutputFile).
class MetricTimeline {
 public:
  static constexpr std::uint64_t kMaxRows = 5'000'000;  // some 600 MB

  /// `base`: RunInfo::base, to which times in the file are relative.
  explicit MetricTimeline(Nanoseconds base, std::uint64_t max_rows = kMaxRows)
      : base_(base), rows_left_(max_rows) {}

  /// Call before open(); as in WriteBehindFile.
  void write_behind(FileQueue* queue) { file_.write_behind(queue); }
  /// Creates the file. False on failure: see error().
  bool open(const std::string& folder);
  bool is_open() const { return file_.was_opened(); }
  /// `columns` describe the sample's values; the header is written with the first row.
  void add(const MetricSample& sample, std::span<const MetricInfo> columns);
  /// Passes everything to the kernel, or to the queue.
  bool flush() { return file_.flush(); }
  bool close() { return file_.close(); }

  std::uint64_t rows_left_out() const { return rows_left_out_ + file_.rows_lost(); }
  bool failed() const { return file_.failed(); }
  std::string error() const { return file_.error(); }

 private:
  Nanoseconds base_;
  std::uint64_t rows_left_;
  std::uint64_t rows_left_out_ = 0;
  bool has_header_ = false;
  WriteBehindFile file_;
};

}  // namespace inject
