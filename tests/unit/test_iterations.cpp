// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/iterations.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

IterationBoundary boundary(std::uint64_t number, Nanoseconds begin, std::uint32_t window,
                           std::uint32_t window_before) {
  IterationBoundary result;
  result.number = number;
  result.begin = begin;
  result.window = window;
  result.window_before = window_before;
  return result;
}

/// A kernel that starts `delay` after its launch.
IterationActivity kernel(std::uint32_t window, Nanoseconds launch, Nanoseconds length,
                         Nanoseconds delay = 5) {
  IterationActivity result;
  result.window = window;
  result.launch_begin = launch;
  result.start = launch + delay;
  result.end = result.start + length;
  return result;
}

std::uint64_t kernel_time(const std::vector<IterationRow>& rows) {
  std::uint64_t total = 0;
  for (const IterationRow& row : rows) {
    for (const IterationDeviceRow& device : row.devices) total += device.work.kernels.sum;
  }
  return total;
}

using Kind = IterationRow::Kind;

}  // namespace

TEST_CASE("The latest step times, as far as they are kept", "[stats]") {
  IterationStatistics iterations;
  CHECK(iterations.recent_step_times(5).count() == 0);
  Nanoseconds begin = 1000;
  std::uint64_t number = 0;
  for (; number <= IterationStatistics::kMaxRecent + 2; begin += 10 + number++)
    iterations.boundary(boundary(number, begin, 1, number == 0 ? 0 : 1));
  iterations.settle_window(1, 0, begin);
  REQUIRE(iterations.step_times().count() == number - 1);
  const SampleStats recent = iterations.recent_step_times(3);
  CHECK((recent.count() == 3 && recent.max() == 10 + number - 2 && recent.min() == 10 + number - 4));
  CHECK(iterations.recent_step_times(0).count() == 0);
  CHECK(iterations.recent_step_times(number).count() == IterationStatistics::kMaxRecent);
}

TEST_CASE("The next iteration's work may begin long before this one's has ended", "[stats]") {
  for (const bool ahead : {false, true}) {
    IterationStatistics iterations;
    iterations.boundary(boundary(7, 100, 1, 0));
    iterations.activity(kernel(1, 100, 100, 400));
    iterations.boundary(boundary(8, 200, 1, 1));
    iterations.activity(kernel(1, 200, 5, ahead ? 200 : 395));
    iterations.boundary(boundary(9, 300, 0, 1));
    iterations.settle_window(1, 90, 310);
    const auto rows = iterations.rows();
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].devices[0].gap == 0u);
    CHECK(rows[0].devices[0].overlapped == ahead);
  }
}

TEST_CASE("Work belongs to the iteration in which it was launched", "[stats]") {
  IterationStatistics iterations;
  iterations.boundary(boundary(7, 100, 1, 0));
  // Runs long after the next iteration has begun on the host.
  iterations.launch(1, 100);
  iterations.activity(kernel(1, 100, 30, 500));
  iterations.launch(1, 199);
  iterations.activity(kernel(1, 199, 40, 431));
  iterations.boundary(boundary(8, 200, 1, 1));
  iterations.launch(1, 200);
  iterations.activity(kernel(1, 200, 50, 480));
  iterations.boundary(boundary(9, 300, 0, 1));
  iterations.settle_window(1, 90, 310);

  const auto rows = iterations.rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].kind == Kind::kPhase);
  CHECK(rows[0].window == 1);
  CHECK(rows[0].number == 7);
  CHECK(rows[0].complete);
  CHECK(rows[0].begin == 100);
  CHECK(rows[0].end == 200);
  CHECK(rows[0].launches == 2);
  REQUIRE(rows[0].devices.size() == 1);
  CHECK(rows[0].devices[0].work.kernels.count == 2);
  CHECK(rows[0].devices[0].work.kernels.sum == 70);
  CHECK(rows[0].devices[0].busy == 70);
  CHECK(rows[0].devices[0].gap == 10u);  // 670 … 680
  CHECK_FALSE(rows[0].devices[0].overlapped);
  CHECK(rows[0].gap == 10u);
  CHECK(rows[1].number == 8);
  CHECK(rows[1].complete);
  CHECK(rows[1].end == 300);
  CHECK(rows[1].launches == 1);
  CHECK_FALSE(rows[1].gap);
  CHECK(iterations.step_times().count() == 2);
  CHECK(iterations.step_times().sum() == 200);
  CHECK(iterations.window_step_times(1)->count() == 2);
  CHECK(iterations.window_step_times(2) == nullptr);
  CHECK(iterations.incomplete() == 0);
}

