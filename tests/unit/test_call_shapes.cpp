// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/call_shapes.h"

#include <thread>
#include <vector>

#include "libinject/model/functions.h"
#include "libinject/record/shape_table.h"
#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

GemmShape product(std::int64_t m) {
  GemmShape shape;
  shape.m = m;
  return shape;
}

CallEvent call(std::uint32_t number, std::uint32_t shape, std::uint32_t window = 1) {
  CallEvent event;
  event.function = kFn_cublasSgemm_v2;
  event.owns_shape = true;
  event.shape = shape;
  event.call = number;
  event.window = window;
  event.thread = 3;
  event.begin = 100;
  event.end = 150;
  return event;
}

KernelEvent kernel(std::uint32_t owner, std::uint32_t shape, Nanoseconds time, std::uint32_t name = 9) {
  KernelEvent event;
  event.launch.known = true;
  event.launch.thread = 3;
  event.launch.owner = owner;
  event.launch.shape = shape;
  event.launch.window = 1;
  event.start = 1000;
  event.end = 1000 + time;
  event.name = name;
  return event;
}

}  // namespace

TEST_CASE("a shape has one number, whoever asks", "[shapes]") {
  ShapeTable table(1000);
  const std::uint32_t first = table.intern(product(5));
  CHECK(table.intern(product(5)) == first);
  CHECK(table.intern(product(6)) != first);
  CHECK(table.intern(ConvolutionShape{}) != table.intern(AttentionShape{}));
  CHECK(table.shape(first).as<GemmShape>().m == 5);
  CHECK(table.kind(first) == ShapeKind::kGemm);
  CHECK(table.shape(0).kind() == ShapeKind::kNone);
  CHECK(table.kind(999'999) == ShapeKind::kNone);
}

TEST_CASE("a full table of shapes counts what it can't take", "[shapes]") {
  ShapeTable table(20);
  for (std::int64_t m = 0; m < 100; ++m) {
    const std::uint32_t id = table.intern(product(m));
    CHECK((id == ShapeTable::kOther) == (m >= 18));
  }
  CHECK(table.overflows() == 82);
  CHECK(table.intern(product(3)) != ShapeTable::kOther);
}

TEST_CASE("shapes from many threads at once", "[shapes]") {
  ShapeTable table(4096);
  std::vector<std::vector<std::uint32_t>> ids(4, std::vector<std::uint32_t>(1000));
  std::vector<std::thread> threads;
  for (auto& mine : ids) {
    threads.emplace_back([&table, &mine] {
      for (std::size_t i = 0; i < mine.size(); ++i)
        mine[i] = table.intern(product(static_cast<std::int64_t>(i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : ids) CHECK(mine == ids[0]);
  for (std::size_t i = 0; i < 1000; ++i)
    CHECK(table.shape(ids[0][i]).as<GemmShape>().m == static_cast<std::int64_t>(i));
}

TEST_CASE("kernels belong to the call that they were launched in", "[shapes]") {
  CallShapeStatistics calls;
  calls.add(call(1, 7));
  calls.add(call(2, 7));
  calls.add(kernel(2, 7, 30));
  calls.add(kernel(1, 7, 10, 8));
  calls.add(kernel(2, 7, 5));
  calls.add(kernel(1, 0, 1000));  // without a shape
  calls.settle(1);
  const auto rows = calls.rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].calls == 2);
  CHECK(rows[0].kernels == 3);
  CHECK(rows[0].gpu.count == 2);
  CHECK(rows[0].gpu.sum == 45);
  CHECK(rows[0].gpu.smallest() == 10);
  CHECK(rows[0].gpu.max == 35);
  CHECK(rows[0].host.sum == 100);
  REQUIRE(rows[0].names.size() == 2);
  CHECK(rows[0].names[0].name == 9);
  CHECK(rows[0].names[0].count == 2);
}

TEST_CASE("rows can be read while kernels are still to come", "[shapes]") {
  CallShapeStatistics calls;
  calls.add(call(1, 7));
  CHECK(calls.rows().at(0).calls == 1);
  calls.add(kernel(1, 7, 10));
  CHECK(calls.rows().at(0).calls == 1);
  CHECK(calls.rows().at(0).gpu.sum == 10);
}

TEST_CASE("rows that were read once are read anew when something has come", "[shapes]") {
  StatsRun run;
  const std::uint32_t shape = run.shapes.intern(product(5));
  CHECK(run.statistics.call_shapes().empty());
  run.statistics.add(call(1, shape));
  REQUIRE(run.statistics.call_shapes().size() == 1);
  CHECK(run.statistics.call_shapes()[0].entry.calls == 1);
  CHECK(run.statistics.call_shapes()[0].entry.kernels == 0);
  run.statistics.add(kernel(1, shape, 70, run.names.intern("k")));
  CHECK(run.statistics.call_shapes()[0].entry.gpu.sum == 70);
  run.statistics.settle_window(1, 0, 5000);
  CHECK(run.statistics.call_shapes()[0].entry.gpu.sum == 70);
  run.statistics.add(call(2, shape, 2));
  CHECK(run.statistics.call_shapes()[0].entry.calls == 2);
  CHECK(&run.statistics.call_shapes() == &run.statistics.call_shapes());
}

TEST_CASE("a failed call, and one whose work was captured", "[shapes]") {
  CallShapeStatistics calls;
  CallEvent failed = call(1, 7);
  failed.status = 3;
  calls.add(failed);
  CallEvent launch = call(3, 7);
  launch.owns_shape = false;
  launch.captured = true;
  launch.owner = 2;
  calls.add(launch);  // arrives before the call around it
  CHECK(calls.is_captured(call(2, 7)));
  calls.add(call(2, 7));
  calls.add(call(4, 7));
  calls.settle(1);
  const auto row = calls.rows().at(0);
  CHECK(row.failed == 1);
  CHECK(row.calls == 2);
  CHECK(row.captured == 1);
}

TEST_CASE("calls of a later window are not settled with those of an earlier one", "[shapes]") {
  CallShapeStatistics calls;
  calls.add(call(1, 7, 1));
  calls.add(call(2, 7, 2));
  calls.settle(1);
  KernelEvent late = kernel(2, 7, 20);
  late.launch.window = 2;
  calls.add(late);
  calls.settle(2);
  const auto rows = calls.rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].calls == 2);
  CHECK(rows[0].gpu.sum == 20);
}

TEST_CASE("a kernel whose call's record was lost has a row without a function", "[shapes]") {
  CallShapeStatistics calls;
  calls.add(kernel(5, 7, 20));
  calls.settle(1);
  const auto row = calls.rows().at(0);
  CHECK(row.function == kNoFunction);
  CHECK(row.calls == 0);
  CHECK(row.gpu.sum == 20);
}

TEST_CASE("more calls at once than are kept, and more rows", "[shapes]") {
  CallShapeStatistics calls;
  constexpr std::uint32_t kCalls = CallShapeStatistics::kMaxCalls + 1000;
  for (std::uint32_t i = 0; i < kCalls; ++i)
    calls.add(call(i + 1, 2 + i % (CallShapeStatistics::kMaxRows + 5)));
  calls.settle(1);
  std::uint64_t sum = 0;
  const auto rows = calls.rows();
  for (const CallShapeEntry& row : rows) sum += row.calls;
  CHECK(sum == kCalls);
  REQUIRE(rows.size() == CallShapeStatistics::kMaxRows + 1);
}
