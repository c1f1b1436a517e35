// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/metric_columns.h"

#include <limits>

#include "libinject/analysis/measured_roofline.h"
#include "libinject/output/table_files.h"
#include "libinject/report/device_specs.h"
#include "tests/unit/devices.h"
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
  const std::string text = table_text(table_named(name), build_report(statistics, info));
  return text.substr(text.find('\n') + 1);
}

std::string header_named(std::string_view name, const Statistics& statistics) {
  const RunInfo info;
  return header_of(table_named(name), build_report(statistics, info));
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
  CHECK_FALSE(is_wanted(table_named("kernel_metrics.csv"), build_report(run.statistics, {})));
  CHECK(header_named("window_sum.csv", run.statistics).ends_with(",Memory at End (MB)"));
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
        "\"a, b\",\"± a, b\",Theoretical Occupancy (%),Busiest Unit,Utilization (%),Unused Time (ns),"
        "DRAM Traffic (MB),TFLOP/s,FLOP/Byte,Bound,Roofline (%),Name");
  CHECK(
      rows_of("kernel_metrics.csv", run.statistics) ==
      "0,4,2,1,128,1,1,600000,1,60,0.0,yes,95.00,0.00,20.00,0.00,2.50,0.00,50.00,0.00,,,,Tensor,50.00,300000,"
      ",,,,,"
      "\"void gemm<float, 4>(float*)\"\n"
      "0,1,1,1,32,1,1,500,1,0,,no,,,,,,,,,,,,,,,,,,,,late\n");
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
  CHECK(rows_of("kernel_metrics.csv", run.statistics) ==
        "0,1,1,1,32,1,1,50000,1,6,0.0,no,,,,,,,,,,,,brief\n");
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
  CHECK(rows.find(",,,,,,,20,2,0,,no,,,,,,,,,,,,[other]\n") == 0);
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
  const StatsRun without;
  CHECK(header == header_named("window_sum.csv", without.statistics) + columns);
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
  CHECK(last_cells(0) == ",57.00,12.00,2.50,30.00,,,");
  run.statistics.settle_window(1, 0, 100 * kInterval);
  CHECK(last_cells(0) == ",57.00,12.00,2.50,30.00,,12.00,30.00");
  CHECK(last_cells(1) == ",57.00,12.00,2.50,30.00,,12.00,30.00");
  CHECK(last_cells(2) == ",,,,,,,");
}

TEST_CASE("Kernels that were told before there were metrics leave a window without their sums",
          "[output][metrics]") {
  StatsRun run;
  KernelEvent early = long_kernel(run);
  early.start = 70 * kInterval;
  early.end = early.start + 6 * kInterval;
  const bool few = GENERATE(true, false);
  if (!few) early.end += kInterval;
  run.statistics.add(early);
  set_metrics(run.statistics);
  add_samples(run.statistics);
  run.statistics.add(long_kernel(run));
  run.statistics.settle_window(1, 0, 100 * kInterval);
  const std::string rows = rows_of("window_sum.csv", run.statistics, one_window());
  // 60 of 66 parts of the time are known, or 60 of 67.
  CHECK(rows.find(",30.00,,12.00,30.00\n") == (few ? rows.find(",30.00,") : std::string::npos));
  CHECK((rows.find(",30.00,,,\n") == std::string::npos) == few);
}

TEST_CASE("An iteration's metrics: over its time on the device", "[output][metrics]") {
  StatsRun run;
  set_metrics(run.statistics);
  add_samples(run.statistics);
  // Two iterations of 30 samples' work each, the second 5 samples after the first; the device lags behind.
  for (std::uint64_t number = 0; number < 2; ++number) {
    IterationBoundary boundary;
    boundary.number = number;
    boundary.begin = 10 + 1000 * number;
    boundary.window = 1;
    boundary.window_before = number == 0 ? 0 : 1;
    run.statistics.iteration_boundary(boundary);
    KernelEvent event = run.kernel("k", 0);
    event.launch.host_begin = boundary.begin;
    event.start = 35 * number * kInterval;
    event.end = event.start + 30 * kInterval;
    run.statistics.add(event);
  }
  const std::string header = header_named("iteration_sum.csv", run.statistics);
  const StatsRun without;
  CHECK(header == header_named("iteration_sum.csv", without.statistics) +
                      ",SM Active (%),FMA (%),IPC,Tensor (%),\"a, b\"");
  const auto last_cells = [&] {
    std::vector<std::string> found;
    const std::string rows = rows_of("iteration_sum.csv", run.statistics, one_window());
    for (std::size_t begin = 0; begin < rows.size(); begin = rows.find('\n', begin) + 1) {
      const std::string row = rows.substr(begin, rows.find('\n', begin) - begin);
      std::size_t at = row.size();
      for (int i = 0; i < 5; ++i) at = row.rfind(',', at - 1);
      found.push_back(row.substr(at));
    }
    return found;
  };
  for (const std::string& cells : last_cells()) CHECK(cells == ",,,,,");
  run.statistics.settle_window(1, 0, 100 * kInterval);
  // The first: until the second one's work begins. The second: as long as the window is open on the host, 25
  // of the 66 samples of which are busy.
  const std::string first = ",95.00,20.00,2.50,50.00,";
  const std::string second = ",35.98,7.58,2.50,18.94,";
  CHECK(last_cells() == std::vector<std::string>{first, first, second, second});
  // Once its window is settled nothing changes it.
  add_samples(run.statistics);
  run.statistics.settle_window(2, 100 * kInterval, 101 * kInterval);
  CHECK(last_cells() == std::vector<std::string>{first, first, second, second});
}