TEST_CASE("Boundaries may become known long after the work, at the end of the window at the latest",
          "[stats]") {
  IterationStatistics iterations;
  for (Nanoseconds launch = 0; launch < 50; ++launch) {
    iterations.launch(1, 1000 + launch * 10);
    iterations.activity(kernel(1, 1000 + launch * 10, 4));
  }
  // Counted as outside of iterations until boundaries are known.
  auto rows = iterations.rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].kind == Kind::kOutside);
  CHECK(rows[0].launches == 50);
  CHECK(kernel_time(rows) == 200);
  for (std::uint64_t i = 0; i < 4; ++i) iterations.boundary(boundary(i, 1100 + i * 100, 1, 1));
  CHECK(kernel_time(iterations.rows()) == 200);
  iterations.settle_window(1, 1000, 1495);
  rows = iterations.rows();
  REQUIRE(rows.size() == 5);
  CHECK(rows[0].kind == Kind::kOutside);
  CHECK(rows[0].launches == 10);
  for (std::size_t i = 1; i < 5; ++i) {
    CHECK(rows[i].launches == 10);
    CHECK(rows[i].devices[0].work.kernels.sum == 40);
    CHECK(rows[i].devices[0].busy == 40);
    CHECK(rows[i].complete == (i < 4));
  }
  // Cut off by the window's end, as far as is known.
  CHECK(rows[4].end == 1495);
  CHECK(iterations.incomplete() == 1);
  CHECK(iterations.step_times().count() == 3);
}

TEST_CASE("An iteration that ends with its window becomes complete when the next call shows it", "[stats]") {
  IterationStatistics iterations;
  iterations.boundary(boundary(0, 1000, 1, 0));
  iterations.boundary(boundary(1, 1100, 1, 1));
  iterations.activity(kernel(1, 1150, 10));
  iterations.settle_window(1, 1010, 1190);
  auto rows = iterations.rows();
  CHECK(rows[0].complete);
  CHECK(rows[0].begin == 1010);  // its first launch was delayed while the window opened
  CHECK_FALSE(rows[1].complete);
  CHECK(rows[1].end == 1190);
  CHECK(iterations.step_times().sum() == 90);

  SECTION("nothing was launched between the window's end and the next iteration") {
    iterations.boundary(boundary(2, 5000, 0, 1));
    rows = iterations.rows();
    CHECK(rows[1].complete);
    CHECK(rows[1].end == 1190);  // the time in between is not part of it
    CHECK(iterations.incomplete() == 0);
    CHECK(iterations.step_times().count() == 2);
    CHECK(iterations.window_step_times(1)->sum() == 180);
  }
  SECTION("the window's end cut it") {
    iterations.boundary(boundary(2, 5000, 0, 0));
    CHECK_FALSE(iterations.rows()[1].complete);
    CHECK(iterations.incomplete() == 1);
  }
  CHECK(iterations.rows().size() == 2);
}

TEST_CASE("A window that opens or closes within an iteration has a part of it", "[stats]") {
  IterationStatistics iterations;
  iterations.boundary(boundary(3, 1000, 0, 0));
  iterations.activity(kernel(1, 1050, 10));  // the window opens at 1040
  iterations.boundary(boundary(4, 1100, 1, 1));
  iterations.activity(kernel(1, 1110, 10));  // the window closes at 1150
  iterations.boundary(boundary(5, 1200, 0, 0));
  // Until the window closes, its end and the part of the iteration within it are unknown.
  REQUIRE(iterations.rows().size() == 2);
  CHECK(iterations.rows()[1].end == 0);
  iterations.settle_window(1, 1040, 1150);
  // A second window, entirely within one iteration.
  iterations.activity(kernel(2, 1220, 10));
  iterations.settle_window(2, 1210, 1230);
  const auto rows = iterations.rows();
  REQUIRE(rows.size() == 3);
  CHECK(std::tuple(rows[0].number, rows[0].begin, rows[0].end, rows[0].complete) ==
        std::tuple(3u, 1040u, 1100u, false));
  CHECK(std::tuple(rows[1].number, rows[1].begin, rows[1].end, rows[1].complete) ==
        std::tuple(4u, 1100u, 1150u, false));
  CHECK(std::tuple(rows[2].number, rows[2].begin, rows[2].end, rows[2].complete) ==
        std::tuple(5u, 1210u, 1230u, false));
  CHECK(rows[2].window == 2);
  CHECK(iterations.step_times().count() == 0);
  CHECK(iterations.incomplete() == 3);
}

