// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Random runs, counted a second time in the simplest way: the tables must agree with it and with each other.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

struct Count {
  std::vector<std::uint64_t> values;

  void add(std::uint64_t value) { values.push_back(value); }
  std::uint64_t sum() const {
    std::uint64_t total = 0;
    for (const std::uint64_t value : values) total += value;
    return total;
  }
};

void check_equal(const SampleStats& stats, Count count) {
  REQUIRE(stats.count() == count.values.size());
  REQUIRE(stats.sum() == count.sum());
  std::sort(count.values.begin(), count.values.end());
  REQUIRE(stats.min() == count.values.front());
  REQUIRE(stats.max() == count.values.back());
  const std::size_t n = count.values.size();
  const double median =
      (static_cast<double>(count.values[(n - 1) / 2]) + static_cast<double>(count.values[n / 2])) / 2;
  REQUIRE(stats.median() == Approx(median).epsilon(stats.median_error() + 1e-12));
  double mean = 0;
  for (const std::uint64_t value : count.values) mean += static_cast<double>(value) / static_cast<double>(n);
  double squares = 0;
  for (const std::uint64_t value : count.values) {
    squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  }
  const double deviation = n < 2 ? 0.0 : std::sqrt(squares / static_cast<double>(n - 1));
  REQUIRE(stats.stddev() == Approx(deviation).epsilon(1e-9).margin(1e-6));
}

std::uint64_t sum_of(const auto& rows) {
  std::uint64_t total = 0;
  for (const auto& row : rows) total += row.stats->sum();
  return total;
}

std::uint64_t count_of(const auto& rows) {
  std::uint64_t total = 0;
  for (const auto& row : rows) total += row.stats->count();
  return total;
}

}  // namespace