namespace {

/// What a kernel "k" did in 100 samples, with all that kernel_metrics.csv makes of it.
MeasuredKernel measured(StatsRun& run, const std::vector<std::pair<Quantity, float>>& values,
                        const RunInfo& info, const char* name = "k", bool beside_another = false) {
  std::vector<MetricInfo> metrics;
  for (const auto& [quantity, value] : values) {
    metrics.push_back(
        {"m" + std::to_string(metrics.size()),
         "Unit " + std::to_string(static_cast<int>(quantity)) + (quantity == Quantity::kIpc ? "" : " (%)"),
         quantity});
  }
  run.statistics.set_metrics(std::move(metrics));
  for (Nanoseconds i = 0; i < 101; ++i) {
    MetricSample sample;
    sample.start = i * kInterval;
    sample.end = sample.start + kInterval;
    sample.window = 1;
    for (std::size_t m = 0; m < values.size(); ++m) sample.values[m] = values[m].second;
    run.statistics.add(sample);
  }
  KernelEvent event = run.kernel(name, 0);
  event.start = 0;
  event.end = 100 * kInterval;
  run.statistics.add(event);
  if (beside_another) {
    event = run.kernel("other", kInterval);
    run.statistics.add(event);
  }
  run.statistics.settle_window(1, 0, 101 * kInterval);
  for (const MeasuredKernel& kernel : measured_kernels(run.statistics, info))
    if (kernel.row.detail.name == name) return kernel;
  FAIL("no kernel " << name);
  return {};
}

RunInfo on_h200() {
  RunInfo info = one_window();
  info.devices = {h200(0)};
  info.devices[0].clock_khz = 1'980'000;
  info.devices[0].memory_clock_khz = 3'201'000;
  info.devices[0].memory_bus_bits = 6144;
  return info;
}

}  // namespace

TEST_CASE("The busiest unit of a kernel, and what it leaves unused", "[output][metrics]") {
  StatsRun run;
  SECTION("a pipe") {
    const MeasuredKernel kernel = measured(run,
                                           {{Quantity::kSmActive, 99},
                                            {Quantity::kTensor, 10},
                                            {Quantity::kFma, 60},
                                            {Quantity::kL2, 55},
                                            {Quantity::kDramRead, 20},
                                            {Quantity::kDramWrite, 25},
                                            {Quantity::kOccupancy, 40}},
                                           on_h200());
    CHECK(kernel.busiest == "Unit 2");
    CHECK(*kernel.utilization == Approx(60));
    CHECK(*kernel.arithmetic == Approx(60));
    CHECK(*kernel.unused_time == 40 * kInterval);
    CHECK(*kernel.dram == Approx(45));
    CHECK(*kernel.sm_active == Approx(99));
    CHECK(*kernel.achieved_occupancy == Approx(40));
    CHECK(*kernel.theoretical_occupancy == Approx(50));  // 32 blocks of one warp
    REQUIRE(kernel.place);
    CHECK(kernel.place->bandwidth == Approx(0.45 * 4.9167e12).epsilon(0.001));
    CHECK(*kernel.place->share == Approx(0.45));
  }
  SECTION("the memory, reads and writes together") {
    const MeasuredKernel kernel = measured(
        run, {{Quantity::kFma, 60}, {Quantity::kDramRead, 40}, {Quantity::kDramWrite, 35}}, on_h200());
    CHECK(kernel.busiest == "DRAM");
    CHECK(*kernel.utilization == Approx(75));
  }
  SECTION("no more than all of it") {
    const MeasuredKernel kernel =
        measured(run, {{Quantity::kDramRead, 60}, {Quantity::kDramWrite, 55}}, on_h200());
    CHECK(*kernel.utilization == 100);
    CHECK(*kernel.unused_time == 0);
    CHECK_FALSE(kernel.arithmetic);
  }
  SECTION("half of the memory's traffic tells nothing") {
    const MeasuredKernel kernel = measured(run, {{Quantity::kFma, 60}, {Quantity::kDramRead, 40}}, on_h200());
    CHECK(*kernel.arithmetic == Approx(60));
    CHECK_FALSE(kernel.utilization);
    CHECK_FALSE(kernel.unused_time);
    CHECK(kernel.busiest.empty());
    CHECK_FALSE(kernel.place);
  }
  SECTION("a pipe that the chip can't measure may be the one") {
    const char* const kTensorCores =
        "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_stage4_warpsize2x2x1_tensor16x8x16_"
        "kernel";
    REQUIRE(tensor_cores_of(kTensorCores).cores == TensorCores::kUsed);
    for (const bool there : {false, true}) {
      StatsRun own;
      std::vector<std::pair<Quantity, float>> values = {
          {Quantity::kFma, 5}, {Quantity::kDramRead, 30}, {Quantity::kDramWrite, 5}};
      if (there) values.emplace_back(Quantity::kTensor, 70);
      const MeasuredKernel kernel = measured(own, values, on_h200(), kTensorCores);
      CHECK(kernel.arithmetic.has_value() == there);
      CHECK(kernel.utilization.has_value() == there);
      CHECK(kernel.unused_time.has_value() == there);
      CHECK(*kernel.dram == Approx(35));
    }
  }
  SECTION("nothing of the kind was measured") {
    const MeasuredKernel kernel = measured(run, {{Quantity::kUser, 60}}, on_h200());
    CHECK_FALSE(kernel.utilization);
    CHECK_FALSE(kernel.sm_active);
    CHECK_FALSE(kernel.place);
    CHECK(kernels_by_unused_time({kernel}).empty());
  }
  SECTION("the device is not known") {
    const MeasuredKernel kernel =
        measured(run, {{Quantity::kDramRead, 40}, {Quantity::kDramWrite, 35}}, one_window());
    CHECK(*kernel.utilization == Approx(75));
    CHECK_FALSE(kernel.theoretical_occupancy);
    CHECK_FALSE(kernel.place);
  }
}

