// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
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
  CHECK(log.closing() == std::vector<std::uint32_t>{1});
  log.settle();
  CHECK(log.closing().empty());

  CHECK(log.open("api", 3000) == 2);
  CHECK(log.opened() == 2);
  CHECK(log.copy().size() == 2);
}

TEST_CASE("the window log keeps the latest ten thousand and counts the rest, with their losses") {
  WindowLog log;
  Losses one_lost;
  one_lost.host_records = 1;
  for (std::uint32_t i = 1; i <= 10'005; ++i) {
    const std::uint32_t number = log.open("api", i * 10);
    log.add_losses(number, one_lost);
    log.end(number, i * 10 + 5);
  }
  CHECK(log.not_listed() == 5);
  CHECK(log.copy().front().number == 6);
  CHECK(log.losses_outside().host_records == 5);
  CHECK(log.at(60) == 6);
  CHECK(log.at(50) == 0);
}
