// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/fetches.h"

#include <array>
#include <vector>

#include "libinject/capture/torch/loader_fetch.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr Nanoseconds kNotOver = ~Nanoseconds{0};

FetchEvent fetch_event(std::uint32_t thread, Nanoseconds begin, Nanoseconds end,
                       FetchKind kind = FetchKind::kWaiting, FetchThread by = FetchThread::kSteps) {
  return {1, thread, kind, by, begin, end};
}

/// Window 1, from 50 to 500, with iterations that begin at 100, 200 and 300.
struct FetchRun {
  IterationStatistics iterations;
  FetchStatistics fetches;

  FetchRun() {
    for (const Nanoseconds begin : {Nanoseconds{100}, Nanoseconds{200}, Nanoseconds{300}}) {
      IterationBoundary boundary;
      boundary.number = begin / 100;
      boundary.begin = begin;
      boundary.window = 1;
      boundary.window_before = begin == 100 ? 0 : 1;
      iterations.boundary(boundary);
    }
  }
  void settle() {
    iterations.settle_window(1, 50, 500);
    fetches.settle_window(1, 50, 500, iterations);
  }
  /// Times of each iteration, then of the window.
  std::vector<std::optional<FetchTimes>> times() const {
    std::vector<std::optional<FetchTimes>> result;
    for (const IterationRow& row : iterations.rows()) result.push_back(fetches.of(row));
    result.push_back(fetches.of_window(1));
    return result;
  }
};

using FetchList = std::vector<std::optional<FetchTimes>>;

FetchTimes waited(std::uint64_t time) {
  return {time, 0};
}

}  // namespace

TEST_CASE("A fetch is told by the name of its function", "[stats]") {
  CHECK(fetch_kind("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__") == FetchKind::kWaiting);
  CHECK(fetch_kind("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__") == FetchKind::kProcessing);
  CHECK(fetch_kind("enumerate(DataLoader)#_StatefulMultiProcessingDataLoaderIter.__next__") ==
        FetchKind::kWaiting);
  for (const char* name : {"", "enumerate(DataLoader)#", "enumerate(DataLoader)#X.__iter__", "X.__next__",
                           "Optimizer.step#_MultiProcessingDataLoaderIter.__next__"})
    CHECK(!fetch_kind(name));
}

TEST_CASE("Of a stretch of time, what lies in a thread's fetches", "[stats]") {
  std::vector<HostFetch> fetches;
  CHECK(add_fetch(fetches, {10, 0, FetchKind::kWaiting}));
  CHECK(fetch_times(fetches, 0, 100) == waited(90));  // has not ended yet
  CHECK(!add_fetch(fetches, {10, 20, FetchKind::kWaiting}));
  CHECK(add_fetch(fetches, {20, 30, FetchKind::kProcessing}));
  CHECK(add_fetch(fetches, {40, 60, FetchKind::kWaiting}));
  CHECK(fetch_times(fetches, 0, 100) == FetchTimes{30, 10});
  CHECK(fetch_times(fetches, 15, 45) == FetchTimes{10, 10});
  CHECK(fetch_times(fetches, 45, 50) == waited(5));
  CHECK(fetch_times(fetches, 30, 40) == FetchTimes{});
  CHECK(fetch_times(fetches, 60, 100) == FetchTimes{});
  CHECK(fetch_times(fetches, 50, 50) == FetchTimes{});

  // Impossible fetches add nothing, whatever caused them.
  CHECK(!add_fetch(fetches, {35, 38, FetchKind::kWaiting}));
  CHECK(!add_fetch(fetches, {50, 70, FetchKind::kWaiting}));
  CHECK(!add_fetch(fetches, {80, 79, FetchKind::kWaiting}));
  CHECK(fetches.size() == 3);
  // The record of an end is missing.
  CHECK(add_fetch(fetches, {100, 0, FetchKind::kWaiting}));
  CHECK(add_fetch(fetches, {200, 210, FetchKind::kWaiting}));
  CHECK(fetches[3].end != kNotOver);
  CHECK(fetch_times(fetches, 90, 300) == waited(10));
}

