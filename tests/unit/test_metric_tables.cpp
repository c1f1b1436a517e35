// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/metric_tables.h"

#include <limits>

#include "libinject/analysis/measured_roofline.h"
#include "tests/unit/stats_run.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

constexpr Nanoseconds kInterval = 10'000;

const TableFile& table_named(std::string_view name) {
  for (const TableFile& table : table_files()) {
    if (table.name == name) return table;
  }
  FAIL("no table " << name);
  return table_files().front();
}

std::string rows_of(std::string_view name, const Statistics& statistics, const RunInfo& info = {}) {
  const std::string text = table_text(table_named(name), statistics, info);
  return text.substr(text.find('\n') + 1);
}

std::string header_named(std::string_view name, const Statistics& statistics) {
  return header_of(table_named(name), statistics);
}

void set_metrics(Statistics& statistics) {
  statistics.set_metrics({{"sm", "SM Active (%)", Quantity::kSmActive},
                          {"fma", "FMA (%)", Quantity::kFma},
                          {"ipc", "IPC", Quantity::kIpc},
                          {"tensor", "Tensor (%)", Quantity::kTensor},
                          {"user", "a, b", Quantity::kUser}});
}

/// 100 samples: 60 in the first kernel, 40 while nothing runs.
void add_samples(Statistics& statistics, std::uint32_t device = 0) {
  for (Nanoseconds i = 0; i <= 100; ++i) {
    MetricSample sample;
    sample.start = i * kInterval;
    sample.end = sample.start + kInterval;
    sample.device = device;
    sample.window = i < 100 ? 1 : 0;
    sample.values.fill(std::numeric_limits<float>::quiet_NaN());
    const bool runs = i < 60;
    sample.values[0] = runs ? 95 : 0;
    sample.values[1] = runs ? 20 : 0;
    sample.values[2] = runs ? 2.5F : 0.0F;
    sample.values[3] = runs ? 50 : 0;
    statistics.add(sample);
  }
}

KernelEvent long_kernel(StatsRun& run) {
  KernelEvent event = run.kernel("void gemm<float, 4>(float*)", 0);
  event.start = 0;
  event.end = 60 * kInterval;
  event.grid = {4, 2, 1};
  event.block = {128, 1, 1};
  return event;
}

RunInfo one_window() {
  RunInfo info;
  WindowInfo window;
  window.number = 1;
  window.reason = "api";
  window.state = WindowState::kClosed;
  window.start = 0;
  window.end = 100 * kInterval;
  info.windows = {window};
  return info;
}

}  // namespace

TEST_CASE("Without metrics there is no table of them, and no column", "[output][metrics]") {
  StatsRun run;
  run.statistics.add(run.kernel("k", 100));
  CHECK_FALSE(takes_metrics(run.statistics));
  CHECK_FALSE(is_wanted(table_named("kernel_metrics.csv"), run.statistics));
  CHECK(header_named("window_sum.csv", run.statistics) == table_named("window_sum.csv").header);
  CHECK(run.statistics.kernel_metrics().empty());
}

TEST_CASE("Kernel metrics rows", "[output][metrics]") {
  StatsRun run;
  set_metrics(run.statistics);
  add_samples(run.statistics);
  KernelEvent event = long_kernel(run);
  run.statistics.add(event);
  // Ran in no sample at all.
  event = run.kernel("late", 0);
  event.start = 300 * kInterval;
  event.end = event.start + 500;
  run.statistics.add(event);
  run.statistics.settle_window(1, 0, 100 * kInterval);
  CHECK(header_named("kernel_metrics.csv", run.statistics) ==
        "Device,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Total Time (ns),Instances,Samples,Shared (%),Reliable,"
        "SM Active (%),± SM Active (%),FMA (%),± FMA (%),IPC,± IPC,Tensor (%),± Tensor (%),"
        "\"a, b\",\"± a, b\",Name");
  CHECK(rows_of("kernel_metrics.csv", run.statistics) ==
        "0,4,2,1,128,1,1,600000,1,60,0.0,yes,95.00,0.00,20.00,0.00,2.50,0.00,50.00,0.00,,,"
        "\"void gemm<float, 4>(float*)\"\n"
        "0,1,1,1,32,1,1,500,1,0,,no,,,,,,,,,,,late\n");
}

TEST_CASE("Values that are no facts are not in the rows", "[output][metrics]") {
  StatsRun run;
  run.statistics.set_metrics({{"sm", "SM Active (%)", Quantity::kSmActive}});
  add_samples(run.statistics);
  KernelEvent event = run.kernel("brief", 0);
  event.start = 2000;
  event.end = event.start + 5 * kInterval;
  run.statistics.add(event);
  run.statistics.settle_window(1, 0, 100 * kInterval);
  CHECK(rows_of("kernel_metrics.csv", run.statistics) == "0,1,1,1,32,1,1,50000,1,6,0.0,no,,,brief\n");
}

TEST_CASE("Kernels of many shapes share a row of metrics without a shape", "[output][metrics]") {
  StatsRun run;
  run.statistics.set_metrics({{"sm", "SM Active (%)", Quantity::kSmActive}});
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(Statistics::kMaxRows) + 2; ++i) {
    KernelEvent event = run.kernel("k", 10);
    event.grid[0] = i + 1;
    event.device = static_cast<std::uint32_t>(i % 2);
    run.statistics.add(event);
  }
  const std::string rows = rows_of("kernel_metrics.csv", run.statistics);
  CHECK(rows.find(",,,,,,,20,2,0,,no,,,[other]\n") == 0);
}

