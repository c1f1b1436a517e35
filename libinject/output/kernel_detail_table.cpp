// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// kernel_detail.csv (docs/occupancy.md).
#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

const DetailRow* launch_of(const KernelReport& kernel) {
  return kernel.detail->other ? nullptr : kernel.detail;
}

Columns<Listed<KernelReport>> detail_columns(const Report&) {
  Columns<Listed<KernelReport>> columns;
  columns.add(
      "Time (%)", kPercent,
      [](const Listed<KernelReport>& row) { return percent(row.detail->time.sum, row.total); },
      kShareOfListed);
  add_totals(columns, [](const KernelReport& row) { return &row.detail->time; });
  add_launch_columns(columns, launch_of);
  const auto launch = columns.of(launch_of, kOtherRow);
  launch.add("Reg/Trd", kCount, &DetailRow::registers_per_thread, "Registers per thread.")
      .add("StcSMem (B)", kBytes, &DetailRow::static_shared_bytes, "Static shared memory per block.")
      .add("DymSMem (B)", kBytes, &DetailRow::dynamic_shared_bytes, "Dynamic shared memory per block.")
      .add("LocalMem/Trd (B)", kBytes, &DetailRow::local_bytes_per_thread, "Local memory per thread.");
  static constexpr std::string_view kUnknownDevice = "the row `[other]`; the device's limits are not known";
  columns.of([](const KernelReport& row) { return row.use.occupancy; }, kUnknownDevice)
      .add(
          "Occupancy (%)", kPercent, [](const Occupancy& of) { return 100 * of.share; },
          "Theoretical: resident warps as a share of the maximum that a multiprocessor holds (occupancy.md).")
      .add("Blocks/SM", kCount, &Occupancy::blocks,
           "Blocks of this launch that are resident on a multiprocessor at the same time.")
      .add(
          "Limited by", kText, [](const Occupancy& of) { return limiter_text(of.limiters); },
          "What leaves no room for another block: `registers`, `shared memory`, `block size`, `blocks`, "
          "joined by `+`.");
  columns.of([](const KernelReport& row) { return row.use.grid; }, kUnknownDevice)
      .add("Waves", {"", "≥ 0", 2}, &GridUse::waves, "Blocks of the grid / (multiprocessors · Blocks/SM).")
      .add(
          "SM Efficiency (%)", kPercent, [](const GridUse& of) { return 100 * of.efficiency; },
          "Share of the multiprocessors' time that the grid can use (occupancy.md).");
  launch.add(
      "Tensor Cores", kText, [](const DetailRow& row) { return tensor_cores_name(row.cores); },
      "`yes`, `no` or `unknown`, by the kernel's name.");
  columns.add(
      "Lost Time (ns)", kTime, [](const KernelReport& row) { return row.use.lost_time; },
      "Total Time · (1 - SM Efficiency).", kUnknownDevice);
  columns.add(
      "Name", kText, [](const KernelReport& row) { return row.detail->name; }, kKernelName);
  return columns;
}

std::vector<Listed<KernelReport>> detail_rows(const Report& report) {
  return listed(std::vector(report.kernels), [](const KernelReport& row) { return row.detail->time.sum; });
}

}  // namespace

TableFile kernel_detail_table() {
  return make_table<detail_columns, detail_rows>(
      "kernel_detail.csv", "A kernel with one launch shape and its resources (occupancy.md).");
}

}  // namespace inject