TEST_CASE("Tables of random runs agree with plain counting and with each other", "[stats]") {
  const unsigned seed = GENERATE(range(1u, 9u));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&random](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };

  StatsRun run;
  // A tree of ranges in which names and styles recur on different paths.
  std::vector<std::uint32_t> nodes{0};
  for (int i = 0; i < 30; ++i) {
    nodes.push_back(run.range(nodes[below(static_cast<std::uint32_t>(nodes.size()))],
                              "range " + std::to_string(below(6)),
                              below(4) == 0 ? RangeStyle::kStartEnd : RangeStyle::kPushPop));
  }
  const CallChain chains[] = {0,
                              chain_of({"cublasGemmEx"}),
                              chain_of({"cublasGemmEx", "cublasLtMatmul"}),
                              chain_of({"cublasLtMatmul"}),
                              chain_of({"cudaGraphLaunch"}),
                              chain_of({"cudnnBackendExecute", "cudaLaunchKernel"})};

  std::map<std::string, Count> kernels;
  std::map<std::tuple<std::string, int, int>, Count> shapes;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Count> threads;
  std::map<std::tuple<std::string, RangeStyle, std::uint32_t, std::string>, Count> range_kernels;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Count> windows;
  std::map<std::string, Count> operations;
  std::map<std::string, Count> sizes;
  std::map<std::string, Count> apis;
  std::map<std::pair<std::string, RangeStyle>, Count> ranges;
  std::uint64_t library_kernel_time = 0;
  std::uint64_t library_kernels = 0;
  std::uint64_t unattributed = 0;
  std::uint64_t library_calls = 0;

  for (int i = 0; i < 20'000; ++i) {
    Attribution launch;
    launch.known = below(10) != 0;
    launch.window = 1 + below(5);
    if (launch.known) {
      launch.thread = below(4);
      launch.range = nodes[below(static_cast<std::uint32_t>(nodes.size()))];
      launch.chain = chains[below(static_cast<std::uint32_t>(std::size(chains)))];
      launch.host_begin = static_cast<Nanoseconds>(i);
    }
    const Nanoseconds duration = 1 + below(1u << (4 + below(20)));
    switch (below(4)) {
      case 0:
      case 1: {
        const std::string name = "kernel " + std::to_string(below(50));
        KernelEvent event = run.kernel(name, duration);
        event.launch = launch;
        event.device = below(2);
        event.grid = {static_cast<int>(1 + below(4)), 1, 1};
        event.block = {static_cast<int>(32 * (1 + below(2))), 1, 1};
        event.registers_per_thread = 16 + below(2);
        run.statistics.add(event);
        kernels[name].add(duration);
        shapes[{name, event.grid[0], event.block[0]}].add(duration);
        const std::uint32_t thread = launch.known ? launch.thread : kNoIndex;
        threads[{thread, event.device}].add(duration);
        windows[{launch.window, event.device}].add(duration);
        if (!launch.known) ++unattributed;
        std::set<std::pair<std::string, RangeStyle>> around;
        for (std::uint32_t node = launch.range; node != 0; node = run.tree.node(node).parent) {
          around.emplace(run.names.name(run.tree.node(node).name), run.tree.node(node).style);
        }
        if (around.empty()) range_kernels[{"", RangeStyle::kPushPop, thread, name}].add(duration);
        for (const auto& [range, style] : around) range_kernels[{range, style, thread, name}].add(duration);
        for (unsigned level = 0; level < chain_depth(launch.chain); ++level) {
          if (!is_library_function(chain_at(launch.chain, level))) continue;
          library_kernel_time += duration;
          ++library_kernels;
          break;
        }
        break;
      }
      case 2: {
        TransferEvent event = copy_event(static_cast<std::uint8_t>(1 + below(10)), below(1 << 30), duration);
        event.memset = below(5) == 0;
        event.launch = launch;
        event.device = below(2);
        run.statistics.add(event);
        operations[std::string(operation_name(event))].add(duration);
        sizes[std::string(operation_name(event))].add(event.bytes);
        if (!launch.known) ++unattributed;
        break;
      }
      default: {
        const char* const names[] = {"cudaLaunchKernel", "cudaMemcpyAsync", "cublasLtMatmul", "cudaMalloc"};
        const std::string name = names[below(4)];
        CallEvent event = call_event(name, duration, launch.chain);
        event.window = launch.window;
        run.statistics.add(event);
        if (is_library_function(event.function)) {
          ++library_calls;
        } else {
          apis[name].add(duration);
        }
        if (below(3) == 0) {
          const std::uint32_t node = nodes[1 + below(30)];
          run.add_range(node, static_cast<Nanoseconds>(i), static_cast<Nanoseconds>(i) + duration, below(4));
          ranges[{std::string(run.names.name(run.tree.node(node).name)), run.tree.node(node).style}].add(
              duration);
        }
      }
    }
  }

  const auto kernel_rows = run.statistics.kernels();
  REQUIRE(kernel_rows.size() == kernels.size());
  for (const TimeRow& row : kernel_rows) check_equal(*row.stats, kernels.at(std::string(row.name)));
  const auto shape_rows = run.statistics.kernel_shapes();
  REQUIRE(shape_rows.size() == shapes.size());
  for (const ShapeRow& row : shape_rows) {
    check_equal(*row.stats, shapes.at({std::string(row.name), row.grid[0], row.block[0]}));
  }
  const auto thread_rows = run.statistics.threads();
  REQUIRE(thread_rows.size() == threads.size());
  for (const ThreadRow& row : thread_rows) check_equal(*row.stats, threads.at({row.thread, row.device}));
  const auto range_kernel_rows = run.statistics.range_kernels();
  REQUIRE(range_kernel_rows.size() == range_kernels.size());
  for (const RangeKernelRow& row : range_kernel_rows) {
    const RangeStyle style = row.in_range ? row.style : RangeStyle::kPushPop;
    check_equal(*row.stats,
                range_kernels.at({std::string(row.range), style, row.thread, std::string(row.kernel)}));
    REQUIRE(row.range_instances <= row.stats->count());
  }
  const auto operation_rows = run.statistics.operation_times();
  REQUIRE(operation_rows.size() == operations.size());
  for (const TimeRow& row : operation_rows) check_equal(*row.stats, operations.at(std::string(row.name)));
  for (const TimeRow& row : run.statistics.operation_sizes())
    check_equal(*row.stats, sizes.at(std::string(row.name)));
  const auto api_rows = run.statistics.api_calls();
  REQUIRE(api_rows.size() == apis.size());
  for (const TimeRow& row : api_rows) check_equal(*row.stats, apis.at(std::string(row.name)));
  const auto range_rows = run.statistics.ranges();
  REQUIRE(range_rows.size() == ranges.size());
  for (const RangeRow& row : range_rows)
    check_equal(*row.stats, ranges.at({std::string(row.name), row.style}));

  // The same work in every table.
  const DeviceWork device = run.statistics.device_total();
  const HostWork host = run.statistics.host_total();
  CHECK(device.unattributed == unattributed);
  for (const std::uint64_t sum : {sum_of(kernel_rows), sum_of(shape_rows), sum_of(thread_rows)}) {
    CHECK(sum == device.kernels.sum);
  }
  for (const std::uint64_t count : {count_of(kernel_rows), count_of(shape_rows), count_of(thread_rows)}) {
    CHECK(count == device.kernels.count);
  }
  std::uint64_t detail_time = 0;
  std::uint64_t detail_count = 0;
  for (const DetailRow& row : run.statistics.kernel_details()) {
    detail_time += row.time.sum;
    detail_count += row.time.count;
  }
  CHECK(detail_time == device.kernels.sum);
  CHECK(detail_count == device.kernels.count);
  CHECK(sum_of(operation_rows) == device.copy_time + device.memset_time);
  CHECK(count_of(operation_rows) == device.copies + device.memsets);
  CHECK(sum_of(run.statistics.operation_sizes()) == device.copy_bytes + device.memset_bytes);
  CHECK(sum_of(api_rows) == host.api_time);
  CHECK(count_of(api_rows) == host.api_calls);
  CHECK(count_of(range_rows) == host.ranges);
  CHECK(host.library_calls == library_calls);
  std::uint64_t window_kernels = 0;
  for (const WindowDeviceRow& row : run.statistics.window_devices()) {
    const auto found = windows.find({row.window, row.device});
    if (found != windows.end()) CHECK(row.work.kernels.sum == found->second.sum());
    window_kernels += row.work.kernels.count;
  }
  CHECK(window_kernels == device.kernels.count);
  std::uint64_t own_time = 0;
  std::uint64_t own_kernels = 0;
  std::uint64_t outer_time = 0;
  std::uint64_t calls = 0;
  for (const LibraryRow& row : run.statistics.library_calls()) {
    own_time += row.self.kernels.sum;
    own_kernels += row.self.kernels.count;
    if (row.depth == 0) outer_time += row.inclusive.kernels.sum;
    calls += row.host.count;
  }
  CHECK(own_time == library_kernel_time);
  CHECK(own_kernels == library_kernels);
  CHECK(outer_time == library_kernel_time);
  CHECK(calls == library_calls);
}
