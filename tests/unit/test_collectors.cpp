// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Each collector of Statistics alone; test_statistics.cpp tests them together.
#include "libinject/stats/call_times.h"
#include "libinject/stats/library_table.h"
#include "libinject/stats/range_phases.h"
#include "libinject/stats/table_rows.h"
#include "libinject/stats/window_totals.h"
#include "tests/unit/stats_run.h"

using namespace inject;

TEST_CASE("Rows: one for each key, and one for all others once it is used", "[stats]") {
  Rows<int> rows{0};
  rows.at(0) = 5;
  rows.at(1) = 6;
  CHECK(rows.indices() == std::vector<std::uint32_t>{0, 1});
  CHECK_FALSE(rows.has(kOtherIndex));
  rows.at(kOtherIndex) = 7;
  CHECK(rows.indices() == std::vector<std::uint32_t>{0, 1, kOtherIndex});
  CHECK(rows[kOtherIndex] == 7);
  rows.fill(4);
  CHECK(rows.has(3));
  CHECK_FALSE(rows.has(4));
}

TEST_CASE("A library call has a row, and so have the calls around it", "[stats]") {
  LibraryTable table;
  const CallChain outer = chain_of({"cublasGemmEx"});
  const CallChain inner = chain_of({"cublasGemmEx", "cublasLtMatmul"});
  table.work(inner).kernels.add(100);
  table.work(inner).kernels.add(20);
  const auto rows = table.rows();
  REQUIRE(rows.size() == 2);
  const LibraryRow& one = rows[0].depth == 0 ? rows[0] : rows[1];
  const LibraryRow& other = rows[0].depth == 0 ? rows[1] : rows[0];
  CHECK(one.path == "cublasGemmEx");
  CHECK(one.self.kernels.count == 0);
  CHECK(one.inclusive.kernels.sum == 120);
  CHECK(other.path == "cublasGemmEx > cublasLtMatmul");
  CHECK(other.self.kernels.count == 2);
  table.work(outer).kernels.add(1);
  CHECK(table.rows().size() == 2);

  CallEvent failed = call_event("cublasLtMatmul", 7, outer);
  failed.status = 1;
  table.add_call(failed, 7);
  for (const LibraryRow& row : table.rows()) CHECK(row.failed == (row.depth == 1 ? 1 : 0));
}

TEST_CASE("A window's work is counted by device, its busy time without what overlaps", "[stats]") {
  WindowTotals totals;
  totals.work(1, 0, 100, 200).kernels.add(100);
  totals.work(1, 0, 150, 250).kernels.add(100);
  totals.work(1, 1, 100, 110).copies += 1;
  totals.work(2, 0, 300, 310).kernels.add(10);
  totals.host(2).api_calls += 3;
  totals.settle(1);
  const auto rows = totals.device_rows();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].window == 1);
  CHECK(rows[0].device == 0);
  CHECK(rows[0].busy == 150);
  CHECK(rows[0].work.kernels.sum == 200);
  CHECK(rows[1].device == 1);
  CHECK(rows[2].window == 2);
  CHECK(totals.device_total().kernels.count == 3);
  CHECK(totals.host_total().api_calls == 3);
  CHECK(totals.late() == 0);
  totals.work(1, 0, 10, 20);
  CHECK(totals.late() == 1);
}

TEST_CASE("A phase is told by the innermost range that stands for one", "[stats]") {
  StatsRun run;
  RangePhases phases(run.names, run.tree);
  const std::uint32_t step = run.range(0, "step");
  const std::uint32_t backward = run.range(step, "backward");
  const std::uint32_t layer = run.range(backward, "layer 1");
  CHECK(phases.of(0) == Phase::kOther);
  CHECK(phases.of(step) == Phase::kOther);
  CHECK(phases.of(layer) == Phase::kBackward);
  CHECK(phases.of(run.range(layer, "forward")) == Phase::kForward);
}

TEST_CASE("Copies and memsets by operation", "[stats]") {
  SampleBudget budget;
  OperationTable table(budget);
  table.add(operation_of(copy_event(1, 10, 5)), 5, 10);
  table.add(operation_of(memset_event(10, 50)), 50, 10);
  const auto times = table.times();
  REQUIRE(times.size() == 2);
  CHECK(times[0].name == "[CUDA memset]");
  CHECK(times[1].name == "[CUDA memcpy Host-to-Device]");
  CHECK(times[1].stats->sum() == 5);
}
