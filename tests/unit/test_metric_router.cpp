// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/metric_router.h"

#include <cstddef>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/gunzip.h"
#include "tests/unit/stats_run.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

constexpr Nanoseconds kForever = ~Nanoseconds{0};

struct Routing {
  /// Samples of ten nanoseconds that begin at `first`, ten later, and so on up to `last`; each has its begin
  /// as its value.
  static std::vector<MetricSample> samples(Nanoseconds first, Nanoseconds last) {
    std::vector<MetricSample> made;
    for (Nanoseconds start = first; start <= last; start += 10) {
      MetricSample sample;
      sample.start = start;
      sample.end = start + 10;
      sample.values.fill(std::numeric_limits<float>::quiet_NaN());
      sample.values[0] = static_cast<float>(start);
      made.push_back(sample);
    }
    return made;
  }
  void name_columns() { router.set_columns({{"user", "Things", Quantity::kUser}}); }
  void window(Nanoseconds begin, Nanoseconds end = 0) {
    const std::uint32_t number = windows.open("test", begin);
    if (end != 0) windows.end(number, end);
  }
  /// Samples in the statistics, by window.
  std::map<std::uint32_t, std::uint64_t> counted() {
    std::map<std::uint32_t, std::uint64_t> counts;
    for (const WindowMetrics& window : run.statistics.metrics().windows())
      counts[window.window] = window.samples;
    return counts;
  }
  std::size_t held() { return run.statistics.metrics().held_samples(); }

  static ChromeTrace::Context context(const StatsRun& run) {
    ChromeTrace::Context made;
    made.names = &run.names;
    made.ranges = &run.tree;
    made.thread = [](std::uint32_t) { return ThreadInfo{}; };
    made.devices = [] { return std::span<const DeviceInfo>(); };
    return made;
  }

  TemporaryFolder folder;
  StatsRun run;
  WindowLog windows;
  MetricTimeline timeline{0};
  ChromeTrace chrome{context(run)};
  MetricRouter router{windows, run.statistics, timeline, chrome};
};

}  // namespace

TEST_CASE_METHOD(Routing, "what is sampled is said once, as soon as it is known", "[metrics]") {
  CHECK_FALSE(router.has_columns());
  router.set_columns({});
  CHECK_FALSE(router.has_columns());
  CHECK_FALSE(run.statistics.metrics().active());
  name_columns();
  CHECK(router.has_columns());
  router.set_columns({{"a", "A", Quantity::kUser}, {"b", "B", Quantity::kUser}});
  REQUIRE(run.statistics.metrics().metrics().size() == 1);
  CHECK(run.statistics.metrics().metrics()[0].title == "Things");
}

TEST_CASE_METHOD(Routing, "a sample belongs to the window in which it began", "[metrics]") {
  name_columns();
  window(100, 149);
  window(200);
  router.add(samples(0, 240));
  CHECK(router.pending());
  router.route(kForever);
  CHECK_FALSE(router.pending());
  CHECK(counted() == std::map<std::uint32_t, std::uint64_t>{{1, 5}, {2, 5}});
  CHECK(held() == 25);  // samples in between may belong to kernels as well
}

TEST_CASE_METHOD(Routing, "a sample after a window's end knows which window that was", "[metrics]") {
  name_columns();
  window(100, 200);
  KernelEvent event = run.kernel("k", 0);
  event.start = 100;
  event.end = 300;
  run.statistics.add(event);
  router.add(samples(100, 320));
  router.route(kForever);
  run.statistics.join_samples_until(kForever);
  // As long as it is known what ran.
  REQUIRE(run.statistics.metrics().rows().size() == 1);
  CHECK(run.statistics.metrics().rows()[0].samples == 20);
}

