// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Cells and columns that several tables share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/analysis/sample_stats.h"
#include "libinject/model/events.h"
#include "libinject/model/run_info.h"
#include "libinject/output/columns.h"
#include "libinject/stats/device_work.h"
#include "libinject/stats/table_rows.h"

namespace inject {

/// 0 if `whole` is 0.
inline double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}
/// `share` is 0 … 1.
inline std::optional<double> percent(const std::optional<double>& share) {
  return share ? std::optional(100.0 * *share) : std::nullopt;
}

/// A megabyte has 10^6 bytes.
inline double megabytes(double bytes) {
  return bytes / 1e6;
}
inline double megabytes(std::uint64_t bytes) {
  return megabytes(static_cast<double>(bytes));
}

/// Times in the tables are nanoseconds since the base; earlier ones are negative.
inline std::int64_t since_base(Nanoseconds time, const RunInfo& run) {
  return static_cast<std::int64_t>(time - run.base);
}

/// Empty if the value is unknown.
template <typename T>
Cell cell_if(bool known, const T& value) {
  return known ? Cell(value) : Cell();
}

constexpr std::string_view label_name(IterationLabel label) {
  switch (label) {
    case IterationLabel::kIteration:
      return "iteration";
    case IterationLabel::kValidation:
      return "validation";
    case IterationLabel::kCheckpoint:
      return "checkpoint";
  }
  return {};
}

/// A row of a table, with the total of which all rows are shares.
template <typename Row>
struct Listed : Row {
  std::uint64_t total = 0;
};

/// `time` returns a row's part of the total.
template <typename Row, typename Time>
std::vector<Listed<Row>> listed(std::vector<Row>&& rows, Time time) {
  std::uint64_t total = 0;
  for (const Row& row : rows) total += time(row);
  std::vector<Listed<Row>> result;
  result.reserve(rows.size());
  for (Row& row : rows) result.push_back({std::move(row), total});
  return result;
}

inline constexpr std::string_view kShareOfListed = "Share of the total time of the listed rows.";

inline constexpr std::string_view kDeviceNumber = "The GPU's number in the process.";
inline constexpr std::string_view kKernelName =
    "The kernel's fully demangled name; `[other]`: kernels beyond 10,000 names.";
inline constexpr std::string_view kOtherRow = "the row `[other]`";

/// Adds the columns Total Time to Max of a row's kernels; `time` returns their Totals.
template <typename Row, typename Time>
void add_totals(Columns<Row>& columns, Time time) {
  using namespace units;
  columns.of(time)
      .add("Total Time (ns)", kTime, &Totals::sum, "Sum of the kernels' durations.")
      .add("Instances", kCount, &Totals::count, "Executions.")
      .add("Avg (ns)", kMeanTime, &Totals::mean, "Mean duration.")
      .add("Min (ns)", kTime, &Totals::smallest, "Shortest.")
      .add("Max (ns)", kTime, &Totals::max, "Longest.");
}

/// Adds the columns Device to BlkZ; `launch` returns the DetailRow, or null.
template <typename Row, typename Launch>
void add_launch_columns(Columns<Row>& columns, Launch launch) {
  using namespace units;
  const auto of_launch = columns.of(launch, kOtherRow);
  const auto size = [](auto side, std::size_t i) {
    return [side, i](const DetailRow& row) { return (row.*side)[i]; };
  };
  of_launch.add("Device", kNumber, &DetailRow::device, kDeviceNumber)
      .add("GrdX", kCount, size(&DetailRow::grid, 0), "Blocks in x.")
      .add("GrdY", kCount, size(&DetailRow::grid, 1), "Blocks in y.")
      .add("GrdZ", kCount, size(&DetailRow::grid, 2), "Blocks in z.")
      .add("BlkX", kCount, size(&DetailRow::block, 0), "Threads per block in x.")
      .add("BlkY", kCount, size(&DetailRow::block, 1), "Threads per block in y.")
      .add("BlkZ", kCount, size(&DetailRow::block, 2), "Threads per block in z.");
}

/// Adds counts and times of device work, returned by `work`. `empty`: when there is none to report.
template <typename Row, typename Work>
void add_work_columns(Columns<Row>& columns, Work work, std::string_view empty = {}) {
  using namespace units;
  const auto size = [](std::uint64_t DeviceWork::*bytes) {
    return [bytes](const DeviceWork& of) { return megabytes(of.*bytes); };
  };
  columns.of(work, empty)
      .add(
          "Kernels", kCount, [](const DeviceWork& of) { return of.kernels.count; }, "Kernels that ran.")
      .add(
          "Kernel Time (ns)", kTime, [](const DeviceWork& of) { return of.kernels.sum; },
          "Sum of the kernels' durations; exceeds the elapsed time where kernels overlap.")
      .add("Copies", kCount, &DeviceWork::copies, "Memory copies.")
      .add("Copy Time (ns)", kTime, &DeviceWork::copy_time, "Sum of the copies' durations.")
      .add("Copy Size (MB)", kMegabytes, size(&DeviceWork::copy_bytes), "Bytes copied.")
      .add("Memsets", kCount, &DeviceWork::memsets, "Memsets.")
      .add("Memset Time (ns)", kTime, &DeviceWork::memset_time, "Sum of the memsets' durations.")
      .add("Memset Size (MB)", kMegabytes, size(&DeviceWork::memset_bytes), "Bytes set.")
      .add("Unattributed", kCount, &DeviceWork::unattributed,
           "Number of these kernels, copies and memsets whose launch was not seen.");
}

}  // namespace inject
