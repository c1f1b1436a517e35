// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A model's FLOPs per iteration, from library calls and operators.
#include <cstdint>
#include <utility>
#include <vector>

#include "libinject/analysis/peaks.h"
#include "libinject/record/code_places.h"
#include "libinject/report/device_specs.h"
#include "libinject/report/report.h"
#include "tests/unit/catch.h"
#include "tests/unit/devices.h"
#include "tests/unit/stats_run.h"

namespace inject {
namespace {

constexpr std::uint64_t kProduct = 1000;
constexpr std::uint64_t kAttention = 300;

/// A product by cuBLAS.
struct ModelProduct {
  const char* kernel;
  CodePhase phase;
  std::vector<const char*> operators;  // from the outermost
  bool is_placed = true;
  bool may_recompute = false;
};

/// A window of iterations, and two named iterations after it. Each computes a product by cuBLAS and attention
/// by an operator, the attention again if `checkpointed`, and more products.
class Training {
 public:
  explicit Training(bool checkpointed, std::vector<ModelProduct> products = {})
      : checkpointed_(checkpointed), products_(std::move(products)) {
    run_.statistics.expect_names(run_.places);
    info_.devices = {h200(0)};
    info_.devices[0].clock_khz = 1'980'000;
    GemmShape product;
    product.flops = kProduct;
    product.a = product.b = DataType::kBf16;
    product_ = run_.shapes.intern(product);
    OperatorShape attention;
    attention.flops = kAttention;
    attention.type = DataType::kBf16;
    attention_ = run_.shapes.intern(attention);
  }

  /// `more`: launches something that the others don't.
  void iterate(bool more = false) {
    boundary();
    work("gemm", CodePhase::kForward, true);
    work("flash", CodePhase::kForward, false);
    if (checkpointed_) work("flash", CodePhase::kRecompute, false);
    for (const ModelProduct& product : products_) {
      CodePlace place{0, 0, 0, product.phase, false, product.may_recompute};
      for (const char* name : product.operators)
        place.op =
            places_.node({CodeNodeKind::kOperator, place.op, run_.names.intern(name), NameTable::kEmpty, 0});
      work(product.kernel, product.is_placed ? places_.place(place) : 0, true);
    }
    if (more) work("report", CodePhase::kOther, false, 0);
  }
  void copy_to(std::uint16_t device) {
    TransferEvent copy = copy_event(1, 4, 1);
    copy.launch.host_begin = time_ + 1;
    copy.launch.host_end = time_ + 2;
    copy.device = device;
    copy.start = time_ + 3;
    copy.end = time_ + 4;
    run_.statistics.add(copy);
  }
  void set_products(std::size_t count) {
    products_.assign(count, {"more", CodePhase::kForward, {"aten::mm"}});
  }
  /// An iteration without CUPTI.
  void skip(Nanoseconds duration) {
    IterationBoundary boundary;
    boundary.number = ++iterations_;
    boundary.begin = time_;
    boundary.unprofiled_before = std::exchange(is_skipping_, true);
    run_.statistics.iteration_boundary(boundary);
    time_ += duration;
  }
  void name() {
    boundary();
    closed_ = time_;
    is_named_ = true;
  }

  Report report() {
    boundary();
    run_.statistics.settle_window(1, 1, closed_);
    WindowInfo window;
    window.number = 1;
    window.state = WindowState::kClosed;
    window.start = 1;
    window.end = closed_;
    info_.windows.push_back(window);
    return build_report(run_.statistics, info_, &places_);
  }

 private:
  void boundary() {
    IterationBoundary boundary;
    boundary.number = ++iterations_;
    boundary.begin = time_ += 1000;
    boundary.window = boundary.window_before = is_named_ ? 0 : 1;
    run_.statistics.iteration_boundary(boundary);
  }

  void work(const char* name, CodePhase phase, bool by_library, std::uint32_t level = 1) {
    work(name, places_.place({0, 0, 0, phase}), by_library, level);
  }

