// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Step times and rates in windows where the host ran ahead of the device, and where device work was lost.
#include <algorithm>
#include <optional>
#include <string>

#include "libinject/output/prometheus_metrics.h"
#include "libinject/output/table_files.h"
#include "libinject/report/report.h"
#include "tests/unit/catch.h"
#include "tests/unit/recorded_run.h"
#include "tests/unit/stats_run.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

constexpr Nanoseconds kMs = 1'000'000;
constexpr Nanoseconds kFirstBegin = 1000 * kMs;

/// Matrix products whose host time and device time differ.
struct PacedProducts : StatsRun {
  PacedProducts() {
    info.base = 1;
    info.batch = 64;
    info.unit_source = UnitSource::kStated;
  }

  void window(std::uint32_t number, Nanoseconds begin, Nanoseconds end) {
    WindowInfo window;
    window.number = number;
    window.state = WindowState::kClosed;
    window.start = begin;
    window.end = end;
    info.windows.push_back(window);
    info.windows_time += end - begin;
    statistics.settle_window(number, begin, end);
  }
  void product(std::uint32_t window, Nanoseconds begin, Nanoseconds start, Nanoseconds end,
               std::uint32_t stream = 1, bool recorded = true) {
    GemmShape shape;
    shape.op_a = shape.op_b = 'N';
    shape.a = shape.b = shape.c = shape.d = DataType::kF32;
    shape.compute = ComputeType::kF32;
    shape.m = shape.n = shape.k = 1;
    shape.flops = 1'000'000'000;
    CallEvent call = call_event("cublasGemmEx", 10);
    call.window = window;
    call.begin = begin;
    call.end = begin + 10'000;
    call.shape = shapes.intern(shape);
    call.owns_shape = true;
    call.call = ++calls;
    call.correlation = 0;
    statistics.add(call);
    KernelEvent event = kernel("sm90_xmma_gemm_f32f32", 1);
    event.launch.window = window;
    event.launch.host_begin = begin + 1000;
    event.launch.host_end = begin + 9000;
    event.launch.owner = calls;
    event.launch.shape = call.shape;
    event.start = start;
    event.end = end;
    event.stream = stream;
    event.correlation = calls;
    if (recorded) {
      statistics.add(event);
    } else {
      statistics.lost_work(event.launch);
    }
  }
  void boundary(std::uint64_t number, Nanoseconds time, std::uint32_t window, std::uint32_t before) {
    IterationBoundary boundary;
    boundary.number = number;
    boundary.begin = time;
    boundary.window = window;
    boundary.window_before = before;
    statistics.iteration_boundary(boundary);
  }
  /// A window of iterations, each of a product that takes `device`; returns its end.
  Nanoseconds iterations(std::uint32_t number, std::uint64_t count, Nanoseconds host, Nanoseconds device,
                         std::optional<std::uint64_t> lost = std::nullopt) {
    const Nanoseconds begin = kFirstBegin * number;
    Nanoseconds time = begin;
    Nanoseconds start = begin + kMs;
    for (std::uint64_t i = 0; i < count; ++i) {
      boundary(100 + i, time, number, i == 0 ? 0 : number);
      start = std::max(start, time);
      product(number, time + 1000, start, start + device, static_cast<std::uint32_t>(1 + (lost ? i % 2 : 0)));
      if (lost == i) product(number, time + 20'000, 0, 0, 2, false);
      start += device;
      time += host;
    }
    boundary(100 + count, time, 0, number);
    window(number, begin, time);
    if (lost) info.windows.back().losses.missing_records = 1;
    return time;
  }

  RunInfo info;
  std::uint32_t calls = 0;
};

const WindowReport::Host& host_report(const Report& report, std::uint32_t window) {
  for (const WindowReport& row : report.windows) {
    if (row.window == window && row.host) return *row.host;
  }
  FAIL("no such window");
  return *report.windows.front().host;
}

bool has_metric(const std::string& text, const std::string& name) {
  return text.find("\n" + name + "{") != std::string::npos;
}

}  // namespace

