// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/memory_series.h"

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

/// All changes, kept without a limit.
struct SeriesChange {
  Nanoseconds time;
  std::uint64_t value;
  std::uint32_t window;
};

struct BoundedSeries {
  explicit BoundedSeries(std::size_t size) : room(size), series(room) {}
  std::vector<MemoryInterval> room;
  MemorySeries series;
};

// Computed from the exact history alone.
void check_series(std::span<const MemoryInterval> intervals, const std::vector<SeriesChange>& changes,
                  std::size_t room) {
  REQUIRE(!intervals.empty());
  REQUIRE(intervals.size() < room);
  CHECK(intervals.front().begin == changes.front().time);
  std::size_t next = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const MemoryInterval& interval = intervals[i];
    const Nanoseconds end = i + 1 < intervals.size() ? intervals[i + 1].begin : ~Nanoseconds{0};
    REQUIRE(interval.begin < end);
    // Changes at the same moment may be in two intervals.
    REQUIRE(next < changes.size());
    REQUIRE(changes[next].time == interval.begin);
    SeriesChange highest = changes[next];
    std::uint64_t lowest = highest.value;
    std::uint64_t last = highest.value;
    Nanoseconds last_at = highest.time;
    bool one_window = true;
    for (; next < changes.size() && changes[next].time < end; ++next) {
      const SeriesChange& change = changes[next];
      if (change.value > highest.value) highest = change;
      lowest = std::min(lowest, change.value);
      last = change.value;
      last_at = change.time;
      one_window = one_window && change.window == interval.window;
    }
    REQUIRE(interval.lowest == lowest);
    REQUIRE(interval.highest == highest.value);
    REQUIRE(interval.highest_at == highest.time);
    REQUIRE(interval.last == last);
    REQUIRE(interval.last_at == last_at);
    REQUIRE((interval.window == 0 || one_window));
  }
  CHECK(next == changes.size());
}

}  // namespace

TEST_CASE("Few changes are kept one by one", "[memory]") {
  BoundedSeries bounded(16);
  MemorySeries& series = bounded.series;
  series.add(100, 5, 0);
  series.add(200, 9, 1);
  series.add(300, 4, 1);
  REQUIRE(series.intervals().size() == 3);
  CHECK(series.intervals()[1] == MemoryInterval{200, 200, 9, 9, 200, 9, 1});
  // From a thread that was late.
  series.add(250, 6, 1);
  REQUIRE(series.intervals().size() == 3);
  CHECK(series.intervals()[2] == MemoryInterval{300, 300, 4, 6, 300, 6, 1});
}

TEST_CASE("Readings that repeat share an interval, if they are not far apart", "[memory]") {
  BoundedSeries bounded(16);
  MemorySeries& series = bounded.series;
  for (Nanoseconds time = 1; time <= 20; ++time) series.add(time * 100 * kMillisecond, 7, 1);
  REQUIRE(series.intervals().size() == 1);
  CHECK(series.intervals()[0].last_at == 2 * kSecond);
  series.add(4 * kSecond, 7, 1);
  CHECK(series.intervals().size() == 2);
  series.add(4 * kSecond + 1, 7, 2);
  CHECK(series.intervals().size() == 3);
}

TEST_CASE("Without room nothing is kept", "[memory]") {
  MemorySeries series;
  series.add(1, 1, 1);
  CHECK(series.intervals().empty());
}

TEST_CASE("A series is right about generated changes, however many", "[memory]") {
  std::mt19937_64 random(20261128);
  const auto below = [&random](std::uint64_t most) { return random() % most; };
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const std::size_t room = 16 + below(200);
    BoundedSeries bounded(room);
    std::vector<SeriesChange> changes;
    // Bursts and pauses, short and long windows, some of them without a change.
    const Nanoseconds usual = Nanoseconds{1} << below(30);
    const std::uint64_t in_window = 1 + below(200);
    Nanoseconds time = below(1000);
    std::uint32_t latest = 0;
    bool open = false;
    const std::size_t count = 1 + below(round % 10 == 0 ? 20'000 : 3'000);
    while (changes.size() < count) {
      if (below(in_window) == 0) {
        open = !open;
        if (open) latest += 1 + static_cast<std::uint32_t>(below(2));
      }
      time += 1 + below(below(50) == 0 ? 1000 * usual : usual);
      const std::uint64_t value = 1 + below(below(2) == 0 ? 10 : 1'000'000'000);
      if (!changes.empty() && value == changes.back().value) continue;
      changes.push_back({time, value, open ? latest : 0});
      bounded.series.add(time, value, open ? latest : 0);
    }
    check_series(bounded.series.intervals(), changes, room);
    std::vector<MemoryInterval> shorter(bounded.series.intervals().begin(), bounded.series.intervals().end());
    MemorySeries::shorten(shorter, 16);
    check_series(shorter, changes, 17);
  }
}

TEST_CASE("Windows keep a finer line than the time around them", "[memory]") {
  BoundedSeries bounded(2048);
  std::uint64_t value = 0;
  const auto change = [&](Nanoseconds time, std::uint32_t window) {
    bounded.series.add(time, 1'000'000 + 3 * ++value % 1000, window);
  };
  // Three hours with one change per millisecond, and a window of one second in the middle.
  constexpr Nanoseconds kOpens = 5'000 * kSecond;
  constexpr Nanoseconds kCloses = 5'001 * kSecond;
  for (Nanoseconds time = kSecond; time < 10'800 * kSecond; time += kMillisecond)
    change(time, time >= kOpens && time < kCloses ? 1 : 0);
  const auto inside = std::count_if(bounded.series.intervals().begin(), bounded.series.intervals().end(),
                                    [](const MemoryInterval& interval) { return interval.window == 1; });
  CHECK(inside == 1000);
  CHECK(bounded.series.intervals().size() < 2048);
}

TEST_CASE("A long time without a change keeps its own interval", "[memory]") {
  BoundedSeries bounded(64);
  Nanoseconds time = kSecond;
  std::uint64_t value = 1;
  const auto burst = [&] {
    for (int i = 0; i < 5'000; ++i) bounded.series.add(time += kMicrosecond, value = value % 100 + 1, 0);
  };
  burst();
  bounded.series.add(time += kMicrosecond, 1'000'000, 0);
  const Nanoseconds steady = time;
  time += 100 * kSecond;
  burst();
  const auto found = std::find_if(bounded.series.intervals().begin(), bounded.series.intervals().end(),
                                  [&](const MemoryInterval& interval) { return interval.begin == steady; });
  REQUIRE(found != bounded.series.intervals().end());
  CHECK(found->lowest == found->highest);
  CHECK(std::next(found)->begin == steady + 100 * kSecond + kMicrosecond);
}
