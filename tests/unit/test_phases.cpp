// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/phases.h"

#include <array>
#include <map>
#include <random>
#include <string>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr std::uint32_t kMain = 1;
constexpr std::uint32_t kAutograd = 2;

struct Run {
  PhaseStatistics statistics;
  Nanoseconds time = 0;

  Run() {
    statistics.threads_are_named_by(
        [](std::uint32_t thread) { return std::string(thread == kAutograd ? "pt_autograd_0" : "python"); });
  }
  /// `phase`: set by a range, except kOptimizer, which the kernel's name sets.
  PhasedWork next(std::uint32_t thread, Phase phase = Phase::kOther) {
    PhasedWork work;
    work.launch_known = true;
    work.launch_begin = ++time;
    work.duration = 1;
    work.thread = thread;
    work.optimizer = phase == Phase::kOptimizer;
    if (!work.optimizer) work.range_phase = phase;
    return work;
  }
  void kernels(std::uint64_t count, std::uint32_t thread, Phase phase = Phase::kOther) {
    for (std::uint64_t i = 0; i < count; ++i) statistics.work(1, next(thread, phase));
  }
  /// Kernels of window 1, by phase.
  std::array<std::uint64_t, kPhases> settled() {
    statistics.settle_window(1);
    CHECK(statistics.held() == 0);
    std::array<std::uint64_t, kPhases> counts{};
    for (const PhaseRow& row : statistics.rows()) {
      CHECK(row.window == 1);
      counts[static_cast<std::size_t>(row.phase)] += row.work.kernels.count;
    }
    return counts;
  }
};

using Counts = std::array<std::uint64_t, kPhases>;  // forward, backward, optimizer, other

}  // namespace

TEST_CASE("Training steps fall into their phases", "[phases]") {
  Run run;
  for (int step = 0; step < 3; ++step) {
    run.kernels(10, kMain);      // forward
    run.kernels(20, kAutograd);  // backward
    run.kernels(2, kMain);       // gradient clipping
    run.kernels(5, kMain, Phase::kOptimizer);
    run.kernels(1, kMain);  // between two optimizer kernels
    run.kernels(5, kMain, Phase::kOptimizer);
  }
  run.kernels(4, kMain);  // the next iteration's forward pass
  CHECK(run.settled() == Counts{34, 60, 39, 0});
}

TEST_CASE("With several micro-batches a step has several forward passes", "[phases]") {
  Run run;
  for (int micro = 0; micro < 4; ++micro) {
    run.kernels(10, kMain);
    run.kernels(20, kAutograd);
  }
  run.kernels(5, kMain, Phase::kOptimizer);
  CHECK(run.settled() == Counts{40, 80, 5, 0});
}

TEST_CASE("Without a backward pass nothing is told but the optimizer", "[phases]") {
  Run run;
  run.kernels(10, kMain);
  run.kernels(5, kMain, Phase::kOptimizer);
  run.kernels(3, kMain);
  CHECK(run.settled() == Counts{0, 0, 5, 13});
}

TEST_CASE("Ranges tell phases whatever thread launches", "[phases]") {
  Run run;
  run.kernels(10, kMain, Phase::kForward);
  run.kernels(2, kMain);
  run.kernels(20, kMain, Phase::kBackward);
  run.kernels(2, kMain);
  PhasedWork optimizer = run.next(kAutograd);
  optimizer.range_phase = Phase::kOptimizer;
  run.statistics.work(1, optimizer);
  // Its name says optimizer; range and thread do not.
  run.kernels(1, kAutograd, Phase::kOptimizer);
  PhasedWork average = run.next(kMain, Phase::kOptimizer);
  average.range_phase = Phase::kForward;
  run.statistics.work(1, average);
  CHECK(run.settled() == Counts{13, 21, 3, 0});

  CHECK(phase_of_range("Forward") == Phase::kForward);
  CHECK(phase_of_range("autograd::engine::evaluate_function: ConvolutionBackward0") == Phase::kBackward);
  CHECK(phase_of_range("Optimizer.step#SGD.step") == Phase::kOptimizer);
  CHECK(phase_of_range("aten::conv2d") == Phase::kOther);
  CHECK(is_backward_thread("pt_autograd_12"));
  CHECK_FALSE(is_backward_thread("python"));
}

TEST_CASE("Between a forward range and the optimizer, as after the last forward pass, it is forward",
          "[phases]") {
  Run run;
  run.kernels(20, kAutograd);
  run.kernels(10, kMain, Phase::kForward);
  run.kernels(2, kMain);
  run.kernels(5, kMain, Phase::kOptimizer);
  run.kernels(1, kMain, Phase::kForward);
  run.kernels(3, kMain);
  CHECK(run.settled() == Counts{16, 20, 5, 0});
}

TEST_CASE("Each device has its own order", "[phases]") {
  Run run;
  for (int step = 0; step < 3; ++step) {
    run.kernels(2, kMain);
    PhasedWork other = run.next(kMain, Phase::kOptimizer);
    other.device = 1;
    run.statistics.work(1, other);
    run.kernels(2, kMain);
    run.kernels(3, kAutograd);
  }
  CHECK(run.settled() == Counts{12, 9, 3, 0});
}

TEST_CASE("Windows without end that nobody settles take bounded memory", "[phases]") {
  Run run;
  for (std::uint32_t window = 1; window <= 20'000; ++window) run.statistics.work(window, run.next(kMain));
  CHECK(run.statistics.held() <= PhaseStatistics::kMaxUnsettled);
}

TEST_CASE("Work whose launch was not seen has no phase", "[phases]") {
  Run run;
  run.kernels(1, kMain);
  PhasedWork lost = run.next(kMain, Phase::kOptimizer);
  lost.launch_known = false;
  run.statistics.work(1, lost);
  run.kernels(1, kAutograd);
  CHECK(run.settled() == Counts{1, 1, 0, 1});
}

TEST_CASE("Copies and memsets are counted as such", "[phases]") {
  Run run;
  PhasedWork copy = run.next(kAutograd);
  copy.copy = true;
  copy.bytes = 100;
  run.statistics.work(1, copy);
  PhasedWork memset = run.next(kAutograd);
  memset.memset = true;
  memset.bytes = 7;
  memset.device = 1;
  run.statistics.work(1, memset);
  run.statistics.settle_window(1);
  const auto rows = run.statistics.rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].device == 0);
  CHECK(rows[0].phase == Phase::kBackward);
  CHECK(rows[0].work.copies == 1);
  CHECK(rows[0].work.copy_bytes == 100);
  CHECK(rows[1].device == 1);
  CHECK(rows[1].work.memsets == 1);
  CHECK(rows[1].work.memset_bytes == 7);
}

TEST_CASE("Windows of any length take bounded memory, and come out the same", "[phases]") {
  Run run;
  constexpr std::uint64_t kSteps = 40'000;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    run.kernels(5, kMain);
    run.kernels(5, kAutograd);
    run.kernels(2, kMain, Phase::kOptimizer);
    CHECK(run.statistics.held() <= PhaseStatistics::kMaxHeld);
  }
  CHECK(run.settled() == Counts{5 * kSteps, 5 * kSteps, 2 * kSteps, 0});
}

TEST_CASE("Work without any phase takes bounded memory", "[phases]") {
  Run run;
  for (int i = 0; i < 10; ++i) {
    run.kernels(100'000, kMain);
    CHECK(run.statistics.held() <= PhaseStatistics::kMaxHeld);
  }
  CHECK(run.settled() == Counts{0, 0, 0, 1'000'000});
}