TEST_CASE("A window's only iteration shows that the host ran ahead, and has no step time", "[pace]") {
  for (const bool ahead : {false, true}) {
    CAPTURE(ahead);
    PacedProducts run;
    run.iterations(1, 1, 2 * kMs, ahead ? 50 * kMs : kMs / 2);
    const Report report = build_report(run.statistics, run.info);
    const WindowReport::Host& host = host_report(report, 1);
    CHECK((host.pace == Pace::kDevice) == ahead);
    CHECK(host.iterations == 1);
    CHECK(host.step_time.has_value() == !ahead);
    CHECK(host.samples_per_second.has_value() == !ahead);
    CHECK(host.flops->teraflops.has_value() == !ahead);
    CHECK((report.steps.inside.count() == 0) == ahead);
    CHECK((report.steps.units_inside.iterations == 0) == ahead);
    for (const IterationReport& row : report.iterations) {
      if (row.row->label == IterationLabel::kIteration) CHECK(row.step_time.has_value() == !ahead);
    }
  }
}

TEST_CASE("The rate of a window without iterations is blank where its work went on long after it", "[pace]") {
  for (const Nanoseconds device : {kMs, 50 * kMs}) {
    CAPTURE(device);
    PacedProducts run;
    run.product(1, kFirstBegin + 1000, kFirstBegin + kMs, kFirstBegin + kMs + device);
    run.window(1, kFirstBegin, kFirstBegin + 2 * kMs);
    const Report report = build_report(run.statistics, run.info);
    CHECK(host_report(report, 1).flops->teraflops.has_value() == (device == kMs));
    PrometheusMetrics metrics;
    const std::string text = metrics.text(report, PrometheusState::kClosed, 1, 0);
    CHECK(has_metric(text, "libinject_flop_per_second") == (device == kMs));
  }
}

TEST_CASE("Where lost work leaves the pace unknown, no rate is by the host's time", "[pace]") {
  PacedProducts run;
  run.iterations(1, 10, 2 * kMs, 50 * kMs, 5);
  const Report report = build_report(run.statistics, run.info);
  const WindowReport::Host& host = host_report(report, 1);
  REQUIRE(host.pace == Pace::kUnknown);
  CHECK_FALSE(host.step_time);
  REQUIRE(host.flops);
  CHECK_FALSE(host.flops->teraflops);
  CHECK(report.steps.inside.count() == 0);
  CHECK_FALSE(report.steps.units_inside.per_second());
  PrometheusMetrics metrics;
  const std::string text = metrics.text(report, PrometheusState::kClosed, 1, 0);
  for (const char* name :
       {"libinject_step_time_mean_seconds", "libinject_step_time_median_seconds",
        "libinject_samples_per_second", "libinject_units_per_second", "libinject_flop_per_second"}) {
    CAPTURE(name);
    CHECK_FALSE(has_metric(text, name));
  }
}

TEST_CASE("Each window's steps count by its own pace", "[pace]") {
  PacedProducts run;
  run.iterations(1, 40, 10 * kMs, 5 * kMs);
  run.iterations(2, 20, 2 * kMs, 50 * kMs);
  const Report report = build_report(run.statistics, run.info);
  CHECK(host_report(report, 1).pace == Pace::kHost);
  CHECK(host_report(report, 2).pace == Pace::kDevice);
  CHECK(report.steps.inside.count() == 40 + 19);  // the last one's time is not known
  CHECK(report.steps.inside.min() >= 10 * kMs);
  CHECK(report.steps.units_inside.iterations == 40);
  PrometheusMetrics metrics;
  CHECK_FALSE(
      has_metric(metrics.text(report, PrometheusState::kClosed, 1, 0), "libinject_step_time_median_seconds"));
}

