// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <tuple>
#include <vector>

#include "libinject/window/schedule.h"
#include "libinject/window/window_log.h"
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
  log.open("launch:1+1", 4000);  // opened by itself: nobody has counted then
  CHECK(rows(log, {12, 2}, {20, 8}) == std::vector<Row>{{4, 8, 6}});
}

TEST_CASE("readings of the devices' memory belong to the edges before them") {
  using Used = std::vector<std::pair<std::uint32_t, std::uint64_t>>;
  WindowLog log;
  CHECK_FALSE(log.lacks_memory());
  log.note_memory(10, Used{{0, 1}});
  const std::uint32_t one = log.open("api", 1000);
  CHECK(log.lacks_memory());
  log.note_memory(999, Used{{0, 2}});  // begun before the window
  CHECK(log.lacks_memory());
  log.note_memory(1010, Used{{0, 3}, {1, 30}});
  CHECK_FALSE(log.lacks_memory());
  log.note_memory(1020, Used{{0, 4}});  // nobody has asked
  log.end(one, 2000);
  CHECK(log.lacks_memory());
  log.note_memory(1999, Used{{0, 5}});
  CHECK(log.lacks_memory());
  const std::uint32_t two = log.open("api", 2100);
  log.note_memory(2200, Used{{0, 6}});  // for both
  CHECK_FALSE(log.lacks_memory());
  log.end(two, 2300);
  // Over before anybody could read.
  log.end(log.open("api", 2400), 2410);
  CHECK(log.lacks_memory());
  log.note_memory(2500, Used{{0, 7}});
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
  log.note_memory(1'000'000, {});
  CHECK_FALSE(log.lacks_memory());

  const std::vector<WindowInfo> listed = log.copy();
  REQUIRE(listed.size() == 10'100);
  CHECK(listed.front().number == 1);
  CHECK(listed[9'999].number == 10'000);
  CHECK(listed[10'000].number == kOpened - 99);
  CHECK(listed.back().number == kOpened);
  CHECK(listed[9'999].end == 100'005);
  // Records may come of the latest ten thousand.
  CHECK(log.at((kOpened - 9'999) * 10) == kOpened - 9'999);
  CHECK(log.at((kOpened - 10'000) * 10) == 0);
}