TEST_CASE("A window's metrics: per device, and of all of them", "[output][metrics]") {
  StatsRun run;
  set_metrics(run.statistics);
  add_samples(run.statistics);
  run.statistics.add(long_kernel(run));
  // Of a device that is not sampled.
  KernelEvent other = run.kernel("k", 100);
  other.device = 1;
  run.statistics.add(other);
  const std::string columns =
      ",SM Active (%),FMA (%),IPC,Tensor (%),\"a, b\",FP32 Utilization (%),"
      "Tensor Utilization (%)";
  const std::string header = header_named("window_sum.csv", run.statistics);
  CHECK(header == std::string(table_named("window_sum.csv").header) + columns);
  const auto last_cells = [&](std::size_t line) {
    const std::string rows = rows_of("window_sum.csv", run.statistics, one_window());
    std::size_t begin = 0;
    for (std::size_t i = 0; i < line; ++i) begin = rows.find('\n', begin) + 1;
    std::string row = rows.substr(begin, rows.find('\n', begin) - begin);
    std::size_t at = row.size();
    for (int i = 0; i < 7; ++i) at = row.rfind(',', at - 1);
    return row.substr(at);
  };
  // Kernels have no figures before the window is settled.
  CHECK(last_cells(0) == ",57.00,12.00,1.50,30.00,,,");
  run.statistics.settle_window(1, 0, 100 * kInterval);
  CHECK(last_cells(0) == ",57.00,12.00,1.50,30.00,,12.00,30.00");
  CHECK(last_cells(1) == ",57.00,12.00,1.50,30.00,,12.00,30.00");
  CHECK(last_cells(2) == ",,,,,,,");
}

TEST_CASE("The table of kernel metrics is written where they are taken", "[output][metrics]") {
  const TemporaryFolder folder;
  StatsRun run;
  run.statistics.add(run.kernel("k", 100));
  CHECK(write_all(folder.path(), run.statistics, one_window()).empty());
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/kernel_metrics.csv"));
  set_metrics(run.statistics);
  CHECK(write_all(folder.path(), run.statistics, one_window()).empty());
  CHECK(folder.read("kernel_metrics.csv") == header_named("kernel_metrics.csv", run.statistics) + "\n");
}

TEST_CASE("Roofline of what was measured", "[metrics]") {
  DeviceSpecs device;  // an H200: 67 TFLOP/s in fp32, 4.8 TB/s
  device.major = 9;
  device.multiprocessors = 132;
  device.clock_khz = 1'980'000;
  device.memory_clock_khz = 3'201'000;
  device.bus_bits = 6144;
  const double bandwidth = *peak_bandwidth(device);
  const double peak = *peak_flops(device, Arithmetic::kFp32);

  SECTION("bound by memory") {
    // Half of the bandwidth for 1 ms, one operation a byte.
    const auto place = measured_roofline(1e-3, 50, bandwidth / 2 * 1e-3, Arithmetic::kFp32, device);
    REQUIRE(place);
    CHECK(place->bytes == Approx(bandwidth / 2 * 1e-3));
    CHECK(place->bandwidth == Approx(bandwidth / 2));
    CHECK(place->roof.intensity == Approx(1));
    CHECK(place->roof.bound == Bound::kMemory);
    CHECK(*place->share == Approx(0.5));
  }
  SECTION("bound by computing") {
    const auto place = measured_roofline(2e-3, 10, 0.8 * peak * 2e-3, Arithmetic::kFp32, device);
    REQUIRE(place);
    CHECK(place->rate == Approx(0.8 * peak));
    CHECK(place->roof.bound == Bound::kCompute);
    CHECK(place->roof.attainable == Approx(peak));
    CHECK(*place->share == Approx(0.8));
  }
  SECTION("all in the caches") {
    const auto place = measured_roofline(1e-3, 0, 0.25 * peak * 1e-3, Arithmetic::kFp32, device);
    REQUIRE(place);
    CHECK(place->roof.bound == Bound::kCompute);
    CHECK(*place->share == Approx(0.25));
  }
  SECTION("operations are not known") {
    const auto place = measured_roofline(1e-3, 70, 0, {}, device);
    REQUIRE(place);
    CHECK(place->rate == 0);
    CHECK(place->roof.bound == Bound::kUnknown);
    CHECK(*place->share == Approx(0.7));
  }
  SECTION("their peak is not known") {
    const auto place = measured_roofline(1e-3, 70, 1e9, {}, device);
    REQUIRE(place);
    CHECK(place->rate == Approx(1e12));
    CHECK(place->roof.bound == Bound::kUnknown);
    CHECK_FALSE(place->share.has_value());
  }
  SECTION("nothing to go by") {
    CHECK_FALSE(measured_roofline(0, 50, 1e9, Arithmetic::kFp32, device));
    CHECK_FALSE(measured_roofline(1e-3, {}, 1e9, Arithmetic::kFp32, device));
    CHECK_FALSE(measured_roofline(1e-3, std::numeric_limits<double>::quiet_NaN(), 1e9, {}, device));
    CHECK_FALSE(measured_roofline(1e-3, 50, 1e9, Arithmetic::kFp32, DeviceSpecs{}));
  }
}