TEST_CASE_METHOD(Routing, "samples whose window may not be entered yet wait", "[metrics]") {
  name_columns();
  router.add(samples(0, 50));
  router.add(samples(60, 100));
  router.route(70);
  CHECK(held() == 8);
  CHECK(router.pending());
  window(80);
  router.route(79);
  CHECK(held() == 8);
  router.route(99);
  CHECK(held() == 10);
  router.route(100);
  CHECK_FALSE(router.pending());
  CHECK(counted() == std::map<std::uint32_t, std::uint64_t>{{1, 3}});
}

TEST_CASE_METHOD(Routing, "of samples that wait the latest are kept, up to a limit", "[metrics]") {
  constexpr std::size_t kMax = MetricRouter::kMaxPending;
  name_columns();
  router.add(samples(1000, 1000 + 10 * (kMax - 1)));
  router.route(0);
  CHECK(held() == 0);
  router.add(samples(1000 + 10 * kMax, 1000 + 10 * (kMax + 2)));
  router.route(0);
  CHECK(held() == 3);
  CHECK(router.pending());
  router.route(1000 + 10 * 3);
  CHECK(held() == 4);
}

TEST_CASE_METHOD(Routing, "the timelines show what windows have, and what follows while their work goes on",
                 "[metrics]") {
  REQUIRE(timeline.open(folder.path()));
  REQUIRE(chrome.open(folder.path()));
  name_columns();
  window(20, 39);
  windows.settle();
  router.add(samples(0, 50));
  router.route(kForever);
  window(60, 79);
  router.add(samples(60, 90));
  router.route(kForever);
  windows.settle();
  router.add(samples(100, 110));
  router.route(kForever);

  REQUIRE(timeline.flush());
  CHECK(folder.read("metric_samples.csv") ==
        "Device,Start (ns),End (ns),Things\n0,20,30,20.000\n0,30,40,30.000\n0,60,70,60.000\n"
        "0,70,80,70.000\n0,80,90,80.000\n0,90,100,90.000\n");
  REQUIRE(chrome.complete({}));
  std::vector<int> shown;
  const auto whole = nlohmann::json::parse(gunzip(folder.read(ChromeTrace::kFileName)));
  for (const auto& event : whole["traceEvents"]) {
    if (event["ph"] == "C") shown.push_back(event["args"]["value"]);
  }
  CHECK(shown == std::vector<int>{20, 30, 60, 70, 80, 90});
  CHECK(held() == 12);
}

TEST_CASE_METHOD(Routing, "a timeline that is not asked for is told nothing", "[metrics]") {
  const bool rows = GENERATE(true, false);
  REQUIRE((rows ? timeline.open(folder.path()) : chrome.open(folder.path())));
  name_columns();
  window(10);
  router.add(samples(10, 50));
  router.route(kForever);
  REQUIRE((rows ? timeline.flush() : chrome.complete({})));
  CHECK(timeline.rows_left_out() == 0);
  CHECK(folder.read("metric_samples.csv").empty() != rows);
  CHECK(folder.read(ChromeTrace::kFileName).empty() == rows);
}

TEST_CASE_METHOD(Routing, "many samples are joined to their kernels while a window lasts", "[metrics]") {
  constexpr std::size_t kMany = KernelMetrics::kMaxSamples / 4;
  constexpr Nanoseconds kBegin = 100 * kSecond;
  name_columns();
  window(0);
  Nanoseconds next = 0;
  const auto add = [&](std::size_t count) {
    router.add(samples(next, next + 10 * count - 10));
    next += 10 * count;
    router.route(kForever);
  };
  add(kMany - 1);
  router.join(kBegin, kForever);
  CHECK(held() == kMany - 1);  // too few to be worth passing on
  add(1);
  router.join(kBegin, next - 70);
  CHECK(held() == 7);  // kernels are still to come for these
  add(kMany);
  router.join(kBegin + MetricRouter::kJoinInterval - 1, kForever);
  CHECK(held() == kMany + 7);
  router.join(kBegin + MetricRouter::kJoinInterval, kForever);
  CHECK(held() == 0);
  CHECK(run.statistics.metrics().late() == 0);
}