  void work(const char* name, std::uint32_t place, bool by_library, std::uint32_t level = 1) {
    const Nanoseconds begin = time_ += 100;
    KernelEvent event = run_.kernel(name, 50);
    event.launch.host_begin = begin;
    event.launch.host_end = begin + 10;
    event.launch.thread = 1;
    event.launch.owner = ++calls_;
    event.correlation = calls_;
    event.start = begin + 20;
    event.end = begin + 70;
    if (by_library) event.launch.shape = product_;
    if (is_named_) {
      event.launch.window = 1 | kNamingWindow;
      event.launch.range = place;
      OperatorCall call;
      if (level != 0) call = {calls_, 0, level, attention_};
      event.launch.stream_handle = call.packed();
      run_.statistics.add_named(event);
      return;
    }
    CallEvent call = call_event(by_library ? "cublasGemmEx" : "cudaLaunchKernel", 10);
    call.begin = begin;
    call.end = begin + 10;
    call.thread = 1;
    call.call = calls_;
    call.correlation = calls_;
    if (by_library) call.shape = product_;
    call.owns_shape = by_library;
    run_.statistics.add(call);
    run_.statistics.add(event);
  }

  bool checkpointed_;
  std::vector<ModelProduct> products_;
  StatsRun run_;
  CodePlaces places_{run_.names};
  RunInfo info_;
  std::uint32_t product_ = 0;
  std::uint32_t attention_ = 0;
  std::uint32_t calls_ = 0;
  std::uint64_t iterations_ = 0;
  Nanoseconds time_ = 1000;
  Nanoseconds closed_ = 0;
  bool is_named_ = false;
  bool is_skipping_ = false;
};

}  // namespace

TEST_CASE("A model's FLOPs are those of library calls and operators, each once", "[model_flops]") {
  Training training(false);
  for (int i = 0; i < 4; ++i) training.iterate();
  training.name();
  for (int i = 0; i < 2; ++i) training.iterate();
  const Report report = training.report();
  REQUIRE(report.model_flops);
  CHECK(report.model_flops->per_iteration == double{kProduct + kAttention});
  CHECK(report.code.all.flops.total() == 4 * (kProduct + kAttention));
}

TEST_CASE("What is computed a second time is not the model's", "[model_flops]") {
  Training training(true);
  for (int i = 0; i < 4; ++i) training.iterate();
  training.name();
  for (int i = 0; i < 2; ++i) training.iterate();
  const Report report = training.report();
  REQUIRE(report.model_flops);
  CHECK(report.model_flops->per_iteration == Approx(double{kProduct + kAttention}));
}

TEST_CASE("Where more may be computed a second time than is known to be, there are no model's FLOPs",
          "[model_flops]") {
  const auto flops = [](bool checkpointed, const std::vector<ModelProduct>& products) {
    Training training(checkpointed, products);
    for (int i = 0; i < 4; ++i) training.iterate();
    training.name();
    for (int i = 0; i < 2; ++i) training.iterate();
    const std::optional<ModelFlops> model = training.report().model_flops;
    return model ? model->per_iteration : 0;
  };
  const auto products = [](double count) { return Approx(count * kProduct + kAttention); };
  // Without a place.
  const ModelProduct unplaced{"other", CodePhase::kBackward, {}, false};
  CHECK(flops(false, {unplaced}) == products(2));
  CHECK(flops(true, {unplaced}) == 0);

  // In a backward pass that is itself differentiated.
  CHECK(flops(false, {{"other", CodePhase::kBackward, {"FnBackward", "aten::mm"}, true, true}}) == 0);

  const ModelProduct forward{"a", CodePhase::kForward, {"CompiledFunction", "aten::mm"}};
  const ModelProduct backward{"b", CodePhase::kBackward, {"CompiledFunctionBackward", "aten::mm"}};
  CHECK(flops(false, {forward, backward, backward}) == products(4));
  CHECK(flops(false, {forward, backward, backward, backward}) == 0);
  // Of a part of the model that is not compiled.
  CHECK(flops(false, {{"c", CodePhase::kForward, {"aten::mm"}}, backward}) == 0);
  CHECK(flops(false, {{"c", CodePhase::kForward, {"aten::mm"}},
                      {"d", CodePhase::kBackward, {"MmBackward0", "aten::mm"}},
                      {"d", CodePhase::kBackward, {"MmBackward0", "aten::mm"}},
                      {"d", CodePhase::kBackward, {"MmBackward0", "aten::mm"}}}) == products(5));
  const ModelProduct attention{
      "e", CodePhase::kForward, {"CompiledFunction", "aten::_cudnn_attention_forward"}};
  CHECK(flops(false, {attention, attention, backward, backward, backward, backward, backward}) ==
        products(8));
  CHECK(flops(false, {attention, attention, backward, backward, backward, backward, backward, backward}) ==
        0);
}

TEST_CASE("Iterations whose operators are not known are left out of the model's FLOPs", "[model_flops]") {
  Training training(false);
  for (int i = 0; i < 4; ++i) training.iterate(i == 2);
  training.name();
  for (int i = 0; i < 2; ++i) training.iterate();
  const Report report = training.report();
  REQUIRE(report.model_flops);
  CHECK(report.model_flops->per_iteration == double{kProduct + kAttention});
  CHECK(report.code.all.flops.total() == 4 * kProduct + 3 * kAttention);
}

TEST_CASE("Where no operator is known the model's FLOPs are those of library calls", "[model_flops]") {
  Training training(false);
  for (int i = 0; i < 4; ++i) training.iterate();
  training.name();
  training.iterate();
  const Report report = training.report();
  REQUIRE(report.model_flops);
  CHECK(report.model_flops->per_iteration == double{kProduct});
}

namespace {

/// How long products take at the peak of the first device.
double least_time_of(double products, const Report& report) {
  const std::optional<double> peak = peak_flops(specs_of(*report.run, 0), Arithmetic::kBf16Tensor);
  REQUIRE(peak);
  return products * kProduct / *peak * 1e9;
}

/// Of iterations with one product, and with as many more as `more` says, one after the other; after steps
/// without CUPTI.
Report report_of_mixed(Training& training, const std::vector<Nanoseconds>& steps,
                       const std::vector<std::size_t>& more) {
  for (const Nanoseconds step : steps) training.skip(step);
  for (const std::size_t products : more) {
    training.set_products(products);
    training.iterate();
  }
  training.name();
  training.iterate();
  return training.report();
}

}  // namespace

TEST_CASE("The model FLOP utilization is all work over all time of the same iterations", "[model_flops]") {
  Training training(false);
  std::vector<std::size_t> more;
  for (int i = 0; i < 20; ++i) more.push_back(i % 5 < 3 ? 0 : 7);
  const Report report = report_of_mixed(training, {}, more);
  REQUIRE(report.model_flops);
  // With a median, the few long ones count with their work, but not with their time.
  const double time = 12 * 1200 + 8 * 1900;
  CHECK(report.model_flops->utilization.value.value_or(0) ==
        Approx(least_time_of(12 + 8 * 8, report) / time));
  CHECK(report.model_flops->in_windows);
}

TEST_CASE("Steps without the profiler have the FLOPs of those in windows if all are alike", "[model_flops]") {
  /// `time`: over which `products` are expected.
  const auto check = [](const std::vector<Nanoseconds>& steps, const std::vector<std::size_t>& more,
                        double products, double time, bool in_windows) {
    Training training(false);
    const Report report = report_of_mixed(training, steps, more);
    REQUIRE(report.model_flops);
    CHECK(report.model_flops->utilization.value.value_or(0) ==
          Approx(least_time_of(products, report) / time));
    CHECK(report.model_flops->in_windows == in_windows);
  };
  const std::vector<std::size_t> same(8, 0);
  // The last one goes on to the window, and is not known.
  std::vector<Nanoseconds> steps(12, 1000);
  steps[3] = 1110;
  check(steps, same, 1, 1010, false);

  // The window has none of the long ones, or more of them.
  steps[3] = 9000;
  check(steps, same, 1, 1200, true);
  steps[3] = 1000;
  check(steps, {0, 0, 0, 0, 0, 0, 0, 7}, 15, 7 * 1200 + 1900, true);
}

TEST_CASE("A device that only copies does not compute", "[model_flops]") {
  Training training(false);
  for (int i = 0; i < 4; ++i) {
    training.iterate();
    if (i == 1) training.copy_to(1);
  }
  training.name();
  training.iterate();
  const Report report = training.report();
  REQUIRE(report.model_flops);
  CHECK(report.model_flops->utilization.value.value_or(0) == Approx(least_time_of(1, report) / 1200));
  for (const IterationReport& iteration : report.iterations) {
    if (!iteration.device && iteration.row->complete)
      CHECK(iteration.flops->peak_share.value.value_or(0) == Approx(least_time_of(1, report) / 1200));
  }
  CHECK(report.windows[0].host->flops->peak_share.value.value_or(0) ==
        Approx(least_time_of(4, report) / static_cast<double>(report.windows[0].info->end - 1)));
}

}  // namespace inject
