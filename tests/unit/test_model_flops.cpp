// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A model's FLOPs per iteration, from library calls and operators.
#include <cstdint>
#include <utility>
#include <vector>

#include "libinject/record/code_places.h"
#include "libinject/report/report.h"
#include "tests/unit/catch.h"
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

}  // namespace inject
