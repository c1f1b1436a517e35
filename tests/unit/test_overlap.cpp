// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/overlap.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr std::uint32_t kCompute = 0;  // stands for a row

struct Kernel {
  std::uint32_t window = 1;
  std::uint32_t device = 0;
  std::uint32_t row = kCompute;
  Nanoseconds start = 0;
  Nanoseconds end = 0;
};

void feed(OverlapStatistics& overlap, const Kernel& kernel) {
  if (kernel.row == kCompute) {
    overlap.beside(kernel.window, kernel.device, kernel.start, kernel.end);
  } else {
    overlap.work(kernel.window, kernel.device, kernel.row, kernel.start, kernel.end);
  }
}

/// Computed nanosecond by nanosecond.
std::map<std::uint32_t, OverlapStatistics::Times> plain(const std::vector<Kernel>& kernels) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<bool>> computing;
  for (const Kernel& kernel : kernels) {
    if (kernel.row != kCompute) continue;
    auto& busy = computing[{kernel.window, kernel.device}];
    if (busy.size() < kernel.end) busy.resize(kernel.end);
    for (Nanoseconds t = kernel.start; t < kernel.end; ++t) busy[t] = true;
  }
  std::map<std::uint32_t, OverlapStatistics::Times> rows;
  for (const Kernel& kernel : kernels) {
    if (kernel.row == kCompute) continue;
    const auto& busy = computing[{kernel.window, kernel.device}];
    for (Nanoseconds t = kernel.start; t < kernel.end; ++t) {
      ++rows[kernel.row].time;
      if (t < busy.size() && busy[t]) ++rows[kernel.row].overlapped;
    }
  }
  return rows;
}

void check_equal(const OverlapStatistics& overlap, const std::vector<Kernel>& kernels) {
  const auto found = overlap.rows();
  const auto expected = plain(kernels);
  REQUIRE(found.size() == expected.size());
  for (const auto& [row, times] : expected) {
    REQUIRE(found.count(row) == 1);
    REQUIRE(found.at(row).time == times.time);
    REQUIRE(found.at(row).overlapped == times.overlapped);
  }
}

}  // namespace

TEST_CASE("Overlap is the part of a collective in which the device computed", "[collectives]") {
  OverlapStatistics overlap;
  overlap.expect_work();
  overlap.work(1, 0, 7, 100, 200);
  CHECK(overlap.rows().at(7).time == 100);
  CHECK(overlap.rows().at(7).overlapped == 0);
  overlap.beside(1, 0, 50, 120);   // overlaps its begin
  overlap.beside(1, 0, 110, 130);  // overlaps another one
  overlap.beside(1, 0, 150, 160);  // contained
  overlap.beside(1, 0, 190, 300);  // overlaps its end
  overlap.beside(1, 0, 200, 210);
  CHECK(overlap.rows().at(7).overlapped == 30 + 10 + 10);
  overlap.beside(1, 1, 100, 200);  // another device
  overlap.beside(2, 0, 100, 200);  // another window
  CHECK(overlap.rows().at(7).overlapped == 50);
  overlap.work(1, 0, 8, 155, 165);  // collectives do not count as computation for each other
  CHECK(overlap.rows().at(7).overlapped == 50);
  CHECK(overlap.rows().at(8).overlapped == 5);
  overlap.settle_window(1);
  CHECK(overlap.held() == 1);
  CHECK(overlap.rows().at(7).overlapped == 50);
  overlap.beside(1, 0, 100, 200);  // too late
  CHECK(overlap.late() == 1);
  CHECK(overlap.rows().at(7).overlapped == 50);
}

TEST_CASE("What runs before the first piece beside it may have run beside earlier ones", "[copies]") {
  OverlapStatistics overlap(true);
  overlap.work(1, 0, 7, 100, 200);
  CHECK(overlap.rows().empty());
  overlap.work(1, 0, 7, 250, 350);
  overlap.beside(1, 0, 300, 400);
  overlap.work(1, 0, 7, 500, 520);
  overlap.work(1, 1, 8, 100, 200);  // another device
  overlap.settle_window(1);
  const auto rows = overlap.rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows.at(7).time == 70);
  CHECK(rows.at(7).overlapped == 50);
}

