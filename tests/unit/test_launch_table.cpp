// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "libinject/stats/first_launches.h"
#include "libinject/stats/launch_table.h"
#include "libinject/stats/outside_launches.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {
Attribution in_window(std::uint32_t window, std::uint32_t owner = 0) {
  Attribution launch;
  launch.window = window;
  launch.owner = owner;
  return launch;
}
}  // namespace

TEST_CASE("a device record finds its launch by generation and correlation id") {
  LaunchTable table(1 << 16);
  table.add(1, 7, in_window(1, 100), true);
  table.add(2, 7, in_window(2, 200), true);
  REQUIRE(table.find(1, 7, 1).launch != nullptr);
  CHECK(table.find(1, 7, 2).launch->owner == 100);
  CHECK(table.find(2, 7, 3).launch->owner == 200);
  CHECK(table.find(1, 7, 4).launch->known);
  CHECK(table.find(3, 7, 5).launch == nullptr);
}

TEST_CASE("only launches in a window that expect a record are waited for") {
  LaunchTable table(1 << 16);
  table.add(1, 1, in_window(1), true);
  table.add(1, 2, in_window(0), true);   // outside of windows
  table.add(1, 3, in_window(1), false);  // failed or captured
  CHECK(table.waiting() == 1);
  table.find(1, 1, 11);
  CHECK(table.waiting() == 0);
  table.find(1, 1, 12);  // a graph's second kernel
  CHECK(table.waiting() == 0);
}

TEST_CASE("the launch that has waited longest") {
  LaunchTable table(1 << 14);
  CHECK_FALSE(table.first_waiting_begin());
  // Threads deliver their records in turn, so they are not in order of time.
  std::uint32_t id = 0;
  for (const Nanoseconds begin : {500u, 700u, 300u, 900u}) {
    Attribution launch = in_window(begin == 300 ? 2 : 1);
    launch.host_begin = begin;
    table.add(1, ++id, launch, true);
  }
  CHECK(table.first_waiting_begin() == 300);
  table.find(1, 3, 1);
  CHECK(table.first_waiting_begin() == 500);
  table.give_up_waiting();
  CHECK_FALSE(table.first_waiting_begin());
}

namespace {
Attribution begun(Nanoseconds begin) {
  Attribution launch = in_window(1);
  launch.host_begin = begin;
  return launch;
}
using Missing = std::map<std::uint32_t, std::uint64_t>;
constexpr Nanoseconds kLater = 2'000'000'000;
}  // namespace

TEST_CASE("a graph none of whose launches has had a record owes none") {
  LaunchTable table(1 << 14);
  table.add(1, 1, begun(100), true, std::uint16_t{7});
  table.add(1, 2, begun(200), true);
  CHECK(table.waiting() == 2);
  CHECK(table.first_waiting_begin() == 100);
  SECTION("while nothing else comes it is waited for, and missing") {
    CHECK(table.give_up_waiting() == Missing{{1, 2}});
    CHECK(table.graphs_without_work() == 0);
  }
  SECTION("where a later launch's record has come it is not missing, but waited for: work may take long") {
    table.find(1, 2, 1);
    CHECK(table.waiting() == 1);
    CHECK(table.first_waiting_begin() == 100);
    CHECK(table.give_up_waiting().empty());
    CHECK(table.graphs_without_work() == 1);
    CHECK(table.waiting() == 0);
  }
  SECTION("where one of a second later has come it is not waited for") {
    table.find(1, 2, 1);
    table.add(1, 3, begun(kLater), true);
    table.find(1, 3, 1);
    CHECK(table.waiting() == 0);
    CHECK_FALSE(table.first_waiting_begin());
    CHECK(table.first_waiting_window() == 0);
    // It is found all the same.
    CHECK(table.find(1, 1, 1).launch != nullptr);
  }
  SECTION("where everything has been delivered it is not missing, unlike other launches") {
    CHECK(table.give_up_waiting(true) == Missing{{1, 1}});
    CHECK(table.graphs_without_work() == 1);
  }
}

TEST_CASE("launches that are given up are told of, as far as they are known") {
  std::vector<std::pair<std::uint32_t, Nanoseconds>> told;
  const auto tell = [&told](const Attribution& launch) {
    told.emplace_back(launch.window, launch.known ? launch.host_begin : 0);
  };
  LaunchTable table(1 << 14);
  Attribution launch = begun(100);
  launch.known = true;
  table.add(1, 1, launch, true);
  launch.host_begin = 200;
  table.add(1, 2, launch, true);
  table.find(1, 1, 1);
  CHECK(table.give_up_waiting(true, tell) == Missing{{1, 1}});
  CHECK(told == std::vector<std::pair<std::uint32_t, Nanoseconds>>{{1, 200}});
  // For launches that found no room, only the window is known.
  told.clear();
  for (std::uint32_t i = 0; i < (1 << 14) + 5; ++i) table.add(1, 10 + i, launch, true);
  table.give_up_waiting(true, tell);
  REQUIRE(told.size() == (1 << 14) + 1);
  CHECK(told.front() == std::pair<std::uint32_t, Nanoseconds>{1, 0});
}

