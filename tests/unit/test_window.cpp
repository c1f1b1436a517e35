// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <atomic>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/session/launch_windows.h"
#include "libinject/session/schedule.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {
WindowSpec spec(std::uint64_t start, std::uint64_t count, std::uint64_t every = 0, std::uint32_t most = 0) {
  WindowSpec result;
  result.kind = WindowKind::kLaunch;
  result.start = start;
  result.count = count;
  result.every = every;
  result.max_windows = most;
  return result;
}
}  // namespace

TEST_CASE("a schedule without repetition has one window") {
  Schedule schedule(spec(100, 10));
  auto window = schedule.next(0);
  REQUIRE(window);
  CHECK(window->begin == 100);
  CHECK(window->end == 110);
  schedule.advance();
  CHECK(schedule.done());
  CHECK_FALSE(schedule.next(200));
}

TEST_CASE("a repeated window starts every EVERY, start to start, at most N times") {
  Schedule schedule(spec(100, 10, 50, 3));
  for (const std::uint64_t begin : {100u, 150u, 200u}) {
    const auto window = schedule.next(begin);
    REQUIRE(window);
    CHECK(window->begin == begin);
    CHECK(window->end == begin + 10);
    schedule.advance();
  }
  CHECK_FALSE(schedule.next(250));
}

TEST_CASE("windows that have passed are skipped") {
  Schedule schedule(spec(100, 10, 50));
  CHECK(schedule.next(99)->begin == 100);
  CHECK(schedule.next(109)->begin == 100);
  CHECK(schedule.next(110)->begin == 150);
  CHECK(schedule.next(1'000'000)->begin == 1'000'000);
  CHECK(schedule.next(1'000'010)->begin == 1'000'050);
}

TEST_CASE("a window's end beyond the axis is cut, not wrapped") {
  Schedule schedule(spec(~std::uint64_t{0} - 5, 100));
  const auto window = schedule.next(0);
  REQUIRE(window);
  CHECK(window->end == ~std::uint64_t{0});
}

TEST_CASE("the window log follows windows from opening to settlement") {
  WindowLog log;
  CHECK(log.opened() == 0);
  const std::uint32_t one = log.open("api", 1000);
  CHECK(one == 1);
  CHECK(log.at(999) == 0);
  CHECK(log.at(5000) == 1);
  log.end(one, 2000);
  CHECK(log.at(2000) == 1);
  CHECK(log.at(2001) == 0);
  CHECK(log.opened_by(999) == 0);
  CHECK(log.opened_by(2001) == 1);
  CHECK(log.closing() == std::vector<std::uint32_t>{1});
  log.settle();
  CHECK(log.closing().empty());

  CHECK(log.open("api", 3000) == 2);
  CHECK(log.opened() == 2);
  CHECK(log.copy().size() == 2);
}

TEST_CASE("records that were dropped belong to the window that was open last") {
  using Row = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>;
  const auto rows = [](const WindowLog& log, HostDrops before, HostDrops dropped) {
    std::vector<Row> shares;
    for (const auto& [window, drops] : log.shares(before, dropped))
      shares.emplace_back(window, drops.calls, drops.ranges);
    return shares;
  };
  WindowLog log;
  CHECK(rows(log, {}, {}).empty());
  CHECK(rows(log, {}, {5, 0}) == std::vector<Row>{{0, 5, 0}});
  log.open("api", 1000, {10, 0});
  log.open("api", 2000, {10, 3});
  log.open("api", 3000, {14, 7});
  CHECK(rows(log, {10, 0}, {20, 8}) == std::vector<Row>{{3, 6, 1}, {2, 4, 4}, {1, 0, 3}});
  CHECK(rows(log, {16, 7}, {20, 7}) == std::vector<Row>{{3, 4, 0}});
  CHECK(rows(log, {20, 7}, {20, 7}).empty());
  CHECK(rows(log, {8, 0}, {12, 1}) == std::vector<Row>{{2, 2, 0}, {1, 0, 1}, {0, 2, 0}});
  log.open("launch:1+1", 4000);  // opened by itself, when nobody was counting
  CHECK(rows(log, {12, 2}, {20, 8}) == std::vector<Row>{{4, 8, 6}});
}

