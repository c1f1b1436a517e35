// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/graph_times.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr Nanoseconds kWindowEnd = 1'000'000;
constexpr std::uint32_t kCollective = 99;

/// The times that are passed on (start and end); kernels without usable times are in a list of their own.
struct Times {
  using Spans = std::vector<std::pair<Nanoseconds, Nanoseconds>>;
  Spans usable;
  Spans unusable;
  Nanoseconds window_end = kWindowEnd;
  GraphTimes times{{[this](KernelEvent& event, std::uint16_t, bool good) {
                      (good ? usable : unusable).emplace_back(event.start, event.end);
                    },
                    [this](std::uint32_t) { return window_end; },
                    [](std::uint32_t name) { return name == kCollective; }}};

  void kernel(std::uint64_t node, std::uint32_t launch, Nanoseconds start, Nanoseconds end,
              std::uint32_t stream = 7, std::uint32_t name = 1) {
    KernelEvent event;
    event.graph = 5;
    event.graph_node = node;
    event.correlation = launch;
    event.start = start;
    event.end = end;
    event.stream = stream;
    event.name = name;
    event.launch.known = true;
    event.launch.window = 1;
    times.kernel(event, 1);
  }
  std::size_t all() {
    times.release_all();
    std::sort(usable.begin(), usable.end());
    return usable.size();
  }
};

}  // namespace

TEST_CASE("A graph's kernel does not end after its node's next one began", "[graphs]") {
  Times replays;
  replays.kernel(1, 10, 1000, 2000);
  replays.kernel(1, 11, 5000, 10'000);
  CHECK(replays.times.first_start() == 5000);
  replays.kernel(1, 12, 9000, 10'000);
  replays.kernel(1, 13, 10'000, 11'000);
  CHECK(replays.all() == 3);
  CHECK(replays.unusable == Times::Spans{{5000, 10'000}});
}

TEST_CASE("A node may run several times in a launch, one beside the other", "[graphs]") {
  Times replays;
  for (std::uint32_t i = 0; i < 3; ++i) {
    replays.kernel(1, 10 + i, 20'000 * i + 1000, 20'000 * i + 9000);
    replays.kernel(1, 10 + i, 20'000 * i + 2000, 20'000 * i + 8000);
  }
  CHECK(replays.all() == 6);
  CHECK(replays.unusable.empty());
}

TEST_CASE("The order of a graph's records does not matter, and one that comes twice is not its own next",
          "[graphs]") {
  Times replays;
  replays.kernel(1, 12, 9000, 10'000);
  replays.kernel(1, 11, 5000, 10'000);
  replays.kernel(1, 10, 1000, 2000);
  replays.kernel(1, 10, 1000, 2000);
  CHECK(replays.all() == 3);
  CHECK(replays.unusable == Times::Spans{{5000, 10'000}});
}

TEST_CASE("Kernels of one launch may run at the same time, and begin before those before them end",
          "[graphs]") {
  Times replays;
  for (std::uint32_t i = 0; i < 5; ++i) {
    const Nanoseconds begin = 100'000 * i;
    replays.kernel(1, 10 + i, begin + 1000, begin + 50'000);
    replays.kernel(2, 10 + i, begin + 2000, begin + 3000);
    replays.kernel(3, 10 + i, begin + 2500, begin + 4000);
  }
  CHECK(replays.all() == 15);
  CHECK(replays.unusable.empty());
}

TEST_CASE("Later work of a stream does not run within a graph's kernel", "[graphs]") {
  Times replays;
  replays.kernel(1, 10, 1000, 90'000);
  replays.kernel(2, 10, 3000, 4000);
  // Begun before the other's end (a launch may allow that), in another stream, and by an earlier launch.
  const auto [launch, stream, end] = GENERATE(
      table<std::uint32_t, std::uint32_t, Nanoseconds>({{11, 7, 95'000}, {11, 8, 6000}, {9, 7, 6000}}));
  replays.times.work(0, 0, stream, launch, 1, 5000, end);
  SECTION("of itself it is none") {
    CHECK(replays.all() == 2);
  }
  SECTION("one that does") {
    replays.times.work(0, 0, 7, 12, 1, 7000, 8000);
    CHECK(replays.all() == 1);
    CHECK(replays.unusable == Times::Spans{{1000, 90'000}});
  }
}

TEST_CASE("After a window's end a graph's kernel takes no longer than it ever did", "[graphs]") {
  Times replays;
  const std::uint32_t name = GENERATE(1u, kCollective);
  const Nanoseconds last_end = GENERATE(kWindowEnd - 1, kWindowEnd + 1, kWindowEnd + 100'000);
  const std::uint32_t before = GENERATE(1u, 2u);
  const Nanoseconds window_end = GENERATE(kWindowEnd, Nanoseconds{0});
  replays.window_end = window_end;
  for (std::uint32_t i = 0; i < before; ++i)
    replays.kernel(1, 10 + i, 1000 + 20'000 * i, 11'000 + 20'000 * i, 7, name);
  replays.kernel(1, 20, kWindowEnd - 50'001, last_end, 7, name);
  const bool unusable = name == 1 && last_end > window_end && window_end != 0 && before == 2;
  CHECK(replays.all() == before + (unusable ? 0 : 1));
  CHECK(replays.unusable.size() == (unusable ? 1 : 0));
}

TEST_CASE("Graphs' kernels are handed on in time, and room is bounded", "[graphs]") {
  Times replays;
  CHECK(replays.times.first_start() > kWindowEnd);
  replays.kernel(1, 10, 1000, 2000);
  replays.kernel(2, 10, 3000, 400'000);
  replays.times.release_ended(300'000);
  CHECK(replays.usable == Times::Spans{{1000, 2000}});
  CHECK(replays.times.first_start() == 3000);
  replays.times.release_windows(0);
  CHECK(replays.usable.size() == 1);
  replays.times.release_windows(1);
  CHECK(replays.usable.size() == 2);
  for (std::uint64_t node = 0; node < GraphTimes::kMaxNodes + 100; ++node)
    replays.kernel(node, 11, 500'000, 501'000);
  CHECK(replays.usable.size() == 102);
  CHECK(replays.all() == GraphTimes::kMaxNodes + 102);
  replays.kernel(1, 12, 600'000, 601'000);
  CHECK(replays.times.first_start() == 600'000);
}
