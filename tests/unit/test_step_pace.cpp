// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Steps of a host that runs ahead of its device, with a known pace.
#include "libinject/report/step_pace.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>

#include "tests/unit/catch.h"

namespace inject {

namespace {

/// A host that takes `host` to launch an iteration, and a device that takes `work` for it. At most `queue`
/// iterations wait; after every `sync` of them the host waits for the device.
struct Played {
  double host = 1;
  double work = 1;
  double spread = 0;  // of `work`, as a fraction
  std::size_t queue = 20;
  std::size_t sync = 0;
};

class Player {
 public:
  explicit Player(unsigned seed) : random_(seed) {}

  /// Adds a sequence of steps that begins with an idle device.
  void play(const Played& as, std::size_t count) {
    double now = begin_;
    double begun = now;
    std::deque<double> ends;  // of the launched iterations, on the device
    for (std::size_t i = 1; i <= count; ++i) {
      now += as.host;
      const double work = as.work * (1 + as.spread * std::uniform_real_distribution<>(-1, 1)(random_));
      ends.push_back(std::max(now, ends.empty() ? 0.0 : ends.back()) + work);
      if (ends.size() > as.queue) {
        now = std::max(now, ends.front());
        ends.pop_front();
      }
      if (as.sync != 0 && i % as.sync == 0) now = std::max(now, ends.back());
      const auto from = static_cast<Nanoseconds>(begun * 1e6);
      steps.push_back({number_++, from, static_cast<Nanoseconds>(now * 1e6) - from});
      begun = now;
    }
    begin_ = now + 1000;
  }

  std::deque<UnprofiledStep> steps;

 private:
  std::mt19937 random_;
  std::uint64_t number_ = 1;
  double begin_ = 1000;
};

DeviceLoad load_of(const Played& as) {
  return {as.work * 1e6, 0.9e6 * as.work, 0.9e6 * as.work, 1024.0 / static_cast<double>(as.queue)};
}

double pace_of(const Played& as) {
  return 1e6 * std::max(as.host, as.work);
}

}  // namespace

TEST_CASE("step pace: a host that runs ahead at first", "[step_pace]") {
  // As measured on an H200: 46 fp32 products per iteration, 17 iterations in the queue.
  const Played as{1.5, 46.8, 0, 17};
  Player player(1);
  player.play(as, 17);
  CHECK(StepPace(player.steps, load_of(as)).times().count() == 0);
  player.play(as, 40);
  const StepPace pace(player.steps, load_of(as));
  CHECK(pace.times().count() > 15);
  CHECK(pace.times().median() == Approx(46.8e6));
  CHECK_FALSE(pace.steps().front().counts);
  CHECK(pace.steps().back().counts);
}

TEST_CASE("step pace: a host that waits every few steps", "[step_pace]") {
  for (const std::size_t sync : {2u, 5u, 10u, 50u}) {
    CAPTURE(sync);
    const Played as{1, 10, 0, 200, sync};
    Player player(1);
    player.play(as, 40 * sync);
    const StepPace pace(player.steps, load_of(as));
    CHECK_FALSE(pace.plain());
    CHECK(pace.times().count() >= 7);
    // The device is idle while the host launches the first one.
    CHECK(pace.times().median() == Approx(10e6 + 1e6 / static_cast<double>(sync)).epsilon(0.01));
  }
}

TEST_CASE("step pace: a host that never runs ahead", "[step_pace]") {
  const Played as{10, 3};
  Player player(1);
  player.play(as, 20);
  player.play(as, 30);
  const StepPace pace(player.steps, load_of(as));
  CHECK(pace.plain());
  CHECK(pace.times().count() == 50);
  // Without a window nothing is known either.
  CHECK(StepPace(player.steps, {}).plain());
}

TEST_CASE("step pace: kernels that wait for others are not the device's work", "[step_pace]") {
  // The window's kernels kept the device busy for longer than a step, so more would wait than queues hold.
  const Played as{10, 3};
  Player player(1);
  player.play(as, 50);
  DeviceLoad load = load_of(as);
  load.work = 15e6;
  load.least_step = 13.5e6;
  load.launches = 1000;
  CHECK(StepPace(player.steps, load).plain());
}

TEST_CASE("step pace: right or none, for any host and device", "[step_pace]") {
  std::mt19937 random(7);
  const auto pick = [&random](double low, double high) {
    return std::uniform_real_distribution<>(low, high)(random);
  };
  std::size_t known = 0;
  for (unsigned run = 0; run < 3000; ++run) {
    Played as;
    as.work = pick(0.1, 20);
    as.host = as.work * std::exp(pick(-4, 1.5));
    as.spread = run % 3 == 0 ? pick(0, 0.6) : 0;
    as.queue = 1 + random() % 60;
    as.sync = run % 2 == 0 ? 1 + random() % 60 : 0;
    Player player(run);
    player.play(as, random() % 60);
    player.play(as, 35 + random() % 400);
    CAPTURE(run, as.work, as.host, as.spread, as.queue, as.sync);
    const SampleStats times = StepPace(player.steps, load_of(as)).times();
    if (times.count() < 7) continue;
    ++known;
    // A host that waits for the device does its own work while the device is idle.
    const double lost = as.sync == 0 ? 0 : 1e6 * as.host / static_cast<double>(as.sync);
    CHECK(times.median() >= 0.89 * pace_of(as) * (1 - as.spread / 3));
    CHECK(times.median() <= 1.1 * (pace_of(as) + lost) * (1 + as.spread / 2));
  }
  CHECK(known > 2000);
}

}  // namespace inject
