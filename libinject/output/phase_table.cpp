// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// phase_sum.csv.
#include <map>
#include <utility>

#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

Columns<Listed<PhaseRow>> phase_columns(const Report&) {
  using Row = Listed<PhaseRow>;
  Columns<Row> columns;
  columns
      .add(
          "Window", kText,
          [](const Row& row) {
            return row.window == PhaseStatistics::kOtherWindow ? Cell("[other]") : Cell(row.window);
          },
          "Number of the window; `[other]`: all windows for which there was no room.")
      .add("Device", kNumber, &PhaseRow::device, kDeviceNumber)
      .add(
          "Phase", kText, [](const Row& row) { return phase_name(row.phase); },
          "`forward`, `backward`, `optimizer` or `other`.")
      .add(
          "Kernel Time (%)", kPercent,
          [](const Row& row) { return percent(row.work.kernels.sum, row.total); },
          "Share of the window's kernel time on the device.");
  add_work_columns(columns, &PhaseRow::work);
  return columns;
}

std::vector<Listed<PhaseRow>> phase_rows(const Report& report) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> totals;  // kernel time by window, device
  std::vector<Listed<PhaseRow>> rows;
  for (const PhaseRow& row : report.statistics->phases()) {
    totals[{row.window, row.device}] += row.work.kernels.sum;
    rows.push_back({row});
  }
  for (Listed<PhaseRow>& row : rows) row.total = totals[{row.window, row.device}];
  return rows;
}

}  // namespace

TableFile phase_table() {
  return make_table<phase_columns, phase_rows>(
      "phase_sum.csv", "A phase of the training step, by window and device (diagnosis.md).");
}

}  // namespace inject
