// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/iteration_planner.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

WindowSpec spec(std::string_view text) {
  const WindowSpecResult result = parse_window_spec(text);
  REQUIRE(result.error.empty());
  return result.spec;
}

/// Iterations of 40 ms that have been followed for a minute, 1,000 of them.
FoundIterations found(bool optimizer) {
  FoundIterations known;
  known.lock.emplace();
  known.lock->optimizer = optimizer;
  known.begun_then = 500;
  known.begun = 1500;
  known.since = 100 * kSecond;
  known.typical_duration = 40 * kMillisecond;
  return known;
}

IterationPlanInput input(std::uint64_t soonest, bool first = true) {
  IterationPlanInput given;
  given.soonest = soonest;
  given.time = 160 * kSecond;
  given.first = first;
  return given;
}

using Result = IterationPlan::Result;

/// `40+10`, `not yet`, `no more`; with the requested begin if that has passed.
std::string text(const IterationPlan& plan) {
  if (plan.result == Result::kNotYet) return "not yet";
  if (plan.result == Result::kNoMore) return "no more";
  const std::string asked = plan.asked_for ? " rather than " + std::to_string(*plan.asked_for) : "";
  return std::to_string(plan.begin) + "+" + std::to_string(plan.length) + asked;
}

}  // namespace

TEST_CASE("nothing is planned before iterations are found", "[iterations]") {
  for (const char* trigger : {"auto", "iter:10+5"}) {
    const WindowSpec asked = spec(trigger);
    Schedule schedule(asked);
    const IterationPlan plan = plan_iterations(asked, schedule, FoundIterations{}, input(0));
    CHECK(text(plan) == "not yet");
    CHECK(plan.lead == 0);
  }
}

TEST_CASE("what was found is trusted after some iterations, and with `auto` after some time",
          "[iterations]") {
  struct Case {
    const char* trigger;
    bool optimizer;
    std::uint64_t seen;
    Nanoseconds since;
    bool planned;
  };
  const Case cases[] = {
      {"auto", true, 5, kSecond, true},         {"auto", true, 4, kSecond, false},
      {"auto", true, 5, kSecond - 1, false},    {"auto", false, 20, kSecond, true},
      {"auto", false, 19, kSecond, false},      {"auto", false, 20, kSecond - 1, false},
      {"iter:100+5", true, 0, 0, true},         {"iter:100+5", false, 3, 0, true},
      {"iter:100+5", false, 2, kSecond, false},
  };
  for (const Case& test : cases) {
    INFO(test.trigger << " " << test.optimizer << " " << test.seen << " " << test.since);
    const WindowSpec asked = spec(test.trigger);
    Schedule schedule(asked);
    FoundIterations known = found(test.optimizer);
    known.begun = known.begun_then + test.seen;
    IterationPlanInput given = input(40);
    given.time = known.since + test.since;
    const IterationPlan plan = plan_iterations(asked, schedule, known, given);
    CHECK((plan.result == Result::kPlanned) == test.planned);
    CHECK((plan.result == Result::kNotYet) != test.planned);
    // Always set: it determines when to plan again.
    CHECK(plan.lead == 3);
  }
}

TEST_CASE("a lock that numbers its iterations anew has begun none since the watch was armed",
          "[iterations]") {
  const WindowSpec asked = spec("auto");
  Schedule schedule(asked);
  FoundIterations known = found(false);
  known.begun = known.begun_then - 1;
  CHECK(text(plan_iterations(asked, schedule, known, input(40))) == "not yet");
}

TEST_CASE("`auto` plans ten iterations, as soon as CUPTI can be attached", "[iterations]") {
  const WindowSpec asked = spec("auto");
  Schedule schedule(asked);
  const IterationPlan plan = plan_iterations(asked, schedule, found(true), input(40));
  CHECK(text(plan) == "43+10");
  CHECK(plan.end() == 53);
  CHECK(plan.lead_at() == 40);
  CHECK_FALSE(plan.asked_for);
}