TEST_CASE("readings of the devices' memory belong to the edges before them") {
  using Used = WindowLog::MemoryUsed;
  WindowLog log;
  CHECK_FALSE(log.lacks_memory());
  log.note_memory(10, 10, Used{{0, 1}});
  const std::uint32_t one = log.open("api", 1000);
  CHECK(log.lacks_memory());
  log.note_memory(999, 999, Used{{0, 2}});  // the reading began before the window
  CHECK(log.lacks_memory());
  log.note_memory(1010, 1010, Used{{0, 3}, {1, 30}});
  CHECK_FALSE(log.lacks_memory());
  log.note_memory(1020, 1020, Used{{0, 4}});  // no reading was requested
  log.end(one, 2000);
  CHECK(log.lacks_memory());
  log.note_memory(1999, 1999, Used{{0, 5}});
  CHECK(log.lacks_memory());
  const std::uint32_t two = log.open("api", 2100);
  log.note_memory(2200, 2200, Used{{0, 6}});  // counts for both windows
  CHECK_FALSE(log.lacks_memory());
  log.end(two, 2300);
  // It ends before anybody could read.
  log.end(log.open("api", 2400), 2410);
  CHECK(log.lacks_memory());
  log.note_memory(2500, 2500, Used{{0, 7}});
  CHECK_FALSE(log.lacks_memory());

  const std::vector<WindowInfo> windows = log.copy();
  REQUIRE(windows[0].memory.size() == 2);
  CHECK(windows[0].memory[0].at_start == 3u);
  CHECK(windows[0].memory[0].at_end == 6u);
  CHECK(windows[0].memory[1].device == 1);
  CHECK(windows[0].memory[1].at_start == 30u);
  CHECK_FALSE(windows[0].memory[1].at_end);
  CHECK(windows[1].memory[0].at_start == 6u);
  CHECK(windows[1].memory[0].at_end == 7u);
  CHECK_FALSE(windows[2].memory[0].at_start);
  CHECK(windows[2].memory[0].at_end == 7u);
}

TEST_CASE("a reading of the devices' memory long after an edge is not the edge's") {
  constexpr Nanoseconds kMs = 1'000'000;
  constexpr Nanoseconds kOpened = 1000 * kMs;
  const WindowLog::MemoryUsed used{{0, 1}};
  const auto memory = [&](Nanoseconds after_start, Nanoseconds length, Nanoseconds after_end) {
    WindowLog log;
    const std::uint32_t number = log.open("api", kOpened);
    // Begun at once.
    log.note_memory(kOpened, kOpened + after_start, used);
    const bool while_open = !log.copy()[0].memory.empty();
    CHECK(while_open == (after_start <= 100 * kMs));
    const Nanoseconds end = kOpened + length;
    log.end(number, end);
    log.note_memory(end + after_end, end + after_end, used);
    CHECK_FALSE(log.lacks_memory());
    WindowMemory edges;
    const std::vector<WindowInfo> windows = log.copy();
    for (const WindowMemory& known : windows[0].memory) edges = known;
    return std::make_pair(edges.at_start.has_value(), edges.at_end.has_value());
  };
  using Edges = std::pair<bool, bool>;
  CHECK(memory(100 * kMs, 500 * kMs, 100 * kMs) == Edges{true, true});
  CHECK(memory(300 * kMs, 500 * kMs, 100 * kMs) == Edges{false, true});
  CHECK(memory(100 * kMs, 500 * kMs, 101 * kMs) == Edges{true, false});
  CHECK(memory(300 * kMs, 2999 * kMs, 300 * kMs) == Edges{});
  CHECK(memory(300 * kMs, 3000 * kMs, 300 * kMs) == Edges{true, true});
}