TEST_CASE("No kernel has more warps than its launch leaves room for", "[output][metrics]") {
  const auto with_occupancy = [](float occupancy) {
    StatsRun run;
    return measured(run, {{Quantity::kFma, 60}, {Quantity::kOccupancy, occupancy}}, on_h200());
  };
  const double most = 50;
  for (const float possible : {40.0F, 50.0F}) CHECK(*with_occupancy(possible).achieved_occupancy == possible);
  MeasuredKernel kernel = with_occupancy(50.4F);
  CHECK(*kernel.theoretical_occupancy == Approx(most));
  CHECK(*kernel.achieved_occupancy == most);
  CHECK(kernel.row.measured.reliable());
  kernel = with_occupancy(53);
  CHECK_FALSE(kernel.achieved_occupancy);
  CHECK_FALSE(kernel.arithmetic);
  CHECK_FALSE(kernel.utilization);
  CHECK_FALSE(kernel.row.measured.reliable());
  // Beside another kernel it has that one's warps as well.
  StatsRun run;
  kernel = measured(run, {{Quantity::kOccupancy, 53.0F}}, on_h200(), "k", true);
  CHECK(kernel.row.measured.shared_time == kInterval);
  CHECK(*kernel.achieved_occupancy == 53);
}

namespace {

constexpr const char* kProductName = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT";
constexpr const char* kHelper = "void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*)";

/// One call that computes this share of what an H200 could in the time of its product, and has a helper that
/// runs as long; 70 % of the memory's bandwidth all the time.
void add_call(StatsRun& run, double share_of_peak) {
  const RunInfo info = on_h200();
  run.statistics.set_metrics(
      {{"r", "DRAM Read (%)", Quantity::kDramRead}, {"w", "DRAM Write (%)", Quantity::kDramWrite}});
  GemmShape shape;
  shape.a = shape.b = shape.c = shape.d = DataType::kBf16;
  shape.compute = ComputeType::kF32;
  shape.m = shape.n = shape.k = 4096;
  const double peak = *peak_flops(specs_of(info, 0), Arithmetic::kBf16Tensor);
  shape.flops = static_cast<std::uint64_t>(share_of_peak * peak * 100 * kInterval * 1e-9);
  const std::uint32_t number = run.shapes.intern(shape);
  CallEvent call = call_event("cublasGemmEx", 100);
  call.owns_shape = true;
  call.shape = number;
  call.call = 1;
  run.statistics.add(call);
  for (Nanoseconds i = 0; i < 201; ++i) {
    MetricSample sample;
    sample.start = i * kInterval;
    sample.end = sample.start + kInterval;
    sample.window = 1;
    sample.values[0] = 40;
    sample.values[1] = 30;
    run.statistics.add(sample);
  }
  for (const char* name : {kProductName, kHelper}) {
    KernelEvent event = run.kernel(name, 0);
    event.launch.owner = 1;
    event.launch.shape = number;
    event.start = name == kProductName ? 0 : 100 * kInterval;
    event.end = event.start + 100 * kInterval;
    run.statistics.add(event);
  }
  run.statistics.settle_window(1, 0, 201 * kInterval);
}

MeasuredKernel kernel_named(const Statistics& statistics, std::string_view name) {
  for (const MeasuredKernel& kernel : measured_kernels(statistics, on_h200()))
    if (kernel.row.detail.name == name) return kernel;
  FAIL("no kernel " << name);
  return {};
}

}  // namespace