TEST_CASE("a graph that had records of one launch owes those of the others") {
  LaunchTable table(1 << 14);
  table.add(1, 1, begun(100), true, std::uint16_t{7});
  table.add(1, 2, begun(200), true, std::uint16_t{7});
  table.add(1, 3, begun(kLater), true);
  table.find(1, 1, 1);
  table.find(1, 3, 1);
  CHECK(table.waiting() == 1);
  CHECK(table.first_waiting_begin() == 200);
  CHECK(table.give_up_waiting(true) == Missing{{1, 1}});
  CHECK(table.graphs_without_work() == 0);
}

TEST_CASE("the table turns over many launches and keeps finding the recent ones") {
  LaunchTable table(1 << 14);
  for (std::uint32_t i = 1; i <= 300'000; ++i) {
    table.add(1, i, in_window(1, i), true);
    // Records arrive 1,000 launches late.
    if (i > 1000) {
      const Attribution* launch = table.find(1, i - 1000, i).launch;
      REQUIRE(launch != nullptr);
      REQUIRE(launch->owner == i - 1000);
    }
  }
  CHECK(table.given_up() == 0);
  CHECK(table.waiting() == 1000);
  CHECK(table.give_up_waiting() == std::map<std::uint32_t, std::uint64_t>{{1, 1000}});
  CHECK(table.waiting() == 0);
}

