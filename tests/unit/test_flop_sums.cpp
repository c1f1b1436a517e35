// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// FLOP sums that exceed 64 bits: a day at 400 TFLOP/s is 3.5e19.
#include <map>
#include <string>
#include <vector>

#include "libinject/analysis/flops.h"
#include "libinject/analysis/shape_work.h"
#include "libinject/base/csv.h"
#include "libinject/output/prometheus_metrics.h"
#include "libinject/output/table_files.h"
#include "tests/unit/catch.h"
#include "tests/unit/devices.h"
#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
constexpr const char* kTwoHalves = "18446744073709551616";
constexpr const char* kFourHalves = "36893488147419103232";

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

/// A table's rows, by column. Texts in it have no commas.
std::vector<std::map<std::string, std::string>> rows_of(std::string_view file, const StatsRun& run,
                                                        const RunInfo& info) {
  std::vector<std::map<std::string, std::string>> rows;
  const Report report = build_report(run.statistics, info);
  for (const TableFile& table : table_files()) {
    if (table.name != file) continue;
    const std::vector<std::string> columns = split(header_of(table, report));
    const std::string text = table_text(table, report);
    for (std::size_t begin = text.find('\n') + 1; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      const std::vector<std::string> cells = split(text.substr(begin, end - begin));
      REQUIRE(cells.size() == columns.size());
      auto& row = rows.emplace_back();
      for (std::size_t i = 0; i < cells.size(); ++i) row[columns[i]] = cells[i];
      begin = end + 1;
    }
  }
  return rows;
}

struct LongRun : StatsRun {
  RunInfo info;
  std::uint32_t calls = 0;

  static Nanoseconds begin_of(std::uint32_t window) { return Nanoseconds{window} * 1'000'000; }

  void gemm(std::uint32_t window, std::uint64_t flops) {
    GemmShape shape;
    shape.op_a = shape.op_b = 'N';
    shape.a = shape.b = shape.c = shape.d = DataType::kF32;
    shape.compute = ComputeType::kF32;
    shape.m = shape.n = shape.k = 1;
    shape.flops = flops;
    CallEvent call = call_event("cublasGemmEx", 10);
    call.window = window;
    call.begin = begin_of(window) + 1000 + calls * 100;
    call.end = call.begin + 10;
    call.shape = shapes.intern(shape);
    call.owns_shape = true;
    call.call = ++calls;
    statistics.add(call);
    KernelEvent event = kernel("sm90_xmma_gemm_f32f32", 20);
    event.launch.window = window;
    event.launch.shape = call.shape;
    event.launch.owner = call.call;
    event.launch.thread = call.thread;
    event.launch.chain = chain_of({"cublasGemmEx"});
    event.launch.host_begin = call.begin;
    event.start = call.begin + 20;
    event.end = event.start + 20;
    statistics.add(event);
  }

  void boundary(std::uint32_t window, std::uint64_t number, Nanoseconds begin) {
    IterationBoundary boundary;
    boundary.window = boundary.window_before = window;
    boundary.number = number;
    boundary.begin = begin;
    statistics.iteration_boundary(boundary);
  }

  void close(std::uint32_t window) {
    WindowInfo closed;
    closed.number = window;
    closed.state = WindowState::kClosed;
    closed.start = begin_of(window);
    closed.end = closed.start + 100'000;
    info.windows.push_back(closed);
    info.windows_time += 100'000;
    statistics.settle_window(window, closed.start, closed.end);
  }
};

std::string sample(const std::string& text, const std::string& name) {
  const std::size_t begin = text.find("\n" + name + "{");
  REQUIRE(begin != std::string::npos);
  const std::size_t value = text.find("} ", begin) + 2;
  return text.substr(value, text.find('\n', value) - value);
}

}  // namespace

TEST_CASE("128 bits in digits", "[flops]") {
  CHECK(to_string(Uint128{0}) == "0");
  CHECK(to_string(Uint128{1'000'000'000'000'000'000} * 100) == "100000000000000000000");
  CHECK(to_string(~Uint128{0}) == "340282366920938463463374607431768211455");
  std::string line;
  CsvRow(line).number(Uint128{kHalf} * 2).number(7).end();
  CHECK(line == std::string(kTwoHalves) + ",7\n");
}

TEST_CASE("Counts of operations beyond 64 bits are added up, merged and told apart", "[flops]") {
  FlopCount count;
  for (int i = 0; i < 3; ++i) count.add(Arithmetic::kFp32, kHalf);
  FlopCount more;
  more.add(Arithmetic::kFp32, kHalf);
  more.add(std::nullopt, kHalf);
  count.merge(more);
  CHECK(count.by[static_cast<std::size_t>(Arithmetic::kFp32)] == FlopSum{kHalf} * 4);
  CHECK(count.total() == FlopSum{kHalf} * 5);
}