TEST_CASE("A call's operations are its product's, not those of the kernels around it", "[output][metrics]") {
  StatsRun run;
  add_call(run, 0.9);
  const MeasuredKernel product = kernel_named(run.statistics, kProductName);
  REQUIRE(product.place);
  CHECK(product.place->roof.bound == Bound::kCompute);
  CHECK(*product.place->share == Approx(0.9));
  const MeasuredKernel helper = kernel_named(run.statistics, kHelper);
  REQUIRE(helper.place);
  CHECK(helper.place->rate == 0);
  CHECK(helper.place->roof.bound == Bound::kUnknown);
  CHECK(*helper.place->share == Approx(0.7));  // by the bandwidth alone
  CHECK(build_report(run.statistics, on_h200()).impossible_rates == 0);
}

TEST_CASE("A share of the peak that can't be is left out, and counted", "[output][metrics]") {
  StatsRun run;
  add_call(run, 1.7);
  const MeasuredKernel product = kernel_named(run.statistics, kProductName);
  REQUIRE(product.place);
  CHECK_FALSE(product.place->share.has_value());
  CHECK(product.place->impossible);
  // The kernel's row. The call's share is half of it, since its time includes both kernels. The window has no
  // rate, because its work goes on after it.
  CHECK(build_report(run.statistics, on_h200()).impossible_rates == 1);
  CHECK(product.place->rate == 0);
  const std::string rows = rows_of("kernel_metrics.csv", run.statistics, on_h200());
  CHECK(rows.find(",,,,nvjet") != std::string::npos);  // nor what follows from the rate

  StatsRun more;
  add_call(more, 2.2);
  CHECK(build_report(more.statistics, on_h200()).impossible_rates == 2);
  const std::string calls = rows_of("gemm_sum.csv", more.statistics, on_h200());
  CHECK(calls.find(",bf16 tensor,,") != std::string::npos);
}

TEST_CASE("Long kernels with low utilization come first", "[output][metrics]") {
  const auto kernel = [](std::string_view name, std::optional<std::uint64_t> unused) {
    MeasuredKernel result;
    result.row.detail.name = name;
    result.unused_time = unused;
    return result;
  };
  std::string order;
  for (const MeasuredKernel& entry :
       kernels_by_unused_time({kernel("a", 5), kernel("b", std::nullopt), kernel("c", 90), kernel("d", 5)}))
    order += entry.row.detail.name;
  CHECK(order == "cad");
}

TEST_CASE("What was measured decides what limits kernels, and the evidence says so", "[output][metrics]") {
  // One block: by its grid it leaves 131 of 132 multiprocessors idle.
  const auto limits_of = [](float active, float tensor, float dram) {
    StatsRun run;
    measured(run,
             {{Quantity::kSmActive, active},
              {Quantity::kTensor, tensor},
              {Quantity::kDramRead, dram},
              {Quantity::kDramWrite, 0}},
             on_h200());
    return build_report(run.statistics, on_h200()).limits_of(0);
  };
  constexpr std::uint64_t kTime = 100 * kInterval;
  CHECK(limits_of(99, 70, 30).compute == kTime);
  CHECK(limits_of(99, 20, 60).memory == kTime);
  CHECK(limits_of(30, 70, 30).latency == kTime);
  CHECK(limits_of(99, 2, 3).unknown == kTime);
  CHECK(limits_of(99, 70, 30).measured == kTime);
  // Where too little was measured, the grid decides as before.
  StatsRun run;
  measured(run, {{Quantity::kSmActive, 99}, {Quantity::kTensor, 70}}, on_h200());
  const KernelLimits limits = build_report(run.statistics, on_h200()).limits_of(0);
  CHECK(limits.latency == kTime);
  CHECK(limits.measured == 0);
}

TEST_CASE("The table of kernel metrics is written where they are taken", "[output][metrics]") {
  const TemporaryFolder folder;
  StatsRun run;
  run.statistics.add(run.kernel("k", 100));
  CHECK(write_all(folder.path(), build_report(run.statistics, one_window())).empty());
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/kernel_metrics.csv"));
  set_metrics(run.statistics);
  CHECK(write_all(folder.path(), build_report(run.statistics, one_window())).empty());
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