TEST_CASE("A window that is taken out after it was settled leaves no shares and no difference", "[pace]") {
  PacedProducts run;
  PrometheusMetrics metrics;
  std::string text;
  for (const std::uint32_t window : {1u, 2u}) {
    const Nanoseconds begin = kFirstBegin * window;
    run.product(window, begin + 5 * kMs, begin + 6 * kMs, begin + 7 * kMs);
    run.window(window, begin, begin + (window == 1 ? 100 : 10) * kMs);
    text = metrics.text(build_report(run.statistics, run.info), PrometheusState::kWaiting, 1, 0);
    CHECK(has_metric(text, "libinject_gpu_utilization_ratio") == (window == 1));
    if (window == 2) break;
    Attribution lost;
    lost.window = 1;
    run.statistics.lost_work(lost);
  }
  for (const DeviceTimeRow& row : run.statistics.device_times().totals()) {
    std::uint64_t shares = 0;
    for (const IdleShare& share : row.shares) shares += share.time;
    CHECK(shares <= row.times.idle());
  }
}

TEST_CASE("Copies have no overlap and no hint where device work was lost", "[pace]") {
  for (const bool lose : {false, true}) {
    CAPTURE(lose);
    PacedProducts run;
    for (std::uint32_t i = 0; i < 4; ++i) {
      const Nanoseconds begin = kFirstBegin + i * 10 * kMs;
      run.product(1, begin, begin + kMs, begin + 2 * kMs, 1, !(lose && i == 2));
      TransferEvent copy = copy_event(1, 1'000'000, kMs);
      copy.launch.host_begin = begin + 3 * kMs;
      copy.launch.host_end = begin + 4 * kMs;
      copy.start = begin + 3 * kMs;
      copy.end = begin + 4 * kMs;
      copy.source_memory = 1;
      copy.target_memory = 3;
      run.statistics.add(copy);
    }
    run.window(1, kFirstBegin, kFirstBegin + 40 * kMs);
    if (lose) run.info.windows.back().losses.missing_records = 1;
    const Report report = build_report(run.statistics, run.info);
    for (const CopyRow& row : run.statistics.copies().rows()) CHECK((row.overlap.time == 0) == lose);
    bool found = false;
    for (const TableFile& table : table_files()) {
      if (table.name != "copy_sum.csv") continue;
      found = true;
      CHECK((table_text(table, report).find("pageable memory") == std::string::npos) == lose);
    }
    CHECK(found);
  }
}

TEST_CASE("Records that CUPTI dropped from windows that are settled together may be any window's", "[pace]") {
  TemporaryFolder folder;
  RecordedRun run(folder.path());
  for (int window = 0; window < 3; ++window) {
    run.open_window();
    run.launch();
    run.time += kMs;
    run.close_window();
    run.time += 1000;
  }
  run.kernels(1, 3);
  run.pass();
  run.drain.settle(500, true);
  std::uint64_t counted = 0;
  for (const WindowInfo& window : run.windows.copy()) {
    CHECK(window.losses.device_work());
    counted += window.losses.activity_records;
  }
  CHECK(counted == 500);
  CHECK(run.statistics.device_times().rows().empty());
}

TEST_CASE("What CUPTI dropped while launches were being named is no window's loss", "[pace]") {
  TemporaryFolder folder;
  RecordedRun run(folder.path());
  run.open_window();
  run.launch();
  run.time += kMs;
  run.close_window();
  run.kernels(1, 1);
  for (int i = 0; i < 3; ++i) {
    CallRecord record = run.next_launch();
    record.window = 1 | kNamingWindow;
    record.range = 0;
    run.queue.push(run.core.ring, record, 1);
  }
  run.pass();
  run.drain.settle(3, true);
  CHECK_FALSE(run.windows.copy().front().losses.device_work());
  CHECK(run.statistics.device_times().rows().size() == 1);
}
