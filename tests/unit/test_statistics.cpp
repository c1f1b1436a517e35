// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/statistics.h"

#include "tests/unit/stats_run.h"

using namespace inject;

TEST_CASE("Kernels by name, largest total first", "[stats]") {
  StatsRun run;
  run.statistics.add(run.kernel("b", 100));
  run.statistics.add(run.kernel("a", 30));
  run.statistics.add(run.kernel("a", 70));
  run.statistics.add(run.kernel("c", 400));
  const auto rows = run.statistics.kernels();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].name == "c");
  CHECK(rows[1].name == "a");  // as long as b, and before it by name
  CHECK(rows[2].name == "b");
  CHECK(rows[1].stats->count() == 2);
  CHECK(rows[1].stats->sum() == 100);
  CHECK(rows[1].stats->min() == 30);
  CHECK(rows[1].stats->max() == 70);
  CHECK(rows[1].stats->median() == 50);
}

TEST_CASE("Kernels by launch shape and by all launch parameters", "[stats]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 10);
  event.grid = {4, 2, 1};
  event.block = {128, 1, 1};
  event.registers_per_thread = 32;
  event.static_shared_bytes = 1024;
  event.dynamic_shared_bytes = 0;
  event.local_bytes_per_thread = 8;
  run.statistics.add(event);
  event.dynamic_shared_bytes = 4096;
  event.end += 5;
  run.statistics.add(event);
  run.statistics.add(event);
  event.device = 1;
  run.statistics.add(event);
  event.grid = {4, 2, 3};
  run.statistics.add(event);

  const auto shapes = run.statistics.kernel_shapes();
  REQUIRE(shapes.size() == 2);
  CHECK(shapes[0].grid == std::array<std::int32_t, 3>{4, 2, 1});
  CHECK(shapes[0].block == std::array<std::int32_t, 3>{128, 1, 1});
  CHECK(shapes[0].stats->count() == 4);
  CHECK(shapes[0].stats->sum() == 10 + 3 * 15);
  CHECK(shapes[1].grid == std::array<std::int32_t, 3>{4, 2, 3});
  CHECK(shapes[1].stats->count() == 1);

  const auto details = run.statistics.kernel_details();
  REQUIRE(details.size() == 4);
  CHECK(details[0].time.count == 2);
  CHECK(details[0].dynamic_shared_bytes == 4096);
  CHECK(details[0].registers_per_thread == 32);
  CHECK(details[0].static_shared_bytes == 1024);
  CHECK(details[0].local_bytes_per_thread == 8);
  CHECK(details[1].device == 1);
  CHECK(details[1].grid[2] == 1);
  CHECK(details[2].device == 1);
  CHECK(details[2].grid[2] == 3);
  CHECK(details[3].time.sum == 10);
}

TEST_CASE("Operations are named as Nsight Systems names them", "[stats]") {
  CHECK(operation_name(copy_event(1, 0, 0)) == "[CUDA memcpy Host-to-Device]");
  CHECK(operation_name(copy_event(2, 0, 0)) == "[CUDA memcpy Device-to-Host]");
  CHECK(operation_name(copy_event(3, 0, 0)) == "[CUDA memcpy Host-to-Array]");
  CHECK(operation_name(copy_event(4, 0, 0)) == "[CUDA memcpy Array-to-Host]");
  CHECK(operation_name(copy_event(5, 0, 0)) == "[CUDA memcpy Array-to-Array]");
  CHECK(operation_name(copy_event(6, 0, 0)) == "[CUDA memcpy Array-to-Device]");
  CHECK(operation_name(copy_event(7, 0, 0)) == "[CUDA memcpy Device-to-Array]");
  CHECK(operation_name(copy_event(8, 0, 0)) == "[CUDA memcpy Device-to-Device]");
  CHECK(operation_name(copy_event(9, 0, 0)) == "[CUDA memcpy Host-to-Host]");
  CHECK(operation_name(copy_event(10, 0, 0)) == "[CUDA memcpy Peer-to-Peer]");
  CHECK(operation_name(copy_event(0, 0, 0)) == "[CUDA memcpy Unknown]");
  CHECK(operation_name(copy_event(200, 0, 0)) == "[CUDA memcpy Unknown]");
  TransferEvent peer = copy_event(0, 0, 0);
  peer.peer = true;
  CHECK(operation_name(peer) == "[CUDA memcpy Peer-to-Peer]");
  CHECK(operation_name(memset_event(0, 0)) == "[CUDA memset]");
}