TEST_CASE("What begins after its window's end is outside of iterations", "[stats]") {
  // Calls belong to a window until it has closed on all threads, some time after its end.
  IterationStatistics iterations;
  for (std::uint64_t i = 0; i < 5; ++i) {
    iterations.boundary(boundary(i, 100 + 100 * i, 1, i == 0 ? 0 : 1));
    iterations.launch(1, 100 + 100 * i);
    iterations.activity(kernel(1, 100 + 100 * i, 10, 1000 + 100 * i));
  }
  iterations.settle_window(1, 90, 300);
  iterations.boundary(boundary(5, 600, 0, 1));

  const auto rows = iterations.rows();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].kind == Kind::kOutside);
  CHECK(rows[0].launches == 3);
  REQUIRE(rows[0].devices.size() == 1);
  CHECK(rows[0].devices[0].work.kernels.count == 3);
  CHECK(rows[1].end == 200);
  CHECK(rows[2].number == 1);
  CHECK(rows[2].end == 300);
  CHECK(iterations.rows_of(1).size() == 2);
  // None of them counts as a step of no duration.
  CHECK(iterations.step_times().count() == 2);
  CHECK(iterations.step_times().min() == 100);
  CHECK(iterations.incomplete() == 0);
}

TEST_CASE("FLOPs of calls after their window's end are outside of iterations, launches or not", "[stats]") {
  IterationStatistics iterations;
  for (std::uint64_t i = 0; i < 3; ++i) iterations.boundary(boundary(i, 100 + 100 * i, 1, i == 0 ? 0 : 1));
  iterations.flops(1, 310, std::nullopt, 7);
  iterations.settle_window(1, 90, 300);
  iterations.boundary(boundary(3, 600, 0, 1));
  std::uint64_t sum = 0;
  for (const auto& row : iterations.rows()) sum += static_cast<std::uint64_t>(row.flops.total());
  CHECK(sum == 7);
}

TEST_CASE("An iteration of which work has no usable record is not complete", "[stats]") {
  IterationStatistics iterations;
  for (std::uint64_t i = 0; i < 4; ++i) iterations.boundary(boundary(i, 1000 + 100 * i, 1, i == 0 ? 0 : 1));
  SECTION("one of its launches") {
    iterations.lost_work(1, 1150);
  }
  SECTION("its last one, known before the boundary that ends it") {
    iterations.lost_work(1, 1199);
    iterations.boundary(boundary(4, 1400, 1, 1));
  }
  iterations.settle_window(1, 1000, 1390);
  const auto rows = iterations.rows();
  CHECK(rows[0].complete);
  CHECK_FALSE(rows[1].complete);
  CHECK(rows[2].complete);
  CHECK(iterations.step_times().sum() % 100 == (rows[3].complete ? 90 : 0));
}

TEST_CASE("A lost launch that is not known may be any iteration's of its window", "[stats]") {
  IterationStatistics iterations;
  for (std::uint64_t i = 0; i < 4; ++i)
    iterations.boundary(boundary(i, 1000 + 100 * i, i < 2 ? 1 : 2, i == 0 ? 0 : i < 3 ? 1 : 2));
  iterations.lost_work(1, 0);
  iterations.settle_window(1, 1000, 1150);
  iterations.settle_window(2, 1200, 1390);
  for (const auto& row : iterations.rows()) {
    INFO(row.number);
    CHECK(row.lost == (row.window == 1));
    if (row.window == 1) CHECK_FALSE(row.complete);
  }
}

TEST_CASE("More lost launches than are kept leave no complete iteration", "[stats]") {
  IterationStatistics iterations;
  for (std::uint64_t i = 0; i < 4; ++i) iterations.boundary(boundary(i, 1000 + 100 * i, 1, i == 0 ? 0 : 1));
  for (std::size_t i = 0; i <= IterationStatistics::kMaxLost; ++i) iterations.lost_work(1, 1150);
  iterations.settle_window(1, 1000, 1390);
  for (const auto& row : iterations.rows()) CHECK_FALSE(row.complete);
  CHECK(iterations.step_times().count() == 0);
}