TEST_CASE("Tables have sums of operations beyond 64 bits", "[flops]") {
  LongRun run;
  run.boundary(1, 0, LongRun::begin_of(1) + 500);
  for (int i = 0; i < 4; ++i) run.gemm(1, kHalf);
  run.boundary(1, 1, LongRun::begin_of(1) + 50'000);
  run.close(1);
  const auto windows = rows_of("window_sum.csv", run, run.info);
  REQUIRE_FALSE(windows.empty());
  CHECK(windows[0].at("FLOPs") == kFourHalves);
  // FLOPs divided by 0.1 ms.
  CHECK(windows[0].at("TFLOP/s") == "368934881474.191");
  const auto iterations = rows_of("iteration_sum.csv", run, run.info);
  REQUIRE_FALSE(iterations.empty());
  CHECK(iterations[0].at("FLOPs") == kFourHalves);
  const auto families = rows_of("family_sum.csv", run, run.info);
  REQUIRE_FALSE(families.empty());
  CHECK(families[0].at("FLOPs") == kFourHalves);
  const auto products = rows_of("gemm_sum.csv", run, run.info);
  REQUIRE_FALSE(products.empty());
  CHECK(products[0].at("FLOPs") == std::to_string(kHalf));  // of one call
  CHECK(products[0].at("TFLOP/s") == rows_of("family_sum.csv", run, run.info)[0].at("TFLOP/s"));
}

TEST_CASE("A rate beyond the device's peak is left out and counted", "[flops]") {
  // In 0.1 ms, during part of which the kernel runs; an H200 computes less than 0.1 PFLOP in it.
  const struct {
    std::uint64_t flops;
    bool possible;
  } cases[] = {{1'000, true}, {kHalf, false}};
  for (const auto& [flops, possible] : cases) {
    INFO(flops);
    LongRun run;
    run.gemm(1, flops);
    run.close(1);
    run.info.devices = {h200(0)};
    run.info.devices[0].clock_khz = 1'980'000;
    const Report report = build_report(run.statistics, run.info);
    CHECK(report.impossible_rates == (possible ? 0 : 2));
    REQUIRE(report.calls.size() == 1);
    CHECK(report.calls[0].rate.has_value() == possible);
    const auto windows = rows_of("window_sum.csv", run, run.info);
    REQUIRE_FALSE(windows.empty());
    CHECK(windows[0].at("FLOPs") == std::to_string(flops));
    CHECK(windows[0].at("TFLOP/s").empty() != possible);
    CHECK(windows[0].at("Peak (%)").empty() != possible);
  }
}

TEST_CASE("Prometheus has sums of operations beyond 64 bits, and what they grew by", "[flops]") {
  LongRun run;
  PrometheusMetrics metrics;
  const auto text = [&] {
    return metrics.text(build_report(run.statistics, run.info), PrometheusState::kWaiting, 1, 0);
  };
  for (int i = 0; i < 2; ++i) run.gemm(1, kHalf);
  run.close(1);
  CHECK(sample(text(), "libinject_flop_total") == kTwoHalves);
  // A window that is still open does not count yet.
  for (int i = 0; i < 2; ++i) run.gemm(2, kHalf);
  CHECK(sample(text(), "libinject_flop_total") == kTwoHalves);
  run.close(2);
  const std::string later = text();
  CHECK(sample(later, "libinject_flop_total") == kFourHalves);
  CHECK(std::stod(sample(later, "libinject_flop_per_second")) == Approx(18446744073709551616.0 / 1e-4));
}

TEST_CASE("A call with more operations than can be counted has none, and its row is blank", "[flops]") {
  GemmShape product;
  product.flops = product.bytes = kTooLarge;
  CHECK_FALSE(work_of(product).flops_known);
  CHECK(work_of(product).flops == 0);
  CHECK(work_of(product).bytes == 0);
  AttentionShape attention;
  attention.batch = attention.heads = attention.query_length = attention.key_length = 0xFFFF'FFFF;
  attention.head_size = attention.value_head_size = 64;
  for (const std::uint32_t flags : {std::uint32_t{0}, std::uint32_t{kAttentionCausal}}) {
    attention.flags = flags;
    CHECK_FALSE(work_of(attention).flops_known);
    CHECK(work_of(attention).flops == 0);
  }
  product.flops = 2;
  CHECK(work_of(product).flops_known);
  CHECK(work_of(product).flops == 2);

  LongRun run;
  run.gemm(1, kTooLarge);
  run.close(1);
  const auto products = rows_of("gemm_sum.csv", run, run.info);
  REQUIRE_FALSE(products.empty());
  CHECK(products[0].at("Calls") == "1");
  for (const char* column : {"FLOPs", "TFLOP/s", "Peak (%)", "FLOP/Byte", "Bound"}) {
    INFO(column);
    CHECK(products[0].at(column).empty());
  }
  CHECK(rows_of("window_sum.csv", run, run.info)[0].at("FLOPs") == "0");
  CHECK(rows_of("family_sum.csv", run, run.info)[0].at("FLOPs") == "0");
}