TEST_CASE("Copies and memsets by time and by size", "[stats]") {
  StatsRun run;
  run.statistics.add(copy_event(1, 1000, 10));
  run.statistics.add(copy_event(1, 3000, 20));
  run.statistics.add(copy_event(2, 100, 400));
  run.statistics.add(memset_event(9000, 5));

  const auto times = run.statistics.operation_times();
  REQUIRE(times.size() == 3);
  CHECK(times[0].name == "[CUDA memcpy Device-to-Host]");
  CHECK(times[1].name == "[CUDA memcpy Host-to-Device]");
  CHECK(times[1].stats->sum() == 30);
  CHECK(times[2].name == "[CUDA memset]");
  const auto sizes = run.statistics.operation_sizes();
  REQUIRE(sizes.size() == 3);
  CHECK(sizes[0].name == "[CUDA memset]");
  CHECK(sizes[1].name == "[CUDA memcpy Host-to-Device]");
  CHECK(sizes[1].stats->sum() == 4000);
  CHECK(sizes[1].stats->count() == 2);
  CHECK(sizes[2].stats->sum() == 100);

  const DeviceWork total = run.statistics.device_total();
  CHECK(total.copies == 3);
  CHECK(total.copy_time == 430);
  CHECK(total.copy_bytes == 4100);
  CHECK(total.memsets == 1);
  CHECK(total.memset_time == 5);
  CHECK(total.memset_bytes == 9000);
  CHECK(total.kernels.count == 0);
}

TEST_CASE("API calls: runtime and driver, without library calls", "[stats]") {
  StatsRun run;
  set_driver_function_name(static_cast<FunctionId>(kDriverFunction | 307), "cuLaunchKernel");
  run.statistics.add(call_event("cudaLaunchKernel", 10));
  run.statistics.add(call_event("cudaLaunchKernel", 30));
  run.statistics.add(call_event("cublasSgemm_v2", 1000));
  run.statistics.add(call_event("cudaMalloc", 500, chain_of({"cublasSgemm_v2"})));
  CallEvent driver = call_event("cudaMalloc", 7);
  driver.function = static_cast<FunctionId>(kDriverFunction | 307);
  driver.correlation = 12;
  run.statistics.add(driver);
  const auto rows = run.statistics.api_calls();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].name == "cudaMalloc");
  CHECK(rows[1].name == "cudaLaunchKernel");
  CHECK(rows[1].stats->count() == 2);
  CHECK(rows[1].stats->sum() == 40);
  CHECK(rows[2].name == "cuLaunchKernel");

  const HostWork total = run.statistics.host_total();
  CHECK(total.api_calls == 4);
  CHECK(total.api_time == 547);
  CHECK(total.library_calls == 1);
  CHECK(total.submissions == 1);

  // Calls that failed, or were captured into a graph, gave the device no work.
  driver.status = 719;
  run.statistics.add(driver);
  driver.status = 0;
  driver.captured = true;
  run.statistics.add(driver);
  CHECK(run.statistics.host_total().api_calls == 6);
  CHECK(run.statistics.host_total().submissions == 1);
}