TEST_CASE("From where nothing is followed work is outside of iterations", "[stats]") {
  IterationStatistics iterations;
  iterations.boundary(boundary(7, 100, 0, 0));
  IterationBoundary restart = boundary(0, 200, 0, 0);
  restart.followed = false;
  iterations.boundary(restart);
  iterations.launch(1, 350);
  iterations.boundary(boundary(1, 400, 1, 1));
  iterations.launch(1, 450);
  iterations.boundary(boundary(2, 500, 0, 1));
  iterations.settle_window(1, 300, 500);
  const auto rows = iterations.rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].kind == Kind::kOutside);
  CHECK(rows[0].launches == 1);
  CHECK(rows[1].number == 1);
  // Neither cut-off iterations nor those that were not followed are steps.
  CHECK(iterations.unprofiled_step_times().count() == 0);
}

TEST_CASE("Steps without CUPTI are forgotten when iterations turn out to be others", "[iterations]") {
  IterationStatistics iterations;
  const auto boundary = [&](std::uint64_t number, Nanoseconds begin, bool anew = false) {
    IterationBoundary next{number, begin};
    next.unprofiled_before = number > 0 && !anew;
    next.anew = anew;
    iterations.boundary(next);
  };
  for (std::uint64_t n = 0; n < 5; ++n) boundary(n, 100 + 10 * n);
  CHECK(iterations.unprofiled_step_times().count() == 4);
  boundary(1, 200, true);
  CHECK(iterations.unprofiled_step_times().count() == 0);
  CHECK(iterations.unprofiled_steps().empty());
  boundary(2, 240);
  CHECK(iterations.unprofiled_step_times().median() == 40);
}

TEST_CASE("Validation is seen and is no iteration", "[stats]") {
  IterationStatistics iterations;
  iterations.boundary(boundary(0, 1000, 1, 0));
  IterationBoundary validation = boundary(0, 1100, 1, 1);
  validation.label = IterationLabel::kValidation;
  iterations.boundary(validation);
  iterations.activity(kernel(1, 1500, 10));
  iterations.boundary(boundary(1, 2000, 1, 1));
  iterations.boundary(boundary(2, 2100, 1, 1));
  iterations.settle_window(1, 999, 2101);
  const auto rows = iterations.rows();
  REQUIRE(rows.size() == 4);
  CHECK(rows[1].label == IterationLabel::kValidation);
  CHECK(rows[1].complete);
  CHECK(rows[1].devices[0].work.kernels.sum == 10);
  CHECK(rows[2].number == 1);
  CHECK(iterations.step_times().count() == 2);
  CHECK(iterations.step_times().max() == 100);
  CHECK(iterations.phases(IterationLabel::kValidation) == 1);
  CHECK(iterations.phases(IterationLabel::kIteration) == 3);
}

TEST_CASE("Work whose launch was not seen is outside of iterations", "[stats]") {
  IterationStatistics iterations;
  iterations.boundary(boundary(0, 1000, 1, 0));
  IterationActivity unseen = kernel(1, 0, 10, 1005);
  iterations.activity(unseen);
  iterations.settle_window(1, 1000, 1100);
  const auto rows = iterations.rows();
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].kind == Kind::kOutside);
  CHECK(rows[0].devices[0].work.kernels.sum == 10);
  CHECK(rows[0].devices[0].work.unattributed == 1);
  CHECK(rows[1].devices.empty());
}

TEST_CASE("Gaps are a device's, and those in which no device works", "[stats]") {
  IterationStatistics iterations;
  const auto work = [&](std::uint16_t device, Nanoseconds launch, Nanoseconds start, Nanoseconds end) {
    IterationActivity activity;
    activity.window = 1;
    activity.device = device;
    activity.launch_begin = launch;
    activity.start = start;
    activity.end = end;
    iterations.activity(activity);
  };
  iterations.boundary(boundary(0, 100, 1, 0));
  work(1, 110, 200, 260);
  work(0, 120, 210, 220);
  iterations.boundary(boundary(1, 300, 1, 1));
  work(0, 310, 330, 340);
  work(1, 320, 400, 440);
  iterations.boundary(boundary(2, 350, 1, 1));
  work(1, 360, 420, 450);  // begins before its predecessor has ended
  iterations.settle_window(1, 0, 1000);
  const auto rows = iterations.rows();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].devices[0].device == 0);
  CHECK(rows[0].devices[0].gap == 110u);
  CHECK(rows[0].devices[1].gap == 140u);
  CHECK(rows[0].gap == 70u);
  CHECK_FALSE(rows[1].devices[0].gap);  // no work on it in the next iteration
  CHECK(rows[1].devices[1].gap == 0u);
  CHECK_FALSE(rows[2].gap);
}

