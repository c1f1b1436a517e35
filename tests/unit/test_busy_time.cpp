// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/busy_time.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

using Intervals = std::vector<std::pair<Nanoseconds, Nanoseconds>>;

std::uint64_t plain_union(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::uint64_t total = 0;
  Nanoseconds reached = 0;
  for (const auto& [begin, end] : intervals) {
    if (end > std::max(begin, reached)) total += end - std::max(begin, reached);
    reached = std::max(reached, end);
  }
  return total;
}

}  // namespace

TEST_CASE("Busy time counts overlaps once and gaps not at all", "[stats]") {
  BusyTime busy;
  CHECK_FALSE(busy.any());
  CHECK(busy.busy() == 0);
  busy.add(100, 200);
  busy.add(150, 250);
  busy.add(160, 170);  // contained
  CHECK(busy.busy() == 150);
  busy.add(250, 260);  // adjacent
  CHECK(busy.held() == 1);
  busy.add(300, 310);
  CHECK(busy.busy() == 170);
  busy.add(50, 120);   // before all others
  busy.add(255, 305);  // closes the gap
  CHECK(busy.busy() == 260);
  busy.add(20, 20);  // empty
  CHECK(busy.busy() == 260);
  CHECK(busy.first() == 20);
  CHECK(busy.last() == 310);
  busy.settle();
  CHECK(busy.held() == 0);
  CHECK(busy.busy() == 260);
  CHECK(busy.late() == 0);
}

TEST_CASE("Busy time does not depend on the order of the records", "[stats]") {
  const unsigned seed = GENERATE(range(1u, 7u));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  // Three launching threads whose records arrive one buffer at a time; with long overlaps from seed 4 on.
  Intervals all;
  std::vector<Intervals> buffers;
  for (int thread = 0; thread < 3; ++thread) {
    Nanoseconds clock = 1000 + random() % 100;
    for (int buffer = 0; buffer < 4; ++buffer) {
      Intervals records;
      for (int i = 0; i < 1500; ++i) {
        clock += random() % 50;
        const Nanoseconds end = clock + 1 + random() % (seed < 4 ? 10 : 500);
        records.emplace_back(clock, end);
        clock = seed < 4 ? end : clock + 3;
      }
      all.insert(all.end(), records.begin(), records.end());
      buffers.push_back(std::move(records));
    }
  }
  std::shuffle(buffers.begin(), buffers.end(), random);
  BusyTime busy;
  Intervals so_far;
  for (const Intervals& records : buffers) {
    for (const auto& [begin, end] : records) busy.add(begin, end);
    so_far.insert(so_far.end(), records.begin(), records.end());
    REQUIRE(busy.busy() == plain_union(so_far));
  }
  CHECK(busy.late() == 0);
  CHECK(busy.held() < all.size());
  busy.settle();
  CHECK(busy.busy() == plain_union(all));
}

TEST_CASE("Busy time of a long window is bounded in memory and exact while records are nearly in order",
          "[stats]") {
  BusyTime busy;
  std::size_t most = 0;
  constexpr Nanoseconds kCount = 300'000;
  for (Nanoseconds i = 0; i < kCount; ++i) {
    const Nanoseconds place = i ^ 1000;  // alternating over a thousand records
    busy.add(place * 100, place * 100 + 60);
    most = std::max(most, busy.held());
  }
  CHECK(most <= BusyTime::kMaxIntervals);
  CHECK(most > BusyTime::kMaxIntervals / 2);
  CHECK(busy.late() == 0);
  CHECK(busy.busy() == kCount * 60);

  // Older than the retained history: reported as late, not guessed.
  const std::uint64_t before = busy.busy();
  busy.add(70, 90);
  CHECK(busy.late() == 1);
  CHECK(busy.busy() == before);
}

TEST_CASE("An interval that began before what is a sum counts for the part after it", "[stats]") {
  BusyTime busy;
  busy.add(100, 200);
  busy.settle();
  busy.add(150, 230);
  CHECK(busy.busy() == 130);
  CHECK(busy.late() == 1);
}
