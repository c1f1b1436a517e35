// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// FLOPs and rates of library calls where records were lost, calls failed, or kernels belong to no known call.
#include <cstdint>
#include <optional>
#include <utility>

#include "libinject/output/prometheus_metrics.h"
#include "libinject/report/report.h"
#include "tests/unit/catch.h"
#include "tests/unit/devices.h"
#include "tests/unit/stats_run.h"

namespace inject {
namespace {

constexpr Nanoseconds kCallsBegin = 1'000'000;
constexpr Nanoseconds kCallsEnd = 2'000'000;
constexpr const char* kProductKernel = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT";
constexpr const char* kSumKernel = "void cublasLt::splitKreduce_kernel<32, 16>";
constexpr const char* kLayoutKernel =
    "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(x)";
constexpr const char* kConvolutionKernel =
    "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_"
    "g1_execute_segment_k_off_kernel__5x_cudnn";

/// One window with one iteration.
class ShapedCalls : public StatsRun {
 public:
  ShapedCalls() {
    info.devices = {h200(0)};
    info.devices[0].clock_khz = 1'980'000;
    boundary(1, kCallsBegin + 10);
  }

  /// 10^9 FLOPs, or `k` times as many.
  std::uint32_t product(std::int64_t k = 1) {
    GemmShape shape;
    shape.a = shape.b = shape.c = shape.d = DataType::kBf16;
    shape.compute = ComputeType::kF32;
    shape.k = k;
    shape.flops = static_cast<std::uint64_t>(k) * 1'000'000'000;
    return shapes.intern(shape);
  }

  void call(const char* function, std::uint32_t shape, bool failed = false) {
    CallEvent event = call_event(function, 10);
    event.begin = kCallsBegin + 1000 + calls_ * 100;
    event.end = event.begin + 90;
    event.shape = shape;
    event.owns_shape = true;
    event.call = ++calls_;
    event.status = failed ? 1 : 0;
    statistics.add(event);
  }
  /// Of the latest call.
  void kernel_of(const char* name, std::uint32_t shape, std::uint64_t time) {
    KernelEvent event = kernel(name, time);
    event.launch = launch(shape);
    event.start = end_;
    event.end = end_ += time;
    statistics.add(event);
  }
  void lose_kernel_of(std::uint32_t shape) { statistics.lost_work(launch(shape)); }

  /// Only once.
  Report close() {
    boundary(2, kCallsEnd - 10);
    WindowInfo window;
    window.number = 1;
    window.state = WindowState::kClosed;
    window.start = kCallsBegin;
    window.end = kCallsEnd;
    info.windows.push_back(window);
    info.windows_time = kCallsEnd - kCallsBegin;
    statistics.settle_window(1, kCallsBegin, kCallsEnd);
    return build_report(statistics, info);
  }

  RunInfo info;

 private:
  Attribution launch(std::uint32_t shape) const {
    Attribution launch;
    launch.known = true;
    launch.window = 1;
    launch.shape = shape;
    launch.owner = calls_;
    launch.host_begin = kCallsBegin + 1000 + calls_ * 100 - 50;
    launch.host_end = launch.host_begin + 10;
    return launch;
  }
  void boundary(std::uint64_t number, Nanoseconds time) {
    IterationBoundary boundary;
    boundary.number = number;
    boundary.begin = time;
    boundary.window = boundary.window_before = 1;
    statistics.iteration_boundary(boundary);
  }