TEST_CASE("Boundaries out of order are passed over and counted", "[stats]") {
  IterationStatistics iterations;
  iterations.boundary(boundary(0, 1000, 1, 0));
  iterations.boundary(boundary(1, 1000, 1, 1));
  iterations.boundary(boundary(2, 900, 1, 1));
  iterations.boundary(boundary(3, 1100, 1, 1));
  CHECK(iterations.lost() == 2);
  iterations.settle_window(1, 800, 1200);
  CHECK(iterations.rows().size() == 2);
}

TEST_CASE("What waits is bounded; iterations that it may be part of are not complete", "[stats]") {
  IterationStatistics iterations;
  constexpr std::uint64_t kCount = IterationStatistics::kMaxWaiting + 1000;
  for (std::uint64_t i = 0; i < kCount; ++i) iterations.activity(kernel(1, 10'000 + i, 1));
  CHECK(iterations.lost() == 0);  // not in any iteration yet
  constexpr Nanoseconds kStep = kCount / 8;
  for (std::uint64_t i = 0; i < 8; ++i)
    iterations.boundary(boundary(i, 10'000 + i * kStep, 1, i == 0 ? 0 : 1));
  iterations.boundary(boundary(8, 10'000 + kCount, 0, 1));
  iterations.settle_window(1, 9'000, 10'000 + kCount);
  CHECK(iterations.lost() == IterationStatistics::kMaxWaiting / 2);
  const auto rows = iterations.rows();
  REQUIRE(rows.size() == 9);
  CHECK(kernel_time(rows) == kCount);
  CHECK_FALSE(rows[1].complete);
  CHECK_FALSE(rows[4].complete);
  CHECK(rows[6].complete);
  CHECK(rows[6].devices[0].work.kernels.count == kStep);
  CHECK(rows[8].complete);
  CHECK(iterations.incomplete() == 4);
}

TEST_CASE("Without any boundary nothing is lost, however much is launched", "[stats]") {
  IterationStatistics iterations;
  for (std::uint64_t i = 0; i < 2 * IterationStatistics::kMaxWaiting; ++i) {
    iterations.activity(kernel(1, 10'000 + i, 1));
  }
  iterations.settle_window(1, 9'000, 1'000'000);
  const auto rows = iterations.rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].kind == Kind::kOutside);
  CHECK(kernel_time(rows) == 2 * IterationStatistics::kMaxWaiting);
  CHECK(iterations.lost() == 0);
}

TEST_CASE("The oldest rows share one when there are too many, and nothing is lost from the sums", "[stats]") {
  IterationStatistics iterations;
  constexpr std::uint64_t kCount = IterationStatistics::kMaxRows + 500;
  for (std::uint64_t i = 0; i <= kCount; ++i) {
    iterations.boundary(boundary(i, 1000 + i * 100, i < kCount ? 1 : 0, i == 0 ? 0 : 1));
    if (i == kCount) break;
    iterations.launch(1, 1000 + i * 100);
    iterations.activity(kernel(1, 1000 + i * 100, 60));
  }
  iterations.activity(kernel(1, 1050, 5, 60));  // of a row that was dropped
  iterations.settle_window(1, 1000, 1000 + kCount * 100);
  const auto rows = iterations.rows();
  REQUIRE(rows.size() == IterationStatistics::kMaxRows + 1);
  CHECK(rows.front().number == 500);
  CHECK(rows.back().kind == Kind::kOlder);
  CHECK(rows.back().launches == 500);
  CHECK(rows.back().devices[0].work.kernels.count == 501);
  CHECK(rows.back().devices[0].busy == 500 * 60);
  CHECK(kernel_time(rows) == kCount * 60 + 5);
  CHECK(iterations.step_times().count() == kCount);
  CHECK(iterations.window_step_times(1)->sum() == kCount * 100);
}

TEST_CASE("Iterations of random runs agree with plain counting", "[stats]") {
  const unsigned seed = GENERATE(range(1u, 13u));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&random](std::uint64_t limit) { return random() % limit; };

  // Windows and boundaries anywhere, one launch every 10 ns.
  constexpr Nanoseconds kEnd = 200'000;
  struct Window {
    Nanoseconds begin;
    Nanoseconds end;
  };
  std::vector<Window> windows;
  for (Nanoseconds time = 1000 + below(5000); time < kEnd;) {
    const Nanoseconds end = std::min<Nanoseconds>(time + 2000 + below(40'000), kEnd);
    windows.push_back({time, end});
    time = end + 1 + below(10'000);
  }
  const auto window_at = [&](Nanoseconds time) -> std::uint32_t {
    for (std::size_t i = 0; i < windows.size(); ++i) {
      if (time >= windows[i].begin && time < windows[i].end) return static_cast<std::uint32_t>(i + 1);
    }
    return 0;
  };
  std::vector<IterationBoundary> boundaries;
  for (Nanoseconds begin = 500; begin < kEnd; begin += 10 * (20 + below(300))) {
    boundaries.push_back(boundary(boundaries.size(), begin, window_at(begin), window_at(begin - 10)));
    if (below(5) == 0) boundaries.back().label = IterationLabel::kValidation;
  }
  const auto number_at = [&](Nanoseconds launch) {
    std::uint64_t found = 0;  // 1 + index
    for (; found < boundaries.size() && boundaries[found].begin <= launch; ++found) {
    }
    return found;
  };

  using Key = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>;  // window, boundary, device
  std::map<Key, BusyTime> busy;
  std::map<Key, std::uint64_t> kernels, copy_bytes;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> launches;
  std::vector<IterationActivity> activities;
  for (Nanoseconds launch = 10; launch < kEnd; launch += 10) {
    IterationActivity activity = kernel(window_at(launch), launch, 1 + below(15), 5 + below(3000));
    if (activity.window == 0) continue;
    activity.device = static_cast<std::uint16_t>(below(2));
    activity.kind = static_cast<WorkKind>(below(3));
    activity.bytes = below(100);
    if (below(100) == 0) activity.launch_begin = 0;
    activities.push_back(activity);
    const Key key{activity.window, activity.launch_begin == 0 ? 0 : number_at(launch), activity.device};
    busy[key].add(activity.start, activity.end);
    if (activity.kind == WorkKind::kKernel) kernels[key] += activity.end - activity.start;
    if (activity.kind == WorkKind::kCopy) copy_bytes[key] += activity.bytes;
  }

  // In order of arrival: launches in order, activity by its end, with one thread late for long periods,
  // boundaries up to `lag` late, and windows settled after everything that was launched in them.
  const Nanoseconds lag = below(3) * 8000;
  IterationStatistics iterations;
  std::stable_sort(activities.begin(), activities.end(),
                   [](const auto& a, const auto& b) { return (a.end ^ 512) < (b.end ^ 512); });
  std::size_t next_boundary = 0;
  std::size_t next_activity = 0;
  std::size_t next_window = 0;
  for (Nanoseconds time = 10; next_window < windows.size(); time += 10) {
    if (const std::uint32_t window = window_at(time); window != 0) {
      iterations.launch(window, time);
      ++launches[{window, number_at(time)}];
    }
    while (next_activity < activities.size() && activities[next_activity].end + 1500 < time) {
      iterations.activity(activities[next_activity++]);
    }
    while (next_boundary < boundaries.size() && boundaries[next_boundary].begin + lag < time) {
      iterations.boundary(boundaries[next_boundary++]);
    }
    if (time > windows[next_window].end + 8000) {
      while (next_boundary < boundaries.size() &&
             boundaries[next_boundary].begin < windows[next_window].end) {
        iterations.boundary(boundaries[next_boundary++]);
      }
      const auto number = static_cast<std::uint32_t>(next_window + 1);
      iterations.settle_window(number, windows[next_window].begin, windows[next_window].end);
      ++next_window;
    }
  }
  while (next_boundary < boundaries.size()) iterations.boundary(boundaries[next_boundary++]);

  std::uint64_t found_launches = 0;
  std::uint64_t complete = 0;
  for (const IterationRow& row : iterations.rows()) {
    REQUIRE(row.kind != Kind::kOlder);
    const Window window = windows[row.window - 1];
    const std::uint64_t number = row.kind == Kind::kOutside ? 0 : row.number + 1;
    INFO("window " << row.window << ", boundary " << number);
    CHECK(row.launches == launches[{row.window, number}]);
    found_launches += row.launches;
    for (const IterationDeviceRow& device : row.devices) {
      const Key key{row.window, number, device.device};
      CHECK(device.work.kernels.sum == kernels[key]);
      CHECK(device.work.copy_bytes == copy_bytes[key]);
      if (number != 0) CHECK(device.busy == busy[key].busy());
      busy.erase(key);
    }
    if (number == 0) continue;
    const Nanoseconds begin = boundaries[row.number].begin;
    const Nanoseconds end = row.number + 1 < boundaries.size() ? boundaries[row.number + 1].begin : kEnd;
    CHECK(row.begin == std::max(begin, window.begin));
    CHECK(row.end == std::min(end, window.end));
    const bool whole = begin >= window.begin && begin < window.end && row.number + 1 < boundaries.size() &&
                       window_at(end - 10) == row.window;
    CHECK(row.complete == whole);
    complete += whole && row.label == IterationLabel::kIteration ? 1 : 0;
  }
  CHECK(busy.empty());  // every key had its row
  std::uint64_t all_launches = 0;
  for (const auto& [key, count] : launches) all_launches += count;
  CHECK(found_launches == all_launches);
  CHECK(iterations.step_times().count() == complete);
  CHECK(iterations.late() == 0);
  CHECK(iterations.lost() == 0);
}

TEST_CASE("Iterations, what is outside of them, and windows add up to the same", "[stats]") {
  StatsRun run;
  std::mt19937 random(5);
  for (std::uint32_t window = 1; window <= 3; ++window) {
    const Nanoseconds begin = window * 100'000;
    for (Nanoseconds time = begin; time < begin + 50'000; time += 50) {
      if (time % 1000 == 0 && time != begin) {
        run.statistics.iteration_boundary(boundary(time / 1000, time, window, window));
      }
      CallEvent call = call_event("cudaLaunchKernel", 3);
      call.window = window;
      call.correlation = 1;
      call.begin = time;
      call.end = time + 3;
      run.statistics.add(call);
      KernelEvent event = run.kernel("k", 0);
      event.launch.window = window;
      event.launch.host_begin = time;
      event.launch.known = random() % 50 != 0;
      event.device = static_cast<std::uint32_t>(random() % 2);
      event.start = time + 5;
      event.end = event.start + random() % 100;
      run.statistics.add(event);
      TransferEvent copy = copy_event(1, random() % 1000, 0);
      copy.launch = event.launch;
      copy.start = event.start + 1;
      copy.end = copy.start + random() % 40;
      run.statistics.add(copy);
    }
    if (window == 2) run.statistics.settle_window(window, begin, begin + 50'000);
  }
  std::map<std::uint32_t, DeviceWork> windows;
  std::map<std::uint32_t, std::uint64_t> launches;
  for (const IterationRow& row : run.statistics.iterations().rows()) {
    launches[row.window] += row.launches;
    for (const IterationDeviceRow& device : row.devices) windows[row.window].merge(device.work);
  }
  std::map<std::uint32_t, DeviceWork> expected;
  for (const WindowDeviceRow& row : run.statistics.window_devices()) {
    expected[row.window].merge(row.work);
    CHECK(row.busy <= row.last - row.first);
    CHECK(row.busy <= row.work.kernels.sum + row.work.copy_time);
    CHECK(row.busy >= row.work.kernels.sum / 3);
  }
  REQUIRE(windows.size() == 3);
  for (const auto& [window, work] : expected) {
    CHECK(windows[window].kernels.sum == work.kernels.sum);
    CHECK(windows[window].kernels.count == work.kernels.count);
    CHECK(windows[window].copies == work.copies);
    CHECK(windows[window].copy_bytes == work.copy_bytes);
    CHECK(windows[window].unattributed == work.unattributed);
  }
  for (const WindowHostRow& row : run.statistics.window_hosts()) {
    CHECK(launches[row.window] == row.work.submissions);
  }
}