TEST_CASE("Library calls by path: own work adds up, nested work is in the outer call's", "[stats]") {
  StatsRun run;
  run.statistics.add(call_event("cublasGemmEx", 100));
  run.statistics.add(call_event("cublasLtMatmul", 80, chain_of({"cublasGemmEx"})));
  run.statistics.add(call_event("cublasLtMatmul", 60));
  CallEvent failed = call_event("cublasLtMatmul", 20);
  failed.status = 7;
  run.statistics.add(failed);

  KernelEvent gemm = run.kernel("gemm", 1000);
  gemm.launch.chain = chain_of({"cublasGemmEx", "cublasLtMatmul"});
  run.statistics.add(gemm);
  run.statistics.add(gemm);
  KernelEvent scale = run.kernel("scale", 50);
  scale.launch.chain = chain_of({"cublasGemmEx"});
  run.statistics.add(scale);
  KernelEvent matmul = run.kernel("gemm", 300);
  // Runtime calls in between are not part of the path.
  matmul.launch.chain = chain_of({"cudaGraphLaunch", "cublasLtMatmul", "cudaLaunchKernelExC"});
  run.statistics.add(matmul);
  run.statistics.add(run.kernel("own", 9999));
  TransferEvent transfer = copy_event(8, 64, 5);
  transfer.launch.chain = chain_of({"cublasGemmEx"});
  run.statistics.add(transfer);

  const auto rows = run.statistics.library_calls();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].path == "cublasGemmEx");
  CHECK(rows[0].group == FunctionGroup::kCublas);
  CHECK(rows[0].depth == 0);
  CHECK(rows[0].host.count == 1);
  CHECK(rows[0].host.sum == 100);
  CHECK(rows[0].self.kernels.sum == 50);
  CHECK(rows[0].self.copies == 1);
  CHECK(rows[0].inclusive.kernels.sum == 2050);
  CHECK(rows[0].inclusive.kernels.count == 3);
  CHECK(rows[0].inclusive.copies == 1);
  CHECK(rows[1].path == "cublasGemmEx > cublasLtMatmul");
  CHECK(rows[1].group == FunctionGroup::kCublasLt);
  CHECK(rows[1].depth == 1);
  CHECK(rows[1].self.kernels.sum == 2000);
  CHECK(rows[1].inclusive.kernels.sum == 2000);
  CHECK(rows[2].path == "cublasLtMatmul");
  CHECK(rows[2].host.count == 2);
  CHECK(rows[2].failed == 1);
  CHECK(rows[2].self.kernels.sum == 300);

  std::uint64_t library_time = 0;
  for (const LibraryRow& row : rows) library_time += row.self.kernels.sum;
  CHECK(library_time == 2350);
}

TEST_CASE("The outer call has a row even if its own record was lost", "[stats]") {
  StatsRun run;
  KernelEvent gemm = run.kernel("gemm", 10);
  gemm.launch.chain = chain_of({"cublasGemmEx", "cublasLtMatmul"});
  run.statistics.add(gemm);
  const auto rows = run.statistics.library_calls();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].path == "cublasGemmEx");
  CHECK(rows[0].host.count == 0);
  CHECK(rows[0].inclusive.kernels.count == 1);
  CHECK(rows[0].self.kernels.count == 0);
}

TEST_CASE("A kernel that a library function submitted itself", "[stats]") {
  StatsRun run;
  KernelEvent event = run.kernel("collective", 10);
  event.launch.function = find_function("ncclAllReduce");
  run.statistics.add(event);
  const auto rows = run.statistics.library_calls();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].path == "ncclAllReduce");
  CHECK(rows[0].self.kernels.sum == 10);
}

TEST_CASE("Kernels by launching thread and device", "[stats]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 10);
  event.launch.thread = 3;
  run.statistics.add(event);
  run.statistics.add(event);
  event.device = 1;
  run.statistics.add(event);
  event.launch = {};
  run.statistics.add(event);
  const auto rows = run.statistics.threads();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].thread == 3);
  CHECK(rows[0].device == 0);
  CHECK(rows[0].stats->count() == 2);
  CHECK(rows[1].thread == 3);
  CHECK(rows[1].device == 1);
  CHECK(rows[2].thread == kNoIndex);
}