TEST_CASE("launches whose records never come are given up when the table is full, and counted") {
  LaunchTable table(1 << 13);
  for (std::uint32_t i = 1; i <= 10'000; ++i) table.add(1, i, in_window(1, i), true);
  CHECK(table.given_up() == 10'000 - (1 << 13));
  CHECK(table.find(1, 1, 1).launch == nullptr);
  CHECK(table.find(1, 10'000, 2).launch != nullptr);
  CHECK(table.waiting() == (1 << 13) - 1);
  // All but the one that was found, each reported once.
  CHECK(table.give_up_waiting() == std::map<std::uint32_t, std::uint64_t>{{1, 9'999}});
  CHECK(table.give_up_waiting().empty());
}

TEST_CASE("launches outside of all windows push none of a window's out") {
  LaunchTable table(1 << 13);
  table.add(1, 1, in_window(1, 100), true);
  constexpr std::uint32_t kLast = 1'000'000;
  for (std::uint32_t i = 2; i <= kLast; ++i) table.add(1, i, in_window(0), true);
  CHECK(table.waiting() == 1);
  CHECK(table.given_up() == 0);
  const Attribution* launch = table.find(1, 1, 1).launch;
  REQUIRE(launch != nullptr);
  CHECK(launch->owner == 100);
  for (const std::uint32_t id : {2u, 70'000u, kLast}) {
    launch = table.find(1, id, 1).launch;
    REQUIRE(launch != nullptr);
    CHECK(launch->known);
    CHECK(launch->window == 0);
  }
  CHECK(table.find(1, kLast + 1, 1).launch == nullptr);
}

TEST_CASE("launches outside of all windows: the attachment's, by id, the latest ones") {
  const auto first = GENERATE(1u, 5'000'000u, std::numeric_limits<std::uint32_t>::max() - 1000);  // ids wrap
  const auto generation = GENERATE(std::uint16_t{1}, std::uint16_t{40'000});
  OutsideLaunches outside;
  CHECK_FALSE(outside.contains(0, 0));
  // Every third call is a launch; threads deliver their records in turn.
  constexpr std::uint32_t kLaunches = 40'000;
  for (std::uint32_t i = 0; i < kLaunches; i += 100) {
    for (std::uint32_t k = 0; k < 100; ++k) {
      outside.add(generation, first + 3 * (i + 37 * k % 100));
    }
  }
  std::size_t right = 0;
  for (std::uint32_t i = 0; i < kLaunches; ++i) {
    right += outside.contains(generation, first + 3 * i) && !outside.contains(generation, first + 3 * i + 1)
                 ? 1
                 : 0;
  }
  CHECK(right == kLaunches);
  CHECK_FALSE(outside.contains(static_cast<std::uint16_t>(generation + 1), first));

  SECTION("far ahead, what is too old is forgotten, and not mistaken for what is new") {
    const std::uint32_t ahead = first + OutsideLaunches::kMaxIds + 64;
    outside.add(generation, ahead);
    CHECK(outside.contains(generation, ahead));
    CHECK_FALSE(outside.contains(generation, first));
    CHECK_FALSE(outside.contains(generation, first + OutsideLaunches::kMaxIds));
    outside.add(generation, first);
    CHECK_FALSE(outside.contains(generation, first));
  }
  SECTION("further ahead than all there is room for") {
    const std::uint32_t ahead = first + 1'500'000'000u;
    outside.add(generation, ahead);
    CHECK(outside.contains(generation, ahead));
    for (std::uint32_t i = 0; i < 3 * kLaunches; ++i) {
      if (outside.contains(generation, first + i)) FAIL("a launch of long ago");
    }
  }
  SECTION("another attachment's ids begin anew; one that is late for the last is passed over") {
    outside.add(static_cast<std::uint16_t>(generation + 1), 7);
    CHECK(outside.contains(static_cast<std::uint16_t>(generation + 1), 7));
    CHECK_FALSE(outside.contains(static_cast<std::uint16_t>(generation + 1), 10));
    outside.add(generation, first);
    CHECK_FALSE(outside.contains(generation, first));
    CHECK(outside.contains(static_cast<std::uint16_t>(generation + 1), 7));
  }
}

TEST_CASE("a launch tells a repeated record from the next one") {
  LaunchTable table(1 << 16);
  table.add(1, 1, in_window(1), true);
  table.add(1, 2, in_window(1), true);
  CHECK_FALSE(table.find(1, 1, 50).repeated);
  CHECK(table.find(1, 1, 50).repeated);
  CHECK_FALSE(table.find(1, 1, 51).repeated);
  CHECK_FALSE(table.find(1, 2, 50).repeated);  // of another launch
  // A correlation id that is reused in another attachment.
  table.add(2, 1, in_window(2), true);
  CHECK_FALSE(table.find(2, 1, 51).repeated);
}

TEST_CASE("launches without a record are told window by window") {
  LaunchTable table(1 << 13);
  for (std::uint32_t i = 1; i <= (1 << 13) + 5; ++i) table.add(1, i, in_window(1), true);
  table.add(1, 100'000, in_window(2), true);
  CHECK(table.give_up_waiting() == std::map<std::uint32_t, std::uint64_t>{{1, (1 << 13) + 5}, {2, 1}});
  CHECK(table.give_up_waiting().empty());
}

TEST_CASE("the first launch of a window is its lowest id, within one attachment") {
  FirstLaunches first;
  CHECK_FALSE(first.is_older(1, 1, 5));
  first.add(1, 1, 12);
  first.add(1, 1, 10);
  first.add(1, 1, 11);
  first.add(1, 2, 3);  // ids start over
  CHECK(first.is_older(1, 1, 9));
  CHECK_FALSE(first.is_older(1, 1, 10));
  CHECK_FALSE(first.is_older(1, 2, 1));
  CHECK_FALSE(first.is_older(2, 1, 9));
}

TEST_CASE("no launch is known to be older than a window's first where launches of it were lost") {
  FirstLaunches first;
  first.add(1, 1, 10);
  first.lost(1);
  first.lost(2);
  first.add(2, 1, 10);
  first.add(3, 1, 30);
  CHECK_FALSE(first.is_older(1, 1, 5));
  CHECK_FALSE(first.is_older(2, 1, 5));
  CHECK(first.is_older(3, 1, 5));
}

TEST_CASE("settling a window leaves the first launches of those that go on") {
  FirstLaunches first;
  first.add(1, 1, 10);
  first.add(2, 1, 20);
  first.settled(1);
  CHECK(first.windows() == 1);
  first.add(2, 1, 25);
  CHECK(first.is_older(2, 1, 19));
  CHECK_FALSE(first.is_older(2, 1, 22));
}

TEST_CASE("a window for each of a million iterations: the latest ones' first launches are kept") {
  FirstLaunches first;
  constexpr std::uint32_t kWindows = 1'000'000;
  for (std::uint32_t window = 1; window <= kWindows; ++window) first.add(window, 1, 10 * window);
  CHECK(first.windows() == FirstLaunches::kMaxWindows);
  CHECK(first.is_older(kWindows, 1, 10 * kWindows - 1));
  CHECK(first.is_older(kWindows - 4000, 1, 10));
  CHECK_FALSE(first.is_older(1, 1, 1));
}

TEST_CASE("launches given up in ever new windows are counted in bounded memory") {
  LaunchTable table(1);  // the minimum size
  constexpr std::uint32_t kWindows = 20'000;
  for (std::uint32_t window = 1; window <= kWindows; ++window) table.add(1, window, in_window(window), true);
  const auto given_up = table.give_up_waiting();
  std::uint64_t sum = 0;
  for (const auto& [window, count] : given_up) sum += count;
  CHECK(sum == kWindows);
  CHECK(given_up.size() <= 4096 + 4096 + 1);  // and those that were still waiting
  CHECK(given_up.at(0) > kWindows / 2);
  CHECK(given_up.at(kWindows - 5000) == 1);
}
