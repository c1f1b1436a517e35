// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// nccl_sum.csv (docs/collectives.md).

#include "libinject/analysis/collective.h"
#include "libinject/base/format.h"
#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

// In the form of NCCL's log. Text, because readers of the tables would round a number.
Cell communicator_text(std::uint64_t id) {
  return cell_if(id != 0, str_format("{:#018x}", id));
}

Columns<Listed<CollectiveRow>> nccl_columns(const Report&) {
  using Row = CollectiveRow;
  Columns<Listed<Row>> columns;
  columns.add("Operation", kText, &Row::operation,
              "`AllReduce`, …, `Group of 3 AllReduce`; `[unknown]`: kernels without a known call.");
  columns
      .of([](const Row& row) { return row.is_known() ? &row : nullptr; },
          "`[unknown]`: kernels without a known call")
      .add(
          "Type", kText, [](const Row& row) { return collective_type_name(row.shape.type); }, "Element type.")
      .add(
          "Reduction", kText, [](const Row& row) { return reduction_name(row.shape.reduction); },
          "`sum`, `avg`, ….", "nothing is reduced; `[unknown]`")
      .add(
          "Bytes", kBytes,
          [](const Row& row) { return cell_if(row.shape.bytes != kUnknownBytes, row.shape.bytes); },
          "Per call, counted as in collectives.md.",
          "`[unknown]`; the type is not known; the number exceeds 64 bits")
      .add(
          "Ranks", kCount, [](const Row& row) { return cell_if(row.shape.ranks != 0, row.shape.ranks); },
          "Ranks in the communicator.", "not known")
      .add(
          "Peer/Root", kNumber, [](const Row& row) { return cell_if(row.shape.peer >= 0, row.shape.peer); },
          "The other rank of a send or receive, the root of a broadcast or reduce.", "the operation has none")
      .add("Grouped", kText, &Row::grouped,
           "`no`; `yes`: submitted at the end of a group; `group`: the end of a group of different calls.")
      .add("Calls", kCount, &Row::calls, "Calls that did not fail.")
      .add("Failed Calls", kCount, &Row::failed, "Calls that failed.")
      .add("Captured Calls", kCount, &Row::captured, "Of Calls, those captured into a CUDA graph.")
      .add("Replayed Calls", kCount, &Row::replayed,
           "Captured calls run by graph launches, counted once per launch.")
      .add("Host Time (ns)", kTime, &Row::host_time, "Time in the calls, including the end of the group.");
  columns.add(
      "GPU Time (%)", kPercent, [](const Listed<Row>& row) { return percent(row.gpu.sum, row.total); },
      "Share of the table's GPU time.");
  columns.of(&Row::gpu)
      .add("GPU Time (ns)", kTime, &Totals::sum,
           "Sum of the kernels' durations, including the time they wait for other ranks.")
      .add("GPU Avg (ns)", kMeanTime, &Totals::mean, "Mean per call.")
      .add("GPU Min (ns)", kTime, &Totals::smallest, "Shortest.")
      .add("GPU Max (ns)", kTime, &Totals::max, "Longest.");
  columns
      .add("Algorithm BW (GB/s)", kBandwidth, &Row::algorithm_bandwidth, "Bytes / GPU time.",
           "no GPU time; bytes not known; the GPU time includes calls that failed")
      .add("Bus BW (GB/s)", kBandwidth, &Row::bus_bandwidth,
           "Algorithm bandwidth times the operation's factor (collectives.md).",
           "as Algorithm BW; ranks not known")
      .add(
          "Overlap with Compute (%)", kPercent, [](const Row& row) { return percent(row.overlap()); },
          "Share of the kernels' time during which a kernel not belonging to a collective ran on the device.",
          "no kernels")
      .add("Kernels", kCount, &Row::kernels, "Kernels that ran.")
      .add(
          "Kernel Names", kText,
          [](const Row& row) {
            std::string names;
            for (const KernelTime& kernel : row.names) {
              if (!names.empty()) names += "; ";
              names += kernel.name;
            }
            return names;
          },
          "Each listed once, in descending order of time.", "no kernels")
      .add(
          "Communicator", kText, [](const Row& row) { return communicator_text(row.shape.communicator); },
          "The communicator's id, the same in all ranks, as NCCL logs it.", "not known");
  return columns;
}

std::vector<Listed<CollectiveRow>> nccl_rows(const Report& report) {
  return listed(report.statistics->collectives(), [](const CollectiveRow& row) { return row.gpu.sum; });
}

}  // namespace

TableFile collective_table() {
  return make_table<nccl_columns, nccl_rows>("nccl_sum.csv",
                                             "Collectives of one kind and size (collectives.md).");
}

}  // namespace inject