TEST_CASE(
    "the window log lists the first ten thousand and the latest, and counts the rest with their losses") {
  constexpr std::uint32_t kOpened = 21'600;
  WindowLog log;
  Losses one_lost;
  one_lost.host_records = 1;
  for (std::uint32_t i = 1; i <= kOpened; ++i) {
    const std::uint32_t number = log.open("api", i * 10);
    log.add_losses(number, one_lost);
    log.end(number, i * 10 + 5);
    log.settle();
    if (i % 1000 != 0 && i != kOpened) continue;
    const std::vector<WindowInfo> listed = log.copy();
    CHECK(listed.size() + log.not_listed() == i);
    std::uint64_t lost = log.losses_outside().host_records;
    for (const WindowInfo& window : listed) lost += window.losses.host_records;
    CHECK(lost == i);
    CHECK(log.total_time() == Nanoseconds{i} * 5);
  }
  CHECK(log.lacks_memory());
  log.note_memory(1'000'000, 1'000'000, {});
  CHECK_FALSE(log.lacks_memory());

  const std::vector<WindowInfo> listed = log.copy();
  REQUIRE(listed.size() == 10'100);
  CHECK(listed.front().number == 1);
  CHECK(listed[9'999].number == 10'000);
  CHECK(listed[10'000].number == kOpened - 99);
  CHECK(listed.back().number == kOpened);
  CHECK(listed[9'999].end == 100'005);
  // Records may arrive for the latest ten thousand windows.
  CHECK(log.at((kOpened - 9'999) * 10) == kOpened - 9'999);
  CHECK(log.at((kOpened - 10'000) * 10) == 0);
}

namespace {
/// Two megabytes for edges.
std::unique_ptr<LaunchTrigger> trigger(std::uint64_t start, std::uint64_t length, std::uint64_t every,
                                       std::uint64_t most) {
  auto result = std::make_unique<LaunchTrigger>();
  result->start = start;
  result->length = length;
  result->every = every;
  result->most_windows = most;
  return result;
}

/// Launch n is at 1000 + 10 n.
void launch(LaunchTrigger& trigger, std::uint64_t launches) {
  for (; launches != 0; --launches)
    trigger.next([&] { return 1000 + 10 * trigger.count.load(std::memory_order_relaxed); });
}

using Edges = std::tuple<Nanoseconds, Nanoseconds>;
Edges edges(const WindowLog& log, std::uint32_t window) {
  return {log.span(window).begin, log.span(window).end};
}
}  // namespace

TEST_CASE("a launch's number says which window it lies in, opens and closes") {
  const auto at = [](const LaunchTrigger& trigger, std::uint64_t number) {
    const LaunchTrigger::Launch launch = trigger.launch(number);
    return std::make_tuple(launch.window, launch.opens, launch.closes);
  };
  const auto apart = trigger(5, 2, 10, 2);
  CHECK(at(*apart, 4) == std::make_tuple(0, 0, 0));
  CHECK(at(*apart, 5) == std::make_tuple(1, 1, 0));
  CHECK(at(*apart, 6) == std::make_tuple(1, 0, 0));
  CHECK(at(*apart, 7) == std::make_tuple(0, 0, 1));
  CHECK(at(*apart, 8) == std::make_tuple(0, 0, 0));
  CHECK(at(*apart, 15) == std::make_tuple(2, 2, 0));
  CHECK(at(*apart, 17) == std::make_tuple(0, 0, 2));
  CHECK(at(*apart, 25) == std::make_tuple(0, 0, 0));
  // Windows that follow each other without a launch in between.
  const auto joined = trigger(0, 3, 3, 2);
  CHECK(at(*joined, 3) == std::make_tuple(2, 2, 1));
  CHECK(at(*joined, 6) == std::make_tuple(0, 0, 2));
  CHECK(at(*joined, 9) == std::make_tuple(0, 0, 0));
  const auto once = trigger(1, 3, 0, 1);
  CHECK(at(*once, 1) == std::make_tuple(1, 1, 0));
  CHECK(at(*once, 4) == std::make_tuple(0, 0, 1));
  CHECK(at(*once, 5) == std::make_tuple(0, 0, 0));
}

TEST_CASE("windows that launches open and close are entered with their own times") {
  const auto some = trigger(0, 2, 5, 1000);
  WindowLog log;
  LaunchWindows windows(*some, log, "launch:0+2/5x1000");
  launch(*some, 1500);  // 300 windows between two looks
  CHECK_FALSE(windows.up_to_date());
  windows.note();
  CHECK(windows.up_to_date());
  REQUIRE(log.opened() == 300);
  for (std::uint32_t window = 1; window <= 300; ++window) {
    const Nanoseconds begin = 1000 + 50 * (Nanoseconds{window} - 1);
    CHECK(edges(log, window) == Edges{begin, begin + 20});
  }
  launch(*some, 1);
  windows.note();
  CHECK(edges(log, 301) == Edges{1000 + 50 * 300, 0});
  windows.finish(99'999);
  CHECK(edges(log, 301) == Edges{1000 + 50 * 300, 99'999});
  CHECK(log.without_times() == 0);
}

TEST_CASE("the latest window that had ended by a time") {
  WindowLog log;
  CHECK(log.ended_by(50) == 0);
  log.end(log.open("one", 100), 200);
  log.open("two", 300);
  CHECK(log.ended_by(199) == 0);
  CHECK(log.ended_by(200) == 1);
  CHECK(log.ended_by(400) == 1);
  log.end(2, 350);
  CHECK(log.ended_by(349) == 1);
  CHECK(log.ended_by(400) == 2);
}

TEST_CASE("a window whose edge was overwritten before it was read has no times, and is counted") {
  const auto some = trigger(0, 1, 2, std::uint64_t{1} << 31);
  WindowLog log;
  LaunchWindows windows(*some, log, "launch:0+1/2");
  launch(*some, 1);
  windows.note();  // the first window is open
  launch(*some, 2 * (EdgeTimes::kPlaces + 2));
  windows.note();
  REQUIRE(log.opened() == EdgeTimes::kPlaces + 3);
  CHECK(log.without_times() == 3);
  CHECK(log.copy()[0].state == WindowState::kClosing);
  CHECK(log.at(1000) == 0);
  CHECK(log.opened_by(1000 + 20 * 2) == 0);
  windows.finish(~Nanoseconds{0});
  const Nanoseconds last = 1000 + 20 * (EdgeTimes::kPlaces + 2);
  CHECK(edges(log, EdgeTimes::kPlaces + 3) == Edges{last, ~Nanoseconds{0}});
  CHECK(edges(log, EdgeTimes::kPlaces + 2) == Edges{last - 20, last - 10});
  CHECK(log.without_times() == 3);
  CHECK(log.total_time() == 10 * (EdgeTimes::kPlaces - 1) + (~Nanoseconds{0} - last));
}

TEST_CASE("a window without times is neither open nor waited for") {
  WindowLog log;
  CHECK(log.open("launch:0+1/2", 0) == 1);
  log.end_without_times(1);
  CHECK(log.open("launch:0+1/2", 3000) == 2);
  CHECK(log.closing() == std::vector<std::uint32_t>{1});
  CHECK(log.at(10) == 0);
  CHECK(log.at(3000) == 2);
  CHECK(log.opened_by(10) == 0);
  log.end(2, 4000);
  log.note_memory(5000, 5000, {});
  CHECK_FALSE(log.lacks_memory());
  CHECK(log.total_time() == 1000);
  CHECK(log.without_times() == 1);
  CHECK_FALSE(log.copy()[0].times_known());
}

TEST_CASE("edges have the order of their launches, whichever threads these are on") {
  constexpr std::uint32_t kWindows = 5000;
  const auto some = trigger(3, 2, 4, kWindows);
  std::vector<std::atomic<std::uint32_t>> launches(kWindows + 1);
  WindowLog log;
  LaunchWindows windows(*some, log, "launch:3+2/4x5000");
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!some->window_over(kWindows)) ++launches[some->next([] { return now(); }).window];
    });
  }
  while (!some->window_over(kWindows)) windows.note();
  for (std::thread& thread : threads) thread.join();
  windows.note();
  CHECK(windows.up_to_date());
  REQUIRE(log.opened() == kWindows);
  CHECK(log.without_times() == 0);
  Nanoseconds before = 0;
  bool ordered = true;
  bool whole = true;
  for (std::uint32_t window = 1; window <= kWindows; ++window) {
    const auto [begin, end] = edges(log, window);
    ordered = ordered && before <= begin && begin <= end;
    before = end;
    whole = whole && launches[window] == 2;
  }
  CHECK(ordered);
  CHECK(whole);
}

TEST_CASE("windows that end while others are settled are left for the next time") {
  WindowLog log;
  for (Nanoseconds begin = 100; begin <= 300; begin += 100) {
    log.end(log.open("", begin), begin + 50);
  }
  CHECK(log.closing(2).size() == 2);
  log.settle(500, 400, 2);
  CHECK(log.closing() == std::vector<std::uint32_t>{3});
  CHECK(log.copy()[1].detached == 500);
  CHECK(log.copy()[2].detached == 0);
  log.settle();
  CHECK(log.closing().empty());
}