TEST_CASE("Time in fetches by iteration, clipped to it and to the window", "[stats]") {
  FetchRun run;
  run.fetches.fetch(fetch_event(3, 20, 60));  // before the first boundary; 10 of it within the window
  run.fetches.fetch(fetch_event(3, 150, 160));
  run.fetches.fetch(fetch_event(3, 190, 0));  // across the boundary
  run.fetches.fetch(fetch_event(3, 190, 205));
  run.fetches.fetch(fetch_event(3, 210, 220, FetchKind::kProcessing));
  run.fetches.fetch(fetch_event(3, 480, 0));  // until the window closes
  CHECK(run.times() == FetchList{{}, {}, {}, {}});
  run.settle();
  CHECK(run.times() == FetchList{waited(20), FetchTimes{5, 10}, waited(20), FetchTimes{55, 10}});
  // Too late.
  run.fetches.fetch(fetch_event(3, 230, 240));
  run.settle();
  CHECK(run.times() == FetchList{waited(20), FetchTimes{5, 10}, waited(20), FetchTimes{55, 10}});
}

TEST_CASE("Of a window whose times are not known, those of its whole iterations are", "[stats]") {
  FetchRun run;
  run.fetches.fetch(fetch_event(3, 110, 120));
  run.iterations.settle_window(1, 0, 0);
  run.fetches.settle_window(1, 0, 0, run.iterations);
  CHECK(run.times() == FetchList{waited(10), FetchTimes{}, {}, {}});
}

TEST_CASE("Nothing is said of fetches where there are none", "[stats]") {
  FetchRun run;
  run.fetches.kernel(1, 3);
  run.settle();
  CHECK(run.times() == FetchList{{}, {}, {}, {}});
  CHECK(!run.fetches.any());
  // Once the program has fetched, windows without fetches report none.
  run.fetches.kernel(2, 3);
  FetchEvent later = fetch_event(3, 600, 610);
  later.window = 2;
  run.fetches.fetch(later);
  run.fetches.settle_window(2, 590, 700, run.iterations);
  CHECK(run.fetches.any());
  CHECK(run.times() == FetchList{FetchTimes{}, FetchTimes{}, FetchTimes{}, FetchTimes{}});
  CHECK(run.fetches.of_window(2) == waited(10));
  CHECK(!run.fetches.of_window(3));
}

TEST_CASE("Only the fetches of the thread that trains count", "[stats]") {
  const auto counted = [](FetchThread first, FetchThread second, int first_kernels, int second_kernels) {
    FetchRun run;
    run.fetches.fetch(fetch_event(3, 110, 120, FetchKind::kWaiting, first));
    run.fetches.fetch(fetch_event(4, 110, 140, FetchKind::kWaiting, second));
    for (int i = 0; i < first_kernels; ++i) run.fetches.kernel(1, 3);
    for (int i = 0; i < second_kernels; ++i) run.fetches.kernel(1, 4);
    run.settle();
    const auto times = run.fetches.of_window(1);
    return times ? static_cast<int>((*times)[0]) : -1;
  };
  using enum FetchThread;
  // The thread that steps, whatever it launches.
  CHECK(counted(kSteps, kOther, 0, 9) == 10);
  CHECK(counted(kOther, kSteps, 9, 0) == 30);
  // Its first fetch was before its first step.
  CHECK(counted(kAny, kOther, 9, 9) == -1);
  // The stepping thread gets its batches from others.
  CHECK(counted(kOther, kOther, 9, 9) == -1);
  CHECK(counted(kSteps, kSteps, 1, 2) == 30);
  // No thread steps.
  CHECK(counted(kAny, kAny, 2, 1) == 10);
  CHECK(counted(kAny, kAny, 0, 1) == 30);
  CHECK(counted(kAny, kAny, 0, 0) == -1);
}

TEST_CASE("A bounded number of fetches is held", "[stats]") {
  FetchRun run;
  run.fetches = FetchStatistics(4);
  for (Nanoseconds begin = 110; begin < 410; begin += 50)
    run.fetches.fetch(fetch_event(3, begin, begin + 10));
  run.settle();
  // Fetches that began at 110, 160 and 210 are no longer kept.
  CHECK(run.times() == FetchList{{}, {}, waited(20), {}});

  FetchStatistics many;
  for (std::uint32_t window = 1; window <= FetchStatistics::kMaxUnsettled + 1; ++window) {
    FetchEvent event = fetch_event(3, 110, 120);
    event.window = window;
    many.fetch(event);
  }
  many.settle_window(2, 50, 500, run.iterations);
  CHECK(!many.of_window(1));
  CHECK(many.of_window(2) == waited(10));
}
