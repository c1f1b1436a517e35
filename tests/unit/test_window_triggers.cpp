// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// When windows open and close, with a clock that the test sets.
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "libinject/session/iteration_trigger.h"
#include "libinject/session/launch_windows.h"
#include "libinject/session/trigger.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

WindowSpec parsed_spec(std::string_view text) {
  const WindowSpecResult result = parse_window_spec(text);
  REQUIRE(result.error.empty());
  return result.spec;
}

enum class Event { kStart, kStop, kSignal, kClock, kTakeOver };
struct Ranges {
  std::uint32_t open;
};
struct Step {
  std::variant<Event, Ranges> event;
  Nanoseconds milliseconds;  // on the clock
  TriggerAction action;
};

constexpr TriggerAction kNone = TriggerAction::kNone;
constexpr TriggerAction kAttach = TriggerAction::kAttach;
constexpr TriggerAction kOpen = TriggerAction::kOpen;
constexpr TriggerAction kClose = TriggerAction::kClose;
constexpr TriggerAction kReopen = TriggerAction::kReopen;
constexpr TriggerAction kWait = TriggerAction::kWait;

/// Carries out a trigger's action at once.
class Player {
 public:
  explicit Player(std::string_view window) : trigger(make_trigger(parsed_spec(window))) {
    state.lead = 100'000'000;
  }

  TriggerAction play(const std::variant<Event, Ranges>& event, Nanoseconds milliseconds) {
    state.time = milliseconds * kMillisecond;
    const TriggerAction action = decide(event);
    if (action == kClose || action == kReopen) end_window();
    if (action == kOpen || action == kReopen) {
      state.window = state.next++;
      state.request = state.next_request++;
      state.window_begin = state.time;
      if (std::holds_alternative<Event>(event) && std::get<Event>(event) == Event::kClock)
        trigger->opened(state.window);
    }
    return action;
  }

  void end_window() {
    state.window = 0;
    state.request = 0;
  }

  std::unique_ptr<Trigger> trigger;
  TriggerState state;

 private:
  TriggerAction decide(const std::variant<Event, Ranges>& event) {
    if (const Ranges* ranges = std::get_if<Ranges>(&event))
      return trigger->ranges_changed(ranges->open, state);
    switch (std::get<Event>(event)) {
      case Event::kStart:
        return trigger->profiler_start(state);
      case Event::kStop:
        return trigger->profiler_stop(state);
      case Event::kSignal:
        return trigger->signalled(state);
      case Event::kClock:
        return trigger->evaluate(state);
      case Event::kTakeOver:
        trigger->take_over();
        return kNone;
    }
    return kNone;
  }
};

/// Iterations that a search has found long ago.
FoundIterations known_iterations() {
  FoundIterations known;
  known.lock.emplace();
  known.lock->optimizer = true;
  known.begun = 1000;
  known.typical_duration = 30 * kMillisecond;
  return known;
}

}  // namespace