  std::uint32_t calls_ = 0;
  Nanoseconds end_ = kCallsBegin + 2000;
};

/// 10^12 per second, of the calls of one shape.
std::optional<double> call_rate(const Report& report, std::uint64_t flops) {
  for (const CallReport& call : report.calls) {
    if (call.call->work.flops == flops && !call.call->function.empty())
      return call.rate ? std::optional(*call.rate / 1e12) : std::nullopt;
  }
  FAIL("no such calls");
  return std::nullopt;
}

const FamilyReport& family_report(const Report& report, Family family) {
  for (const FamilyReport& row : report.families) {
    if (row.family == family) return row;
  }
  FAIL("no such family");
  return report.families[0];
}

bool has_flop_rate(const Report& report) {
  PrometheusMetrics metrics;
  const std::string text = metrics.text(report, PrometheusState::kClosed, 1, 0);
  return text.find("\nlibinject_flop_per_second{") != std::string::npos;
}

}  // namespace

TEST_CASE("Where records of calls were lost, nothing shows the FLOPs of the others as all", "[lost_flops]") {
  for (const bool lose : {false, true}) {
    CAPTURE(lose);
    ShapedCalls run;
    const std::uint32_t shape = run.product();
    run.call("cublasGemmEx", shape);
    run.kernel_of(kProductKernel, shape, 2500);
    if (lose) run.statistics.lost_launches(1);
    const Report report = run.close();
    CHECK(report.windows[0].host->flops.has_value() != lose);
    bool any = false;
    for (const IterationReport& row : report.iterations) {
      if (row.row->flops.total() == 0 || row.device) continue;
      any = true;
      CHECK(row.flops.has_value() != lose);
    }
    CHECK(any);
    CHECK(family_report(report, Family::kGemm).flops.has_value() != lose);
    CHECK(has_flop_rate(report) != lose);
    // The kernel of a lost launch would belong to no call.
    CHECK(call_rate(report, 1'000'000'000).has_value() != lose);
  }
}

TEST_CASE("FLOPs of an open window are not shown as all either", "[lost_flops]") {
  ShapedCalls run;
  const std::uint32_t shape = run.product();
  run.call("cublasGemmEx", shape);
  run.kernel_of(kProductKernel, shape, 2500);
  run.statistics.lost_launches(1);
  const Report report = build_report(run.statistics, run.info);
  for (const IterationReport& row : report.iterations) CHECK_FALSE(row.flops);
  CHECK_FALSE(report.windows[0].host->flops);
}

TEST_CASE("Calls have no rate if one of their kernels has no record", "[lost_flops]") {
  constexpr std::uint64_t kSmall = 1'000'000'000;
  for (const bool known : {true, false}) {
    CAPTURE(known);
    ShapedCalls run;
    const std::uint32_t small = run.product();
    const std::uint32_t large = run.product(4);
    run.call("cublasGemmEx", large);
    run.kernel_of(kProductKernel, large, 10'000);
    run.call("cublasGemmEx", small);
    run.kernel_of(kProductKernel, small, 2250);
    run.kernel_of(kSumKernel, small, 250);
    run.call("cublasGemmEx", small);
    if (known) {
      run.lose_kernel_of(small);
    } else {
      Attribution unknown;
      unknown.window = 1;
      run.statistics.lost_work(unknown);
    }
    run.kernel_of(kSumKernel, small, 250);
    const Report report = run.close();
    CHECK_FALSE(call_rate(report, kSmall));
    if (!known) {
      CHECK_FALSE(call_rate(report, 4 * kSmall));
      continue;
    }
    CHECK(call_rate(report, 4 * kSmall).value_or(0) == Approx(400));
    CHECK(family_report(report, Family::kGemm).teraflops.value_or(0) == Approx(400));
  }
}

TEST_CASE("A lost kernel of a call that is no longer pending leaves all calls of its shape without a rate",
          "[lost_flops]") {
  for (const bool known : {true, false}) {
    CAPTURE(known);
    ShapedCalls run;
    const std::uint32_t shape = run.product();
    run.call("cublasGemmEx", shape);
    run.kernel_of(kProductKernel, shape, 2500);
    run.statistics.settle_window(1, kCallsBegin, kCallsEnd);
    Attribution lost;
    lost.known = known;
    lost.window = 1;
    lost.owner = 1;
    lost.shape = shape;
    run.statistics.lost_work(lost);
    const Report report = build_report(run.statistics, run.info);
    CHECK(report.calls.size() == 1);
    CHECK_FALSE(call_rate(report, 1'000'000'000));
  }
}

TEST_CASE("FLOPs of windows and iterations count by calls, so that lost kernels of known ones do not matter",
          "[lost_flops]") {
  for (const bool known : {true, false}) {
    CAPTURE(known);
    ShapedCalls run;
    const std::uint32_t shape = run.product();
    for (int i = 0; i < 2; ++i) {
      run.call("cublasGemmEx", shape);
      run.kernel_of(kProductKernel, shape, 2500);
    }
    if (known) {
      run.lose_kernel_of(shape);
    } else {
      Attribution unknown;
      unknown.window = 1;
      run.statistics.lost_work(unknown);
    }
    const Report report = run.close();
    CHECK(report.windows.front().host->flops.has_value() == known);
    if (known) CHECK(report.windows.front().host->flops->flops == 2'000'000'000u);
    // But a call's family is that of its kernels.
    CHECK_FALSE(family_report(report, Family::kGemm).flops);
    for (const IterationReport& row : report.iterations) {
      if (row.row->label == IterationLabel::kIteration && !row.device) CHECK(row.flops.has_value() == known);
    }
  }
}

TEST_CASE("Calls have no rate if a failed one ran kernels", "[lost_flops]") {
  for (const bool ran : {false, true}) {
    CAPTURE(ran);
    ShapedCalls run;
    const std::uint32_t shape = run.product();
    run.call("cublasGemmEx", shape);
    run.kernel_of(kProductKernel, shape, 2500);
    run.call("cublasGemmEx", shape, true);
    if (ran) run.kernel_of(kProductKernel, shape, 2500);
    const Report report = run.close();
    CHECK(call_rate(report, 1'000'000'000).value_or(0) == Approx(ran ? 0 : 400));
    // That loses no FLOPs.
    CHECK(family_report(report, Family::kGemm).flops == FlopSum{1'000'000'000});
  }
}

TEST_CASE("A family's rate is that of its calls of known work", "[lost_flops]") {
  ShapedCalls run;
  const std::uint32_t shape = run.product();
  run.call("cublasGemmEx", shape);
  run.kernel_of(kProductKernel, shape, 2500);
  for (int i = 0; i < 3; ++i) run.statistics.add(run.kernel(kProductKernel, 2500));
  const Report report = run.close();
  const FamilyReport& products = family_report(report, Family::kGemm);
  CHECK(products.time.sum == 10'000);
  CHECK(products.flops == 1'000'000'000);
  CHECK(products.teraflops.value_or(0) == Approx(400));
}

TEST_CASE("A call's FLOPs belong to the family of its products, however long others take", "[lost_flops]") {
  ShapedCalls run;
  ConvolutionShape convolution;
  convolution.direction = 1;
  convolution.dimensions = 2;
  convolution.x = convolution.w = convolution.y = DataType::kF16;
  convolution.compute = ComputeType::kF32;
  convolution.n = 32;
  convolution.c = convolution.k = 256;
  convolution.in = convolution.out = {0, 28, 28};
  convolution.filter = {0, 3, 3};
  convolution.pad = {0, 1, 1};
  convolution.stride = convolution.dilation = {0, 1, 1};
  const std::uint32_t shape = run.shapes.intern(convolution);
  run.call("cudnnConvolutionForward", shape);
  run.kernel_of(kConvolutionKernel, shape, 40'000);
  run.kernel_of(kLayoutKernel, shape, 50'000);
  const Report report = run.close();
  const auto flops = static_cast<double>(report.calls[0].call->work.flops);
  REQUIRE(flops > 0);
  CHECK(family_report(report, Family::kLayoutChange).flops == FlopSum{0});
  CHECK_FALSE(family_report(report, Family::kLayoutChange).teraflops);
  for (const FamilyReport& family : report.families) {
    if (family.family != Family::kLayoutChange)
      CHECK(family.teraflops.value_or(0) == Approx(flops / 90'000 / 1e3));
  }
}

}  // namespace inject