TEST_CASE("`iter:` plans what was asked for; what is over is not", "[iterations]") {
  struct Case {
    const char* trigger;
    std::uint64_t soonest;
    bool first;
    const char* plan;
  };
  const Case cases[] = {
      {"iter:100+5", 40, true, "100+5"},
      {"iter:100+5", 100, true, "100+5"},
      // The first window may begin late.
      {"iter:100+5", 103, true, "103+5 rather than 100"},
      {"iter:100+5", 5000, true, "5000+5 rather than 100"},
      {"iter:100+5/50", 104, true, "104+5 rather than 100"},
      {"iter:100+5/50", 105, true, "150+5"},
      {"iter:100+5/50", 251, true, "251+5 rather than 250"},
      // For later windows, the next one that has not begun is taken.
      {"iter:100+5/50", 150, false, "150+5"},
      {"iter:100+5/50", 151, false, "200+5"},
      {"iter:100+5/50", 1154, false, "1200+5"},
      {"iter:100+5", 103, false, "103+5 rather than 100"},
      // Windows without a gap between them.
      {"iter:0+5/5", 11, false, "15+5"},
  };
  for (const Case& test : cases) {
    INFO(test.trigger << " " << test.soonest << " " << test.first);
    const WindowSpec asked = spec(test.trigger);
    Schedule schedule(asked);
    CHECK(text(plan_iterations(asked, schedule, found(true), input(test.soonest, test.first))) == test.plan);
  }
}

TEST_CASE("as many windows are planned as were asked for", "[iterations]") {
  const WindowSpec asked = spec("iter:100+5/50x2");
  Schedule schedule(asked);
  const auto planned = [&](std::uint64_t soonest, bool first) {
    return text(plan_iterations(asked, schedule, found(true), input(soonest, first)));
  };
  CHECK(planned(40, true) == "100+5");
  // Planned again because the lock has changed, it is the same window.
  CHECK(planned(41, true) == "100+5");
  schedule.advance();
  CHECK(planned(105, false) == "150+5");
  // Windows that were missed altogether do not count.
  CHECK(planned(551, false) == "600+5");
  schedule.advance();
  CHECK(planned(605, false) == "no more");

  const WindowSpec one = spec("iter:100+5");
  Schedule once(one);
  once.advance();
  CHECK(text(plan_iterations(one, once, found(true), input(105, false))) == "no more");
}

TEST_CASE("CUPTI is attached a tenth of a second before the window, in whole iterations", "[iterations]") {
  struct Case {
    Nanoseconds duration;
    Nanoseconds attaching;
    std::uint64_t lead;
  };
  const Case cases[] = {
      {10 * kSecond, 0, 1},
      {100 * kMillisecond + 1, 0, 1},
      {100 * kMillisecond, 0, 2},
      {40 * kMillisecond, 0, 3},
      {40 * kMillisecond, 300 * kMillisecond, 11},
      {kMillisecond, 0, 101},
      {100'000, 0, 1000},  // 1001
      {1000, 0, 1000},
      {0, 0, 1000},  // unknown
  };
  for (const char* trigger : {"auto", "iter:2000+5"}) {
    for (const Case& test : cases) {
      INFO(trigger << " " << test.duration << " " << test.attaching);
      const WindowSpec asked = spec(trigger);
      Schedule schedule(asked);
      FoundIterations known = found(true);
      known.typical_duration = test.duration;
      IterationPlanInput given = input(1000);
      given.attaching = test.attaching;
      const IterationPlan plan = plan_iterations(asked, schedule, known, given);
      CHECK(plan.lead == test.lead);
      CHECK(plan.lead_at() == plan.begin - test.lead);
    }
  }
  IterationPlan early;
  early.begin = 5;
  early.lead = 5;
  CHECK(early.lead_at() == 0);
  early.lead = 1000;
  CHECK(early.lead_at() == 0);
}
