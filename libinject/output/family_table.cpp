// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// family_sum.csv (docs/shapes.md).
#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

Columns<Listed<FamilyReport>> family_columns(const Report&) {
  using Row = FamilyReport;
  Columns<Listed<Row>> columns;
  const auto share = [](std::uint64_t Row::*part) {
    return [part](const Row& row) { return percent(row.*part, row.time.sum); };
  };
  columns.add(
      "Time (%)", kPercent, [](const Listed<Row>& row) { return percent(row.time.sum, row.total); },
      kShareOfListed);
  add_totals(columns, &Row::time);
  columns.add("Kernel Names", kCount, &Row::names, "Number of distinct kernel names.")
      .add("In Library Calls (%)", kPercent, share(&Row::attributed),
           "Share of the time spent in kernels launched inside a library call.")
      .add("Tensor Cores (%)", kPercent, share(&Row::on_tensor_cores),
           "Share of the time spent in kernels known to use tensor cores.")
      .add("Tensor Cores Unknown (%)", kPercent, share(&Row::unknown_cores),
           "Share of the time spent in kernels whose names do not say whether they use tensor cores.")
      .add("FLOPs", kFlop, &Row::flops,
           "FLOPs of the library calls of known shape whose products these kernels compute: those that take "
           "most of the call's time, not counting kernels that only help, as by changing layouts.",
           "records of calls, or of work of calls of known shape, were lost")
      .add(
          "TFLOP/s", kTeraflops, [](const Row& row) { return row.teraflops; },
          "FLOPs of these calls / the time of all of their kernels, over the calls whose TFLOP/s is known.",
          "no rate is known; a call of the family has an impossible rate")
      .add(
          "Family", kText, [](const Row& row) { return family_name(row.family); }, "What the kernels do.");
  return columns;
}

std::vector<Listed<FamilyReport>> family_rows(const Report& report) {
  return listed(std::vector<FamilyReport>(report.families),
                [](const FamilyReport& row) { return row.time.sum; });
}

}  // namespace

TableFile family_table() {
  return make_table<family_columns, family_rows>("family_sum.csv", "A family of kernels (shapes.md).");
}

}  // namespace inject
