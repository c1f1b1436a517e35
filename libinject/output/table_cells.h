// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the tables' columns have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libinject/analysis/sample_stats.h"
#include "libinject/model/run_info.h"
#include "libinject/output/columns.h"
#include "libinject/stats/device_work.h"

namespace inject {

/// 0 of nothing.
inline double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}
/// Of a share, 0 … 1.
inline std::optional<double> percent(const std::optional<double>& share) {
  return share ? std::optional(100.0 * *share) : std::nullopt;
}

/// 10^6 bytes each.
inline double megabytes(double bytes) {
  return bytes / 1e6;
}
inline double megabytes(std::uint64_t bytes) {
  return megabytes(static_cast<double>(bytes));
}

/// Times in the tables count from the base, in nanoseconds; what lies before it is negative.
inline std::int64_t since_base(Nanoseconds time, const RunInfo& run) {
  return static_cast<std::int64_t>(time - run.base);
}

/// Nothing where the value stands for one that is not known.
template <typename T>
Cell cell_if(bool known, const T& value) {
  return known ? Cell(value) : Cell();
}

/// A row of a table with what all of its rows are a share of.
template <typename T>
struct Listed {
  T row;
  std::uint64_t total = 0;
  const RunInfo* run = nullptr;
};

/// `time` gives the row's part of the total.
template <typename T, typename Time>
std::vector<Listed<T>> listed(std::vector<T>&& rows, Time time, const RunInfo* run = nullptr) {
  std::uint64_t total = 0;
  for (const T& row : rows) total += time(row);
  std::vector<Listed<T>> result;
  result.reserve(rows.size());
  for (T& row : rows) result.push_back({std::move(row), total, run});
  return result;
}

inline constexpr std::string_view kShareOfListed = "Share of the total time of the listed rows.";

/// Counts and times of device work; `work` gives it.
template <typename Row, typename Work>
void add_work_columns(Columns<Row>& columns, Work work) {
  using namespace units;
  columns
      .add(
          "Kernels", kCount, [work](const Row& row) { return work(row).kernels.count; }, "Kernels that ran.")
      .add(
          "Kernel Time (ns)", kTime, [work](const Row& row) { return work(row).kernels.sum; },
          "Sum of their durations; where kernels overlap it exceeds the time that passed.")
      .add(
          "Copies", kCount, [work](const Row& row) { return work(row).copies; }, "Memory copies.")
      .add(
          "Copy Time (ns)", kTime, [work](const Row& row) { return work(row).copy_time; },
          "Sum of the copies' durations.")
      .add(
          "Copy Size (MB)", kMegabytes, [work](const Row& row) { return megabytes(work(row).copy_bytes); },
          "Bytes copied.")
      .add(
          "Memsets", kCount, [work](const Row& row) { return work(row).memsets; }, "Memsets.")
      .add(
          "Memset Time (ns)", kTime, [work](const Row& row) { return work(row).memset_time; },
          "Sum of the memsets' durations.")
      .add(
          "Memset Size (MB)", kMegabytes,
          [work](const Row& row) { return megabytes(work(row).memset_bytes); }, "Bytes set.")
      .add(
          "Unattributed", kCount, [work](const Row& row) { return work(row).unattributed; },
          "Of these kernels, copies and memsets, how many have a launch that was not seen.");
}

}  // namespace inject