TEST_CASE("Windows: by device for device work, once for the host's", "[stats]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 10);
  run.statistics.add(event);
  event.device = 1;
  run.statistics.add(event);
  event.launch.window = 2;
  event.launch.known = false;
  run.statistics.add(event);
  CallEvent host = call_event("cudaLaunchKernel", 5);
  host.correlation = 4;
  run.statistics.add(host);
  run.add_range(run.range(0, "step"), 0, 100, 0, true);

  const auto devices = run.statistics.window_devices();
  REQUIRE(devices.size() == 3);
  CHECK(devices[0].window == 1);
  CHECK(devices[0].device == 0);
  CHECK(devices[0].work.unattributed == 0);
  CHECK(devices[1].device == 1);
  CHECK(devices[2].window == 2);
  CHECK(devices[2].work.unattributed == 1);
  const auto hosts = run.statistics.window_hosts();
  REQUIRE(hosts.size() == 1);
  CHECK(hosts[0].window == 1);
  CHECK(hosts[0].work.api_calls == 1);
  CHECK(hosts[0].work.submissions == 1);
  CHECK(hosts[0].work.ranges == 1);
  CHECK(hosts[0].work.clipped_ranges == 1);
}

TEST_CASE("Ranges by name and style", "[stats]") {
  StatsRun run;
  const std::uint32_t step = run.range(0, "step");
  const std::uint32_t forward = run.range(step, "forward");
  run.add_range(forward, 10, 30);
  run.add_range(step, 0, 100);
  run.add_range(run.range(0, "forward"), 200, 210);  // the same name, another path
  run.add_range(run.range(0, "forward", RangeStyle::kStartEnd), 200, 201);
  const auto rows = run.statistics.ranges();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].name == "step");
  CHECK(rows[1].name == "forward");
  CHECK(rows[1].style == RangeStyle::kPushPop);
  CHECK(rows[1].stats->count() == 2);
  CHECK(rows[1].stats->sum() == 30);
  CHECK(rows[2].style == RangeStyle::kStartEnd);
}

TEST_CASE("A kernel counts once in every range around its launch", "[stats]") {
  StatsRun run;
  const std::uint32_t step = run.range(0, "step");
  const std::uint32_t forward = run.range(step, "forward");
  const std::uint32_t again = run.range(forward, "step");  // nested in a range with the same name
  KernelEvent event = run.kernel("k", 10);
  event.launch.thread = 1;
  event.launch.host_begin = 50;
  event.launch.range = forward;
  run.statistics.add(event);
  event.launch.range = again;
  run.statistics.add(event);
  event.launch.range = step;
  run.statistics.add(event);
  event.launch.range = 0;
  run.statistics.add(event);

  const auto rows = run.statistics.range_kernels();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].range.empty());
  CHECK_FALSE(rows[0].in_range);
  CHECK(rows[0].stats->count() == 1);
  CHECK(rows[1].range == "forward");
  CHECK(rows[1].kernel == "k");
  CHECK(rows[1].thread == 1);
  CHECK(rows[1].stats->count() == 2);
  CHECK(rows[2].range == "step");
  CHECK(rows[2].stats->count() == 3);
}

TEST_CASE("Without any range there is no table of kernels by range", "[stats]") {
  StatsRun run;
  run.statistics.add(run.kernel("k", 10));
  CHECK(run.statistics.range_kernels().empty());
  run.add_range(run.range(0, "late"), 0, 1);
  REQUIRE(run.statistics.range_kernels().size() == 1);
  CHECK(run.statistics.range_kernels()[0].stats->count() == 1);
}

TEST_CASE("Range instances are counted by the ends of those before", "[stats]") {
  StatsRun run;
  const std::uint32_t step = run.range(0, "step");
  const auto launch = [&](Nanoseconds at, std::string_view name) {
    KernelEvent event = run.kernel(name, 10);
    event.launch.range = step;
    event.launch.host_begin = at;
    run.statistics.add(event);
  };
  // Instances [100, 200], [300, 400], [500, 600] and an open one from 700 on. Records arrive late and out of
  // order.
  launch(110, "a");
  run.add_range(step, 100, 200);
  launch(120, "a");
  launch(310, "a");
  launch(130, "b");
  run.add_range(step, 300, 400);
  run.add_range(step, 500, 600);
  launch(320, "a");
  launch(510, "a");
  launch(520, "b");
  launch(710, "a");
  launch(115, "a");
  launch(590, "a");
  const auto rows = run.statistics.range_kernels();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].kernel == "a");
  CHECK(rows[0].range_instances == 4);
  CHECK(rows[0].stats->count() == 8);
  CHECK(rows[1].kernel == "b");
  CHECK(rows[1].range_instances == 2);
}

