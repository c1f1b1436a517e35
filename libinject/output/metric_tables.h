// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Hardware metrics in the tables: kernel_metrics.csv, and columns of window_sum.csv. docs/metrics.md explains
// them. Where no metrics are taken there is neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/output/csv.h"
#include "libinject/output/table_files.h"

namespace inject {

bool takes_metrics(const Statistics& statistics);

inline constexpr std::string_view kKernelMetricHeader =
    "Device,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Total Time (ns),Instances,Samples,Shared (%),Reliable";
std::string kernel_metric_columns(const Statistics& statistics);
void kernel_metric_rows(const Statistics& statistics, const RunInfo& run, std::string& text,
                        const TextSink& sink);

std::string window_metric_columns(const Statistics& statistics);

std::string iteration_metric_columns(const Statistics& statistics);
/// The cells below them: of an iteration on these devices together.
void iteration_metric_cells(CsvRow& row, const Statistics& statistics, const IterationRow& iteration,
                            std::span<const IterationDeviceRow> devices);

/// The cells below window_metric_columns().
class WindowMetricCells {
 public:
  explicit WindowMetricCells(const Statistics& statistics);

  /// Of a window on these devices together. `duration`: the window's, 0 if it is not known.
  void append(CsvRow& row, std::uint32_t window, std::span<const WindowDeviceRow> devices,
              std::uint64_t duration) const;

 private:
  std::size_t metrics_;
  std::vector<std::size_t> summed_;  // metrics that have a column for their kernels' sum
  std::vector<WindowMetrics> windows_;
};

}  // namespace inject