TEST_CASE("Without collectives nothing is kept for their overlap", "[collectives]") {
  OverlapStatistics overlap;
  overlap.beside(1, 0, 100, 200);
  CHECK(overlap.held() == 0);
  overlap.work(1, 0, 1, 150, 250);
  overlap.beside(1, 0, 200, 220);
  overlap.beside(1, 0, 230, 230);  // empty
  CHECK(overlap.held() == 2);
  CHECK(overlap.rows().at(1).overlapped == 20);
}

TEST_CASE("Overlap does not depend on the order of the records", "[collectives]") {
  const unsigned seed = GENERATE(range(1u, 9u));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::vector<Kernel> kernels;
  for (unsigned i = 0; i < 600; ++i) {
    Kernel kernel;
    kernel.window = 1 + random() % 2;
    kernel.device = random() % 2;
    kernel.row = random() % 4 == 0 ? 1 + static_cast<std::uint32_t>(random() % 3) : kCompute;
    kernel.start = random() % 20'000;
    kernel.end = kernel.start + random() % (kernel.row == kCompute ? 60 : 300);
    kernels.push_back(kernel);
  }
  if (seed > 4) {
    std::sort(kernels.begin(), kernels.end(),
              [](const Kernel& a, const Kernel& b) { return a.start < b.start; });
  }
  // Kernels of no duration have no row unless others of that row have one.
  std::erase_if(kernels, [](const Kernel& kernel) { return kernel.start == kernel.end; });
  OverlapStatistics overlap;
  overlap.expect_work();
  for (const Kernel& kernel : kernels) feed(overlap, kernel);
  check_equal(overlap, kernels);
  overlap.settle_window(1);
  check_equal(overlap, kernels);
  overlap.settle_window(2);
  check_equal(overlap, kernels);
  CHECK(overlap.held() == 0);
  CHECK(overlap.late() == 0);
}

TEST_CASE("Overlap of a long window is bounded in memory and exact while records are nearly in order",
          "[collectives]") {
  OverlapStatistics overlap;
  overlap.expect_work();
  constexpr Nanoseconds kCount = 300 * 1024;
  std::size_t most = 0;
  // Computation for 60 of every 100 ns; every tenth time, a collective of 250 ns begins with it. Another
  // thread's buffer arrives a thousand records late.
  for (Nanoseconds i = 0; i < kCount; ++i) {
    const Nanoseconds place = i ^ 1000;
    overlap.beside(1, 0, place * 100, place * 100 + 60);
    if (place % 10 == 0) overlap.work(1, 0, 1, place * 100, place * 100 + 250);
    most = std::max(most, overlap.held());
  }
  CHECK(most <= OverlapStatistics::kMaxHeld);
  CHECK(overlap.late() == 0);
  CHECK(overlap.rows().at(1).time == kCount / 10 * 250);
  CHECK(overlap.rows().at(1).overlapped == kCount / 10 * 170);

  // Older than the retained history: reported as late, not guessed.
  overlap.beside(1, 0, 70, 90);
  overlap.work(1, 0, 1, 0, 100);
  CHECK(overlap.late() == 2);
  CHECK(overlap.rows().at(1).time == kCount / 10 * 250);
}

TEST_CASE("Kernels that all begin at one time, and computing without a gap, are bounded too",
          "[collectives]") {
  OverlapStatistics overlap;
  overlap.expect_work();
  std::size_t most = 0;
  for (unsigned i = 0; i < 200'000; ++i) {
    overlap.work(1, 0, 1, 1000, 1100);
    most = std::max(most, overlap.held());
  }
  CHECK(most <= OverlapStatistics::kMaxHeld);
  CHECK(overlap.rows().at(1).time + overlap.late() * 100 == 200'000 * 100);

  OverlapStatistics gapless;
  gapless.work(1, 0, 1, 500, 10'000'000);
  for (Nanoseconds i = 0; i < 200'000; ++i) gapless.beside(1, 0, i * 10, i * 10 + 10);
  CHECK(gapless.held() <= OverlapStatistics::kMaxHeld);
  CHECK(gapless.late() == 0);
  CHECK(gapless.rows().at(1).overlapped == 2'000'000 - 500);
}