TEST_CASE("a trigger does what its events call for", "[triggers]") {
  struct Case {
    const char* window;
    std::vector<Step> steps;
  };
  const Case cases[] = {
      {"api",
       {{Event::kStop, 0, kNone},  // the program has not begun
        {Event::kStart, 1, kOpen},
        {Event::kSignal, 2, kNone},
        {Ranges{1}, 2, kNone},
        {Event::kClock, 1'000'000, kNone},
        {Event::kStop, 1'000'001, kClose},
        {Event::kStart, 1'000'002, kOpen}}},
      {"api/3",
       {{Event::kStart, 0, kOpen},
        {Event::kStop, 1, kClose},
        {Event::kStart, 2, kNone},
        {Event::kStart, 3, kNone},  // within that window
        {Event::kStop, 4, kClose},
        {Event::kStart, 5, kNone},
        {Event::kStop, 6, kClose},
        {Event::kStart, 7, kOpen}}},
      {"signal",
       {{Event::kSignal, 0, kOpen},
        {Event::kSignal, 1, kClose},
        {Event::kStart, 2, kNone},
        {Event::kSignal, 3, kOpen}}},
      {"nvtx:step",
       {{Ranges{0}, 0, kNone},
        {Ranges{1}, 1, kOpen},
        {Ranges{2}, 2, kNone},
        {Ranges{1}, 3, kNone},
        {Ranges{0}, 4, kClose},
        {Ranges{0}, 5, kNone},
        {Ranges{3}, 6, kOpen}}},
      {"nvtx:step/2",
       {{Ranges{1}, 0, kOpen},
        {Ranges{0}, 1, kClose},
        {Ranges{1}, 2, kNone},
        {Ranges{0}, 3, kNone},
        {Ranges{1}, 4, kOpen}}},
      {"time:1s+200ms",
       {{Event::kClock, 0, kNone},
        {Event::kClock, 899, kNone},
        {Event::kClock, 900, kAttach},
        {Event::kClock, 901, kNone},  // only once
        {Event::kClock, 1000, kOpen},
        {Event::kStart, 1001, kNone},
        {Event::kClock, 1199, kNone},
        {Event::kClock, 1200, kClose},
        {Event::kClock, 2000, kNone}}},
      {"time:1s+200ms/500msx2",
       {{Event::kClock, 1100, kOpen},  // late, but with its full length
        {Event::kClock, 1299, kNone},
        {Event::kClock, 1300, kClose},
        {Event::kClock, 1400, kAttach},
        {Event::kClock, 1500, kOpen},
        {Event::kClock, 1700, kClose},
        {Event::kClock, 2000, kNone}}},
      {"time:1s+200ms/500ms",
       {{Event::kClock, 1000, kOpen},
        {Event::kClock, 1200, kClose},
        {Event::kClock, 3800, kNone},  // the windows from 1.5 to 3.7 s were missed
        {Event::kClock, 3900, kAttach},
        {Event::kClock, 4000, kOpen}}},
      {"auto",  // no iterations are found
       {{Event::kClock, 19'899, kNone},
        {Event::kClock, 19'900, kAttach},
        {Event::kClock, 20'000, kOpen},
        {Event::kClock, 24'999, kNone},
        {Event::kClock, 25'000, kClose},
        {Event::kClock, 50'000, kNone}}},
      {"auto",  // the program takes over before that
       {{Event::kStop, 1, kNone},
        {Event::kStart, 2, kOpen},
        {Event::kStop, 3, kClose},
        {Event::kClock, 20'000, kNone},
        {Event::kStart, 30'000, kOpen},
        {Event::kClock, 40'000, kNone}}},
      {"auto",  // the program takes over in the clock's window
       {{Event::kClock, 20'000, kOpen},
        {Event::kStart, 21'000, kReopen},
        {Event::kClock, 26'000, kNone},
        {Event::kStart, 27'000, kOpen},  // within it: the session has a window open
        {Event::kStop, 28'000, kClose}}},
      {"auto",
       {{Event::kTakeOver, 0, kNone}, {Event::kClock, 20'000, kNone}, {Event::kStop, 20'001, kClose}}},
      {"always", {{Event::kStart, 0, kNone}, {Event::kStop, 1, kNone}, {Event::kClock, 2, kNone}}},
  };
  for (const Case& one : cases) {
    INFO(one.window);
    Player player(one.window);
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      INFO("step " << i);
      CHECK(player.play(one.steps[i].event, one.steps[i].milliseconds) == one.steps[i].action);
    }
  }
}

TEST_CASE("a range that opens while the window of another one is pending belongs to it", "[triggers]") {
  Player player("nvtx:step");
  REQUIRE(player.play(Ranges{1}, 0) == kOpen);
  player.state.pending = true;
  CHECK(player.play(Ranges{2}, 1) == kWait);
  player.state.pending = false;
  CHECK(player.play(Ranges{3}, 2) == kNone);
}

TEST_CASE("ranges close no window of somebody else's", "[triggers]") {
  Player player("nvtx:step");
  const auto another_opens = [&player] {
    player.state.window = player.state.next++;
    player.state.request = player.state.next_request++;
  };
  another_opens();
  CHECK(player.play(Ranges{1}, 0) == kNone);
  CHECK(player.play(Ranges{0}, 1) == kNone);
  player.end_window();
  // The ranges' window ended before it began, so the next window gets its number.
  REQUIRE(player.play(Ranges{1}, 2) == kOpen);
  --player.state.next;
  another_opens();
  CHECK(player.play(Ranges{0}, 3) == kNone);
  player.end_window();
  // Another window has begun before it.
  REQUIRE(player.play(Ranges{1}, 4) == kOpen);
  another_opens();
  player.trigger->requested(0);
  CHECK(player.play(Ranges{0}, 5) == kNone);
  player.end_window();
  // Another window has begun and ended.
  REQUIRE(player.play(Ranges{1}, 6) == kOpen);
  another_opens();
  player.trigger->requested(player.state.request);
  CHECK(player.play(Ranges{0}, 7) == kClose);
}

TEST_CASE("the clock closes no window of somebody else's", "[triggers]") {
  Player player("time:0s+100ms/1s");
  REQUIRE(player.play(Event::kClock, 0) == kOpen);
  REQUIRE(player.play(Event::kClock, 100) == kClose);
  player.state.window = player.state.next++;
  CHECK(player.play(Event::kClock, 900) == kNone);
  CHECK(player.play(Event::kClock, 2900) == kNone);
}

TEST_CASE("our thread wakes for the clock's edges, and for CUPTI ahead of them", "[triggers]") {
  Player player("time:1s+200ms/500msx2");
  const auto wake = [&] { return player.trigger->next_wake(player.state); };
  CHECK(wake() == 900 * kMillisecond);
  REQUIRE(player.play(Event::kClock, 900) == kAttach);
  CHECK(wake() == 1000 * kMillisecond);
  REQUIRE(player.play(Event::kClock, 1000) == kOpen);
  REQUIRE(player.play(Event::kClock, 1200) == kClose);
  player.state.collecting = true;  // CUPTI is still attached
  CHECK(wake() == 1500 * kMillisecond);
  player.state.collecting = false;
  CHECK(wake() == 1400 * kMillisecond);
  REQUIRE(player.play(Event::kClock, 1500) == kOpen);
  REQUIRE(player.play(Event::kClock, 1700) == kClose);
  CHECK(wake() == Trigger::kNever);
  CHECK(Player("time:50ms+1s").trigger->next_wake(player.state) <= 50 * kMillisecond);
  for (const char* other : {"api", "signal", "nvtx:step", "always", "iter:0+5", "launch:5+5"}) {
    INFO(other);
    CHECK(Player(other).trigger->next_wake({}) == Trigger::kNever);
  }
}

TEST_CASE("auto leaves the clock once iterations are found", "[triggers]") {
  Player player("auto");
  CHECK(player.trigger->next_wake(player.state) == 19'900 * kMillisecond);
  player.state.iterations_found = true;
  CHECK(player.trigger->next_wake(player.state) == Trigger::kNever);
  CHECK(player.play(Event::kClock, 20'000) == kNone);
  CHECK(player.trigger->searches_iterations());
  player.play(Event::kStart, 20'001);
  CHECK_FALSE(player.trigger->searches_iterations());
  CHECK(player.trigger->program_drives());
}

TEST_CASE("a trigger knows when no window will come", "[triggers]") {
  struct Case {
    const char* window;
    bool after_one;      // once it has had a window
    bool without_quota;  // once xN is used up
    bool has_quota;
  };
  const Case cases[] = {{"time:0s+1s", true, false, false},
                        {"time:0s+1s/2s", false, false, true},
                        {"time:0s+1s/2sx1", true, false, true},
                        {"api", false, true, true},
                        {"signal", false, true, true},
                        {"nvtx:a", false, true, true},
                        {"auto", true, false, true},
                        {"iter:0+5", false, false, false},
                        {"iter:0+5/10", false, false, true}};
  for (const Case& one : cases) {
    INFO(one.window);
    Player player(one.window);
    CHECK_FALSE(player.trigger->exhausted(true));
    CHECK(player.trigger->exhausted(false) == one.without_quota);
    CHECK(player.trigger->has_quota() == one.has_quota);
    player.play(Event::kClock, 20'000);
    CHECK(player.trigger->exhausted(true) == one.after_one);
  }
}

TEST_CASE("an iteration's window is planned, asked for and ended", "[triggers]") {
  IterationTrigger trigger(parsed_spec("iter:100+5/20x2"));
  const FoundIterations known = known_iterations();
  IterationPlanInput input;
  input.soonest = 60;
  CHECK(trigger.before(60, false) == kNone);
  CHECK_FALSE(trigger.planned());
  const IterationPlan plan = trigger.plan(known, input);
  REQUIRE(plan.result == IterationPlan::Result::kPlanned);
  CHECK(trigger.open_at() == 100);
  CHECK(trigger.before(99, false) == kAttach);
  CHECK(trigger.before(100, true) == kNone);  // a window of another kind is open
  CHECK(trigger.before(100, false) == kOpen);
  CHECK(trigger.name(100) == "iterations 100-104 (iter:100+5/20x2)");
  trigger.begin(100);
  trigger.begun();
  CHECK(trigger.active());
  CHECK(trigger.before(104, true) == kNone);
  CHECK(trigger.before(105, true) == kClose);
  trigger.restart_at(102);  // it opened late
  CHECK(trigger.before(105, true) == kNone);
  CHECK(trigger.before(107, true) == kClose);
  trigger.end();
  CHECK_FALSE(trigger.planned());
  CHECK_FALSE(trigger.over());
  input.soonest = 107;
  trigger.plan(known, input);
  CHECK(trigger.open_at() == 120);
  trigger.forget_plan();
  CHECK(trigger.before(120, false) == kNone);
  input.soonest = 130;  // its begin has passed, and does not count against x2
  trigger.plan(known, input);
  REQUIRE(trigger.open_at() == 140);
  trigger.begin(140);
  trigger.end();
  input.soonest = 145;
  CHECK(trigger.plan(known, input).result == IterationPlan::Result::kNoMore);
  CHECK(trigger.over());
  CHECK(trigger.exhausted(true));
}

TEST_CASE("a window that opened too early is planned again", "[triggers]") {
  for (const char* window : {"iter:100+5", "iter:100+5/20x2"}) {
    CAPTURE(window);
    IterationTrigger trigger(parsed_spec(window));
    IterationPlanInput input;
    input.soonest = 60;
    trigger.plan(known_iterations(), input);
    trigger.begin(100);
    trigger.begun();
    CHECK(trigger.first() == 100);
    CHECK(trigger.is_early(7, 8));
    CHECK(trigger.is_early(7, 100));
    CHECK_FALSE(trigger.is_early(7, 101));  // the requested window is in progress
    CHECK_FALSE(trigger.is_early(100, 100));
    CHECK_FALSE(trigger.is_early(103, 104));
    trigger.give_up();
    CHECK_FALSE(trigger.active());
    CHECK_FALSE(trigger.over());
    CHECK_FALSE(trigger.planned());
    input.soonest = 8;
    trigger.plan(known_iterations(), input);
    CHECK(trigger.open_at() == 100);
  }
  // A false start had counted past the first windows, which are still to come.
  IterationTrigger passed(parsed_spec("iter:100+5/20"));
  IterationPlanInput far;
  far.soonest = 1000;
  passed.plan(known_iterations(), far);
  CHECK(passed.open_at() == 1000);
  passed.begin(1000);
  passed.begun();
  passed.give_up();
  far.soonest = 70;
  passed.plan(known_iterations(), far);
  CHECK(passed.open_at() == 100);
  passed.forget_plan();
  far.soonest = 115;
  passed.plan(known_iterations(), far);
  CHECK(passed.open_at() == 120);
  IterationTrigger late(parsed_spec("iter:10+5"));
  IterationPlanInput input;
  input.soonest = 60;
  late.plan(known_iterations(), input);
  CHECK(late.open_at() == 60);
  CHECK(late.is_early(9, 10));
  CHECK_FALSE(late.is_early(10, 61));  // the window was to begin there
}

TEST_CASE("iterations after a window are named where the next one leaves room", "[triggers]") {
  struct Case {
    const char* window;
    bool after_first;
    bool after_second;
  };
  for (const Case& one :
       {Case{"iter:10+5", true, true}, Case{"iter:10+5/100", true, true}, Case{"iter:10+5/15", true, true},
        Case{"iter:10+5/14", false, false}, Case{"iter:10+5/5x2", false, true}, Case{"auto", true, true}}) {
    INFO(one.window);
    IterationTrigger trigger(parsed_spec(one.window));
    IterationPlanInput input;
    input.soonest = 5;
    input.time = 100 * kSecond;
    for (const bool extended : {one.after_first, one.after_second}) {
      if (trigger.plan(known_iterations(), input).result != IterationPlan::Result::kPlanned) break;
      const std::uint64_t first = trigger.open_at();
      trigger.begin(first);
      trigger.begun();
      const std::uint64_t end = trigger.close_at();
      CHECK(trigger.extend(2) == extended);
      CHECK(trigger.close_at() == end + (extended ? 2 : 0));
      CHECK(trigger.before(trigger.close_at() - 1, true) == kNone);
      CHECK(trigger.before(trigger.close_at(), true) == kClose);
      input.soonest = trigger.close_at();
      trigger.end();
    }
  }
}

TEST_CASE("a window of iterations that can't be opened is the last", "[triggers]") {
  IterationTrigger trigger(parsed_spec("iter:10+5/20"));
  IterationPlanInput input;
  input.soonest = 5;
  REQUIRE(trigger.plan(known_iterations(), input).result == IterationPlan::Result::kPlanned);
  trigger.begin(10);
  trigger.failed();
  CHECK_FALSE(trigger.active());
  CHECK(trigger.exhausted(true));
}

TEST_CASE("activity is on around the windows of launches", "[triggers]") {
  struct Case {
    const char* window;
    std::uint64_t count;
    LaunchStage stage;
  };
  const Case cases[] = {
      {"launch:100000+50", 0, LaunchStage::kFar},
      {"launch:100000+50", 79'999, LaunchStage::kFar},
      {"launch:100000+50", 80'000, LaunchStage::kNear},
      {"launch:100000+50", 100'049, LaunchStage::kNear},
      {"launch:100000+50", 100'051, LaunchStage::kOver},
      {"launch:0+50/100000x2", 51, LaunchStage::kFar},
      {"launch:0+50/100000x2", 100'049, LaunchStage::kNear},
      {"launch:0+50/100000x2", 100'050, LaunchStage::kOver},
      {"launch:0+50/100000", 18'446'744'090'000, LaunchStage::kNear},
      {"launch:0+50/100000", 18'446'744'000'100, LaunchStage::kFar},
  };
  for (const Case& one : cases) {
    INFO(one.window << " after " << one.count);
    const WindowSpec window = parsed_spec(one.window);
    CHECK(launch_stage(window, Schedule(window), one.count) == one.stage);
  }
}