TEST_CASE("Range instances over a long run with late records", "[stats]") {
  StatsRun run;
  const std::uint32_t epoch = run.range(0, "epoch");
  const std::uint32_t step = run.range(epoch, "step");
  constexpr std::uint64_t kSteps = 40'000;
  constexpr std::uint64_t kLate = 50;  // steps between a launch and its record
  for (std::uint64_t i = 0; i < kSteps + kLate; ++i) {
    if (i < kSteps) run.add_range(step, i * 100, i * 100 + 90);
    if (i < kLate) continue;
    KernelEvent event = run.kernel("k", 10);
    event.launch.range = step;
    event.launch.host_begin = (i - kLate) * 100 + 10;
    run.statistics.add(event);
  }
  const auto rows = run.statistics.range_kernels();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].range == "epoch");
  CHECK(rows[0].range_instances == 1);
  CHECK(rows[1].range == "step");
  CHECK(rows[1].range_instances == kSteps);
}

TEST_CASE("Tables are bounded, what does not fit is in [other]", "[stats]") {
  StatsRun run;
  constexpr std::uint32_t kKernels = Statistics::kMaxRows + 500;
  const std::uint32_t step = run.range(0, "step");
  for (std::uint32_t i = 0; i < kKernels; ++i) {
    KernelEvent event = run.kernel("kernel " + std::to_string(i), 1000);
    event.launch.range = step;
    event.launch.window = i;
    run.statistics.add(event);
    run.add_range(run.range(0, "range " + std::to_string(i)), 0, 10);
  }
  const auto check = [&](const auto& rows) {
    REQUIRE(rows.size() == Statistics::kMaxRows + 1);
    std::uint64_t count = 0;
    bool other = false;
    for (const auto& row : rows) {
      count += row.stats->count();
      if constexpr (requires { row.kernel; }) {
        other = other || row.kernel == "[other]";
      } else {
        other = other || (row.name == "[other]" && row.stats->count() == 500);
      }
    }
    CHECK(other);
    CHECK(count == kKernels);
  };
  check(run.statistics.kernels());
  check(run.statistics.kernel_shapes());
  check(run.statistics.range_kernels());
  // The 9,999 that fit beside "step", which was the first one named by kernels.
  const auto ranges = run.statistics.ranges();
  std::uint64_t count = 0;
  for (const auto& row : ranges) count += row.stats->count();
  CHECK(count == kKernels);
  CHECK(ranges.size() == Statistics::kMaxRows);
  const auto details = run.statistics.kernel_details();
  REQUIRE(details.size() == Statistics::kMaxRows + 1);
  std::uint64_t detail_time = 0;
  for (const DetailRow& row : details) detail_time += row.time.sum;
  CHECK(detail_time == kKernels * 1000u);
  CHECK(run.statistics.window_devices().size() == Statistics::kMaxRows + 1);
  CHECK(run.statistics.window_devices().back().window == kOtherIndex);
  CHECK(run.statistics.device_total().kernels.count == kKernels);
}

TEST_CASE("Kernels whose name found no room are one row with those beyond the table's bound", "[stats]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 10);
  event.name = NameTable::kOther;
  run.statistics.add(event);
  const auto rows = run.statistics.kernels();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].name == "[other]");
}

TEST_CASE("Damaged events do no harm", "[stats]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 10);
  event.end = event.start - 1;
  event.launch.range = 99'999;  // no such node
  event.launch.thread = 0xfffffff0;
  event.grid = {-1, 0, 2147483647};
  run.statistics.add(event);
  RangeEvent range;
  range.node = 77'777;
  range.begin = 10;
  range.end = 5;
  run.statistics.add(range);
  CallEvent unknown;
  unknown.function = 0x7fff;
  unknown.begin = 9;
  run.statistics.add(unknown);
  CHECK(run.statistics.kernels()[0].stats->sum() == 0);
  CHECK(run.statistics.range_kernels().size() <= 2);
  CHECK(run.statistics.api_calls().size() == 1);
}
