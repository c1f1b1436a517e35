// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// library_sum.csv.
#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

Columns<Listed<LibraryRow>> library_columns(const Report&) {
  Columns<Listed<LibraryRow>> columns;
  const auto kernels = [&columns](DeviceWork LibraryRow::*work) {
    return columns.of([work](const LibraryRow& row) { return &(row.*work).kernels; });
  };
  columns.add(
      "GPU Time (%)", kPercent,
      [](const Listed<LibraryRow>& row) { return percent(row.self.kernels.sum, row.total); },
      "Share of the kernel time of the listed rows.");
  kernels(&LibraryRow::self)
      .add("GPU Time (ns)", kTime, &Totals::sum,
           "Time of kernels whose innermost library call is this one; rows can be summed.")
      .add("Kernels", kCount, &Totals::count, "Number of these kernels.");
  kernels(&LibraryRow::inclusive)
      .add("GPU Time incl. Nested (ns)", kTime, &Totals::sum,
           "Including kernels of library calls nested in this one.")
      .add("Kernels incl. Nested", kCount, &Totals::count, "Number of these kernels.");
  const auto host = columns.of(&LibraryRow::host);
  host.add("Calls", kCount, &Totals::count, "Calls, including failed ones.");
  columns.add("Failed Calls", kCount, &LibraryRow::failed, "Calls that returned an error.");
  host.add("Host Time (ns)", kTime, &Totals::sum, "Time in the calls.")
      .add("Host Avg (ns)", kMeanTime, &Totals::mean, "Mean per call.")
      .add("Host Min (ns)", kTime, &Totals::smallest, "Shortest call.")
      .add("Host Max (ns)", kTime, &Totals::max, "Longest call.");
  columns.of(&LibraryRow::self)
      .add("Copies", kCount, &DeviceWork::copies, "Memory copies whose innermost library call is this one.")
      .add("Copy Time (ns)", kTime, &DeviceWork::copy_time, "Sum of their durations.")
      .add("Memsets", kCount, &DeviceWork::memsets, "Memsets whose innermost library call is this one.")
      .add("Memset Time (ns)", kTime, &DeviceWork::memset_time, "Sum of their durations.");
  columns
      .add(
          "Depth", kCount, [](const LibraryRow& row) { return cell_if(!row.other, row.depth); },
          "Number of enclosing library calls.", kOtherRow)
      .add(
          "Library", kText, [](const LibraryRow& row) { return cell_if(!row.other, group_name(row.group)); },
          "`cublas`, `cublaslt`, `cudnn`, `nccl`.", kOtherRow)
      .add("Call", kText, &LibraryRow::path,
           "The function, preceded by its callers: `cublasGemmEx > cublasLtMatmul`.");
  return columns;
}

std::vector<Listed<LibraryRow>> library_rows(const Report& report) {
  return listed(report.statistics->library_calls(),
                [](const LibraryRow& row) { return row.self.kernels.sum; });
}

}  // namespace

TableFile library_table() {
  return make_table<library_columns, library_rows>(
      "library_sum.csv", "A library call (cuBLAS, cuBLASLt, cuDNN, NCCL), by its enclosing calls.");
}

}  // namespace inject
