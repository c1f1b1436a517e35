// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Idle time by line: each rule alone, and generated programs for which it is known what each gap waited for.
#include "libinject/stats/code_gaps.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "libinject/analysis/copies.h"
#include "libinject/model/code_place.h"
#include "libinject/stats/collector_input.h"
#include "libinject/stats/device_time.h"
#include "tests/unit/stats_run.h"

namespace inject {
namespace {

constexpr std::uint32_t kMain = 1;
constexpr std::uint32_t kOtherThread = 2;

GapPlace at_launch(std::uint32_t place, IdleCause cause) {
  return {GapPlace::Kind::kLaunch, place, cause};
}
GapPlace at_stack(std::uint32_t stack, IdleCause cause) {
  return {GapPlace::Kind::kStack, stack, cause};
}
GapPlace unknown(IdleCause cause) {
  return {GapPlace::Kind::kUnknown, 0, cause};
}

/// The same launches in window 1 and, one second later, in the named iteration after it.
struct Iteration {
  static constexpr Nanoseconds kLater = 1000 * kMillisecond;

  CodeGaps gaps;
  std::vector<CodeLaunch> launches;

  /// Returns its number, which is also its place.
  std::uint32_t launch(Nanoseconds time, std::uint32_t thread = kMain, std::uint32_t device = 0) {
    const auto place = static_cast<std::uint32_t>(launches.size() + 1);
    launches.push_back({time, time + 5 * kMicrosecond, thread, place, device, false, false});
    return place;
  }
  std::uint32_t copy(Nanoseconds time, Nanoseconds end, bool waits, std::uint32_t thread = kMain) {
    const std::uint32_t place = launch(time, thread);
    launches.back().end = end;
    launches.back().is_copy = true;
    launches.back().waits = waits;
    return place;
  }
  void wait(Nanoseconds begin, Nanoseconds end, std::uint32_t place, std::uint32_t thread = kMain) {
    gaps.wait(thread, kLater + begin, kLater + end, place);
  }
  void sample(Nanoseconds time, std::uint32_t stack, std::uint32_t thread = kMain) {
    gaps.sample(thread, kLater + time, stack);
  }
  IdleGap gap(std::uint32_t place, IdleCause cause, std::uint64_t time = 1000) const {
    const CodeLaunch& launch = launches.at(place - 1);
    IdleGap gap;
    gap.time = time;
    gap.cause = cause;
    gap.delayed_by = gap.thread = launch.thread;
    gap.launched = launch.time;
    gap.device = launch.device;
    return gap;
  }
  void settle(const std::vector<IdleGap>& of_window, std::optional<Nanoseconds> end = std::nullopt) {
    for (const IdleGap& one : of_window) gaps.gap(1, one);
    std::vector<CodeLaunch> named = launches;
    std::vector<std::uint32_t> alike;
    std::vector<JoinedPlace> joined;
    for (CodeLaunch& one : named) {
      one.time += kLater;
      one.end += kLater;
      joined.push_back({one.place, static_cast<std::uint32_t>(alike.size())});
      alike.push_back(static_cast<std::uint32_t>(alike.size()));
    }
    gaps.named(named, alike, 1, end);
    gaps.settle(1, launches, joined);
  }
  std::uint64_t time(const GapPlace& place) const {
    const auto found = gaps.sums().find(place);
    return found == gaps.sums().end() ? 0 : found->second.time;
  }
};

}  // namespace

TEST_CASE("A gap in which the host computed is that of the lines in between", "[code_gaps]") {
  Iteration run;
  run.launch(1 * kMillisecond);
  run.sample(2 * kMillisecond, 70);
  run.sample(3 * kMillisecond, 70);
  run.sample(4 * kMillisecond, 71);
  run.sample(4 * kMillisecond, 72, kOtherThread);
  const std::uint32_t second = run.launch(5 * kMillisecond);
  const std::uint32_t third = run.launch(6 * kMillisecond);
  const std::uint64_t odd = 1'000'001;
  run.settle({run.gap(second, IdleCause::kHostCompute, odd), run.gap(third, IdleCause::kHostCompute)});
  CHECK(run.time(at_stack(71, IdleCause::kHostCompute)) == odd / 3);
  CHECK(run.time(at_stack(70, IdleCause::kHostCompute)) == odd - odd / 3);
  CHECK(run.time(at_launch(third, IdleCause::kHostCompute)) == 1000);
  CHECK(run.gaps.sums().at(at_stack(70, IdleCause::kHostCompute)).gaps == 1);
  CHECK(run.gaps.sums().at(at_stack(71, IdleCause::kHostCompute)).gaps == 0);
}

TEST_CASE("What comes after the last launch is of the next iteration's first", "[code_gaps]") {
  const auto run_to = [](std::optional<Nanoseconds> end) {
    auto run = std::make_unique<Iteration>();
    const std::uint32_t first = run->launch(1 * kMillisecond);
    run->launch(2 * kMillisecond);
    run->sample(3 * kMillisecond, 70);
    run->sample(4 * kMillisecond, 71);
    run->sample(6 * kMillisecond, 72);  // in the next iteration
    run->settle({run->gap(first, IdleCause::kHostCompute)}, end);
    return run;
  };
  const auto whole = run_to(Iteration::kLater + 5 * kMillisecond);
  CHECK(whole->time(at_stack(70, IdleCause::kHostCompute)) == 500);
  CHECK(whole->time(at_stack(71, IdleCause::kHostCompute)) == 500);
  // Its end was not seen, so what would have followed is unknown.
  const auto cut = run_to(std::nullopt);
  CHECK(cut->time(at_launch(1, IdleCause::kHostCompute)) == 1000);
}

TEST_CASE("The host's own work is kept apart from its way to a launch", "[code_gaps]") {
  Iteration run;
  run.launch(1 * kMillisecond);
  run.sample(2 * kMillisecond, 70);
  run.sample(3 * kMillisecond, 71);
  const std::uint32_t sampled = run.launch(5 * kMillisecond);
  const std::uint32_t other = run.launch(6 * kMillisecond);
  const std::uint32_t unread = run.launch(7 * kMillisecond, kOtherThread);
  std::vector<IdleGap> gaps;
  for (const std::uint32_t launch : {sampled, other, unread}) {
    gaps.push_back(run.gap(launch, IdleCause::kHostCompute, 1001));
    gaps.push_back(run.gap(launch, IdleCause::kHostCompute, 5 * kMillisecond + 1));
    gaps.back().own_work = true;
  }
  run.settle(gaps);
  const auto time = [&](GapPlace place, bool own_work) {
    place.own_work = own_work;
    return run.time(place);
  };
  const auto both = [&](GapPlace place) { return std::pair(time(place, false), time(place, true)); };
  using Times = std::pair<std::uint64_t, std::uint64_t>;
  CHECK(both(at_stack(70, IdleCause::kHostCompute)) ==
        Times(501, (5 * kMillisecond + 1) - (5 * kMillisecond + 1) / 2));
  CHECK(both(at_stack(71, IdleCause::kHostCompute)) == Times(500, (5 * kMillisecond + 1) / 2));
  CHECK(both(at_launch(other, IdleCause::kHostCompute)) == Times(1001, 0));
  CHECK(both(unknown(IdleCause::kHostCompute)) == Times(0, 5 * kMillisecond + 1));
  CHECK(both(at_launch(unread, IdleCause::kHostCompute)) == Times(1001, 5 * kMillisecond + 1));
}

TEST_CASE("A long gap that the named iterations do not have has no line", "[code_gaps]") {
  Iteration run;
  run.launch(1 * kMillisecond);
  const std::uint32_t of_main = run.launch(2 * kMillisecond);
  run.sample(3 * kMillisecond, 70);
  run.launch(4 * kMillisecond);
  const std::uint32_t of_other = run.launch(5 * kMillisecond, kOtherThread);
  run.settle({run.gap(of_main, IdleCause::kHostCompute, 100 * kMillisecond),
              run.gap(of_main, IdleCause::kLaunchCall, 90 * kMillisecond),
              run.gap(of_main, IdleCause::kHostWait, 1 * kMillisecond),
              // Stacks of that thread are not read.
              run.gap(of_other, IdleCause::kHostCompute, 80 * kMillisecond)});
  CHECK(run.time(unknown(IdleCause::kHostCompute)) == 100 * kMillisecond);
  CHECK(run.time(at_launch(of_main, IdleCause::kLaunchCall)) == 90 * kMillisecond);
  CHECK(run.time(at_launch(of_main, IdleCause::kHostWait)) == 1 * kMillisecond);
  CHECK(run.time(at_launch(of_other, IdleCause::kHostCompute)) == 80 * kMillisecond);
}

TEST_CASE("While a thread waits or copies its stack does not count, and in a launch it is that one's",
          "[code_gaps]") {
  Iteration run;
  run.launch(1 * kMillisecond);
  run.wait(2 * kMillisecond, 9 * kMillisecond, 500);
  run.sample(3 * kMillisecond, 70);
  run.copy(10 * kMillisecond, 19 * kMillisecond, true);
  run.sample(15 * kMillisecond, 71);
  run.sample(20 * kMillisecond, 72);
  const std::uint32_t slow = run.launch(21 * kMillisecond);
  run.launches.back().end = 29 * kMillisecond;
  run.sample(25 * kMillisecond, 73);
  run.sample(26 * kMillisecond, 73);
  run.sample(27 * kMillisecond, 73);
  run.sample(30 * kMillisecond, 74);
  const std::uint32_t last = run.launch(31 * kMillisecond);
  run.settle({run.gap(slow, IdleCause::kLaunchCall, 8000), run.gap(last, IdleCause::kHostCompute, 400)});
  CHECK(run.time(at_stack(72, IdleCause::kLaunchCall)) == 2000);
  CHECK(run.time(at_stack(73, IdleCause::kLaunchCall)) == 6000);
  CHECK(run.time(at_stack(74, IdleCause::kHostCompute)) == 400);
}

TEST_CASE("A wait is that of the thread that was late", "[code_gaps]") {
  Iteration run;
  run.launch(1 * kMillisecond);
  run.launch(1 * kMillisecond, kOtherThread);
  run.wait(2 * kMillisecond, 3 * kMillisecond, 500);
  run.wait(2 * kMillisecond, 4 * kMillisecond, 600, kOtherThread);
  run.wait(2 * kMillisecond, 5 * kMillisecond, 700, 9);  // a thread that launches nothing
  const std::uint32_t next = run.launch(6 * kMillisecond);
  IdleGap own = run.gap(next, IdleCause::kSynchronization, 100);
  own.call = 2 * kMillisecond;
  IdleGap of_other = run.gap(next, IdleCause::kSynchronization, 30);
  of_other.call = 2 * kMillisecond;
  of_other.delayed_by = kOtherThread;
  // A gap by lack of lead may be due to a wait of any thread.
  const IdleGap lead = run.gap(next, IdleCause::kSynchronization, 5);
  run.settle({own, of_other, lead});
  CHECK(run.time(at_launch(500, IdleCause::kSynchronization)) == 100);
  CHECK(run.time(at_launch(600, IdleCause::kSynchronization)) == 35);
}

TEST_CASE("Of several waits before a launch it is the longest", "[code_gaps]") {
  Iteration run;
  const std::uint32_t first = run.launch(1 * kMillisecond);
  run.wait(2 * kMillisecond, 8 * kMillisecond, 500);
  run.wait(9 * kMillisecond, 9 * kMillisecond + 10, 501);
  const std::uint32_t second = run.launch(10 * kMillisecond);
  const std::uint32_t third = run.launch(11 * kMillisecond);
  run.wait(12 * kMillisecond, 12 * kMillisecond + 10, 502);
  const std::uint32_t fourth = run.launch(13 * kMillisecond);
  run.wait(14 * kMillisecond, 15 * kMillisecond, 0);  // at an unknown place
  const std::uint32_t last = run.launch(16 * kMillisecond);
  std::vector<IdleGap> of_window;
  std::uint64_t time = 1;
  for (const std::uint32_t place : {first, second, third, fourth, last}) {
    of_window.push_back(run.gap(place, IdleCause::kSynchronization, time));
    of_window.back().call = 1;
    time *= 10;
  }
  run.settle(of_window);
  CHECK(run.time(at_launch(500, IdleCause::kSynchronization)) == 110);
  CHECK(run.time(at_launch(502, IdleCause::kSynchronization)) == 1000);
  CHECK(run.time(unknown(IdleCause::kSynchronization)) == 10001);
}

TEST_CASE("A copy's call that took the time is that copy's, whatever is launched next", "[code_gaps]") {
  Iteration run;
  const std::uint32_t slow = run.copy(1 * kMillisecond, 9 * kMillisecond, false);
  const std::uint32_t item = run.copy(10 * kMillisecond, 19 * kMillisecond, true);
  run.copy(20 * kMillisecond, 21 * kMillisecond, false, kOtherThread);
  const std::uint32_t next = run.copy(22 * kMillisecond, 23 * kMillisecond, false);
  IdleGap by_copy = run.gap(next, IdleCause::kCopyCall, 100);
  by_copy.call = 1 * kMillisecond;
  IdleGap by_item = run.gap(next, IdleCause::kSynchronization, 30);
  by_item.call = 10 * kMillisecond;
  IdleGap by_none = run.gap(next, IdleCause::kCopyCall, 5);
  by_none.call = 7;  // a call that copied nothing
  run.settle({by_copy, by_item, by_none});
  CHECK(run.time(at_launch(slow, IdleCause::kCopyCall)) == 100);
  CHECK(run.time(at_launch(item, IdleCause::kSynchronization)) == 30);
  CHECK(run.time(unknown(IdleCause::kCopyCall)) == 5);
}

TEST_CASE("What one launch launches has one past", "[code_gaps]") {
  Iteration run;
  run.launch(1 * kMillisecond);
  run.sample(3 * kMillisecond, 70);
  const std::uint32_t first = run.launch(5 * kMillisecond);
  const std::uint32_t second = run.launch(5 * kMillisecond);
  std::vector<CodeLaunch> named = run.launches;
  for (CodeLaunch& one : named) one.time += Iteration::kLater;
  run.gaps.gap(1, run.gap(second, IdleCause::kHostCompute));
  run.gaps.named(named, std::vector<std::uint32_t>{0, 1, 2}, 1, std::nullopt);
  // A graph's kernels come in another order, and the first has no place.
  const JoinedPlace joined[] = {{1, 0}, {0, JoinedPlace::kNone}, {first, 2}};
  run.gaps.settle(1, run.launches, joined);
  CHECK(run.time(at_stack(70, IdleCause::kHostCompute)) == 1000);
}

TEST_CASE("What a device waited for is since the last launch on it", "[code_gaps]") {
  Iteration run;
  run.launch(1 * kMillisecond, kMain, 0);
  for (Nanoseconds at = 2; at < 10; ++at) run.sample(at * kMillisecond, 70);
  const std::uint32_t other = run.launch(10 * kMillisecond, kMain, 1);
  run.sample(11 * kMillisecond, 71);
  run.sample(12 * kMillisecond, 71);
  const std::uint32_t next = run.launch(13 * kMillisecond, kMain, 0);
  IdleGap closing = run.gap(next, IdleCause::kHostCompute, 7);
  closing.is_closing = true;
  closing.device = 1;
  run.settle(
      {run.gap(other, IdleCause::kHostCompute, 800), run.gap(next, IdleCause::kHostWait, 1000), closing});
  CHECK(run.time(at_stack(70, IdleCause::kHostCompute)) == 807);
  CHECK(run.time(at_stack(70, IdleCause::kHostWait)) == 800);
  CHECK(run.time(at_stack(71, IdleCause::kHostWait)) == 200);
}

TEST_CASE("Gaps that are no line's", "[code_gaps]") {
  Iteration run;
  const std::uint32_t launch = run.launch(1 * kMillisecond);
  std::vector<IdleGap> of_window;
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    const auto cause = static_cast<IdleCause>(i);
    of_window.push_back(run.gap(launch, cause, 3));
    of_window.back().launched = 77;  // an unknown launch
  }
  run.settle(of_window);
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    const auto cause = static_cast<IdleCause>(i);
    const bool on_device = cause == IdleCause::kOtherStream || cause == IdleCause::kCollective ||
                           cause == IdleCause::kQueue || cause == IdleCause::kGraph;
    CHECK(run.time({on_device ? GapPlace::Kind::kDevice : GapPlace::Kind::kUnknown, 0, cause}) == 3);
  }
}

TEST_CASE("Windows are settled in any order, before those that are named and after", "[code_gaps]") {
  CodeGaps gaps;
  const CodeLaunch launches[] = {{10, 12, kMain, 1, 0, false, false}, {20, 22, kMain, 2, 0, false, false}};
  const std::uint32_t alike[] = {0, 1};
  const JoinedPlace joined[] = {{1, 0}, {2, 1}};
  IdleGap gap;
  gap.cause = IdleCause::kHostCompute;
  gap.delayed_by = gap.thread = kMain;
  for (std::uint32_t window = 1; window <= 4; ++window) {
    gap.is_closing = false;
    gap.launched = 20;
    gap.time = 1;
    gaps.gap(window, gap);
    gap.is_closing = true;
    gap.time = 100;
    gaps.gap(window, gap);
  }
  // Without named iterations.
  gaps.settle(1, launches, std::vector<JoinedPlace>(2));
  CHECK(gaps.sums().at(unknown(IdleCause::kHostCompute)).time == 101);
  gaps.named(launches, alike, 3, std::nullopt);
  gaps.settle(4, launches, joined);
  gaps.settle(3, launches, joined);
  gaps.settle(2, launches, joined);
  gaps.settle(2, launches, joined);
  CHECK(gaps.sums().at(at_launch(2, IdleCause::kHostCompute)).time == 3);
  // Only window 3 ends where the launches that are named begin.
  CHECK(gaps.sums().at(at_launch(1, IdleCause::kHostCompute)).time == 100);
  CHECK(gaps.sums().at(unknown(IdleCause::kHostCompute)).time == 301);
}

TEST_CASE("Beyond the bounds gaps are unknown, and all are counted", "[code_gaps]") {
  Iteration run;
  run.launch(1 * kMillisecond);
  const std::uint32_t next = run.launch(Iteration::kLater / 2);
  IdleGap gap = run.gap(next, IdleCause::kHostCompute, 3);
  SECTION("gaps") {
    for (std::size_t i = 0; i < CodeGaps::kMaxHeld + 5; ++i) run.gaps.gap(1, gap);
    run.settle({});
    CHECK(run.gaps.sums().at(at_launch(next, IdleCause::kHostCompute)).gaps == CodeGaps::kMaxHeld);
    CHECK(run.gaps.sums().at(unknown(IdleCause::kHostCompute)).gaps == 5);
  }
  SECTION("samples, each of another stack") {
    for (std::uint32_t i = 0; i < CodeGaps::kMaxSamples + 5; ++i) run.sample(2 * kMillisecond + i, i + 1);
    gap.time = ~std::uint64_t{0} / CodeGaps::kMaxSamples;
    run.settle({gap});
    CHECK(run.gaps.sums().size() == CodeGaps::kMaxSamples);
    std::uint64_t sum = 0;
    for (const auto& [place, times] : run.gaps.sums()) sum += times.time;
    CHECK(sum == gap.time);
  }
  SECTION("waits") {
    gap.cause = IdleCause::kSynchronization;
    for (std::size_t i = 0; i < CodeGaps::kMaxWaits + 1; ++i)
      run.wait(2 * kMillisecond + i, 2 * kMillisecond + i + 1, 500);
    run.sample(3 * kMillisecond, 70);
    IdleGap computed = run.gap(next, IdleCause::kHostCompute, 50 * kMillisecond);
    run.settle({gap, computed});
    CHECK(run.time(unknown(IdleCause::kSynchronization)) == 3);
    CHECK(run.time(unknown(IdleCause::kHostCompute)) == 50 * kMillisecond);
  }
}

namespace {

/// One line of the generated program. Its number is that of its place; its stack has that number plus
/// kStacks.
constexpr std::uint32_t kStacks = 100'000;
enum class Kind { kLaunch, kSynchronize, kItem, kUpload };
struct Line {
  Kind kind = Kind::kLaunch;
  std::uint32_t thread = kMain;
  std::uint32_t device = 0;
  std::uint32_t place = 0;
  /// Time that its thread computes before it, and on which line: on its own if that time is short.
  Nanoseconds compute = 0;
  std::uint32_t computing = 0;
  Nanoseconds works = 0;  ///< time that the device works
  std::uint32_t kernel = 0;
};
using Listing = std::vector<Line>;

struct Choice {
  std::mt19937 random;
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return least + random() % (most - least + 1);
  }
  bool one_in(std::uint32_t most) { return random() % most == 0; }
};

Listing make_program(Choice& choice, std::uint32_t& places, bool threads) {
  Listing program;
  const std::uint64_t lines = choice.between(4, 20);
  const std::uint64_t backward = threads ? choice.between(1, lines) : lines;
  for (std::uint64_t i = 0; i < lines; ++i) {
    Line line;
    line.place = ++places;
    line.computing = line.place;
    line.kernel = line.place % 7;
    line.compute = choice.between(0, 40) * kMicrosecond;
    if (choice.one_in(4)) {
      line.computing = ++places;
      line.compute = choice.between(3 * kMillisecond, 20 * kMillisecond);
    }
    line.works = choice.one_in(3) ? choice.between(1 * kMillisecond, 8 * kMillisecond)
                                  : choice.between(2, 80) * kMicrosecond;
    if (i > 0 && choice.one_in(4))
      line.kind = std::array{Kind::kSynchronize, Kind::kItem, Kind::kUpload}[choice.between(0, 2)];
    // The thread's computation before it belongs to that before the next launch, which has a single line
    // here.
    if (line.kind == Kind::kSynchronize) {
      line.compute = 0;
      line.computing = line.place;
    }
    // The backward pass runs none of the program's own computation.
    if (i >= backward && i < backward + 5) {
      line.kind = Kind::kLaunch;
      line.thread = kOtherThread;
      line.compute = choice.between(0, 20) * kMicrosecond;
      line.computing = line.place;
    }
    program.push_back(line);
  }
  program.front().kind = program.back().kind = Kind::kLaunch;
  return program;
}

/// Runs the program on a simulated host and device, and feeds the statistics.
class Machine {
 public:
  explicit Machine(std::uint32_t seed, std::size_t most_held = DeviceTimeStatistics::kMaxHeld)
      : choice{std::mt19937(seed)}, observer(most_held) {
    run.statistics.expect_names(run.places);
    observer.tell_gaps([this](std::uint32_t, const IdleGap& gap) { gaps.push_back(gap); });
  }

  void boundary() {
    IterationBoundary boundary;
    boundary.number = ++iterations;
    boundary.begin = time + 1;
    boundary.window = window;
    run.statistics.iteration_boundary(boundary);
  }

  void iterate(const Listing& program) {
    boundary();
    time += 2;
    for (const Line& line : program) step(line);
  }

  void open(std::uint32_t number) {
    window = number;
    opened = time;
  }
  void close() {
    closed = time;
    naming_ = true;
    next_sample_ = time;
  }
  void settle() {
    observer.settle_window(window, opened, closed);
    run.statistics.settle_window(window, opened, closed);
  }

  Choice choice;
  StatsRun run;
  DeviceTimeStatistics observer;
  std::vector<IdleGap> gaps;
  Nanoseconds time = 1000 * kMillisecond;
  Nanoseconds opened = 0;
  Nanoseconds closed = 0;
  std::uint32_t window = 0;
  std::uint32_t iterations = 0;
  /// In the window: the line of each launch or wait, by thread and time.
  std::map<std::pair<std::uint32_t, Nanoseconds>, Line> truth;

 private:
  /// The thread is on `line` until that time.
  void be(std::uint32_t line, Nanoseconds until) {
    for (; naming_ && next_sample_ < until; next_sample_ += choice.between(300, 1000) * kMicrosecond) {
      // A sample within a launch's few microseconds would be attributed to the launch, with a part of the
      // gap.
      const bool in_launch = until - time < 10 * kMicrosecond;
      if (next_sample_ >= time && !in_launch) run.statistics.add_stack(kMain, next_sample_, kStacks + line);
    }
    time = until;
  }

  void step(const Line& line) {
    Host& host = hosts_[line.thread];
    // The other thread waits meanwhile.
    be(line.computing, time + line.compute);
    host.processor += line.compute;
    if (last_thread_ != line.thread) ++host.waits;
    last_thread_ = line.thread;
    const Nanoseconds begin = time;
    if (begin - host.end >= kProcessorTimeApart) read(line.thread, begin);
    Nanoseconds& free = free_[line.device];
    Nanoseconds start = std::max(free, begin + 4 * kMicrosecond);
    Nanoseconds end = begin + 5 * kMicrosecond;
    switch (line.kind) {
      case Kind::kLaunch:
        free = start + line.works;
        break;
      case Kind::kSynchronize:
        end = std::max(end, free + 3 * kMicrosecond);
        break;
      case Kind::kItem:
        free = start + 2 * kMicrosecond;
        end = free + 3 * kMicrosecond;
        break;
      case Kind::kUpload:
        start = std::max(free, begin + line.works);
        free = start + 20 * kMicrosecond;
        end = free + line.works / 2;
        break;
    }
    if (!naming_) truth[{line.thread, begin}] = line;
    be(line.place, end);
    host.end = end;
    host.processor += end - begin;
    tell(line, begin, end, start, free);
    if (end - begin >= kProcessorTimeApart) read(line.thread, end);
  }

  void read(std::uint32_t thread, Nanoseconds at) {
    if (naming_) return;
    const Host& host = hosts_[thread];
    run.statistics.add(ProcessorTimeEvent{window, thread, at, host.processor, host.waits});
    observer.reading(window, thread, {at, host.processor, host.waits});
  }

  void tell(const Line& line, Nanoseconds begin, Nanoseconds end, Nanoseconds start, Nanoseconds until) {
    constexpr std::array kNames{"cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync",
                                "cudaMemcpyAsync"};
    CallEvent call = call_event(kNames[static_cast<std::size_t>(line.kind)], end - begin);
    call.window = window;
    call.thread = line.thread;
    call.begin = begin;
    call.end = end;
    const bool waits = line.kind == Kind::kSynchronize;
    call.correlation = waits ? 0 : ++correlation_;
    if (naming_ && waits) run.statistics.add_named_wait(line.thread, begin, end, line.place);
    const FunctionKinds::Kind& kind = kinds_.of(call.function);
    if (!naming_) {
      run.statistics.add(call);
      observer.call(window, line.thread, {begin, end, call.function, kind.state, kind.asks});
    }
    if (waits) return;
    Attribution launch;
    launch.known = true;
    launch.function = call.function;
    launch.window = naming_ ? window | kNamingWindow : window;
    launch.thread = line.thread;
    launch.range = naming_ ? line.place : 0;
    launch.host_begin = begin;
    launch.host_end = end;
    if (line.kind == Kind::kLaunch) {
      KernelEvent event = run.kernel("kernel " + std::to_string(line.kernel), 0);
      event.launch = launch;
      event.device = line.device;
      event.correlation = correlation_;
      event.start = start;
      event.end = until;
      if (naming_) return run.statistics.add_named(event);
      run.statistics.add(event);
      observer.work(window, line.device, timed_work(event, false, kind.state));
      return;
    }
    const bool item = line.kind == Kind::kItem;
    TransferEvent event = copy_event(item ? kDeviceToHost : kHostToDevice, item ? 4 : 1 << 24, 0);
    event.launch = launch;
    event.device = line.device;
    event.correlation = correlation_;
    event.start = start;
    event.end = until;
    if (naming_) return run.statistics.add_named(event);
    run.statistics.add(event);
    if (item) observer.small_download(window, line.thread, begin);
    observer.work(window, line.device, timed_work(event, kind.state));
  }

  struct Host {
    Nanoseconds end = 0;
    Nanoseconds processor = 0;
    std::uint64_t waits = 0;
  };
  std::map<std::uint32_t, Host> hosts_;
  std::map<std::uint32_t, Nanoseconds> free_;
  FunctionKinds kinds_;
  std::uint32_t last_thread_ = 0;
  std::uint32_t correlation_ = 0;
  bool naming_ = false;
  Nanoseconds next_sample_ = 0;
};

using ByCause = std::map<IdleCause, std::uint64_t>;
using ByLine = std::map<std::pair<std::uint32_t, IdleCause>, std::uint64_t>;

/// Idle time must equal the diagnosis's to the nanosecond, for each cause.
void check_sums(const Machine& machine) {
  ByCause expected;
  std::uint64_t own_work = 0;
  for (const DeviceTimeRow& row : machine.run.statistics.device_times().rows()) {
    own_work += row.times.own_work;
    for (std::size_t i = 0; i < kIdleCauses; ++i)
      expected[static_cast<IdleCause>(i)] += row.times.idle_by_cause[i].time;
  }
  ByCause gaps;
  std::uint64_t count = 0;
  for (const auto& [place, times] : machine.run.statistics.code_times().gaps()) {
    gaps[place.cause] += times.time;
    count += times.gaps;
    if (place.own_work) own_work -= times.time;
  }
  CHECK(own_work == 0);
  std::erase_if(expected, [](const auto& one) { return one.second == 0; });
  std::erase_if(gaps, [](const auto& one) { return one.second == 0; });
  CHECK(expected == gaps);
  CHECK(count == machine.gaps.size());
}

struct Outcome {
  std::uint64_t known = 0;
  std::uint64_t all = 0;  ///< time of gaps with a line
};

/// No line has more than the time that was waited for it; if `complete`, no less either.
Outcome check_lines(const Machine& machine, bool complete) {
  const auto is_wait = [](const Line& line) {
    return line.kind == Kind::kSynchronize || line.kind == Kind::kItem;
  };
  ByLine expected;
  std::set<std::uint32_t> waits;
  std::uint64_t lead = 0;
  for (const auto& [key, line] : machine.truth) {
    if (is_wait(line)) waits.insert(line.place);
  }
  Outcome outcome;
  for (const IdleGap& gap : machine.gaps) {
    switch (gap.cause) {
      case IdleCause::kSynchronization:
      case IdleCause::kCopyCall:
        if (gap.call == 0) {
          lead += gap.time;
        } else {
          expected[{machine.truth.at({gap.delayed_by, gap.call}).place, gap.cause}] += gap.time;
        }
        break;
      case IdleCause::kLaunchCall:
      case IdleCause::kOtherCall:
      case IdleCause::kHostCompute:
      case IdleCause::kHostWait:
        if (!gap.is_closing) {
          const Line& line = machine.truth.at({gap.thread, gap.launched});
          expected[{gap.delayed_by == kMain ? line.computing : line.place, gap.cause}] += gap.time;
        }
        break;
      default:
        continue;
    }
    outcome.all += gap.time;
  }
  ByLine found;
  std::uint64_t by_lead = 0;
  for (const auto& [place, times] : machine.run.statistics.code_times().gaps()) {
    if (place.kind != GapPlace::Kind::kLaunch && place.kind != GapPlace::Kind::kStack) continue;
    const std::uint32_t line = place.kind == GapPlace::Kind::kStack ? place.number - kStacks : place.number;
    found[{line, place.cause}] += times.time;
    outcome.known += times.time;
  }
  for (const auto& [where, time] : found) {
    INFO("line " << where.first << ", " << idle_cause_name(where.second));
    const std::uint64_t wanted = expected.count(where) != 0 ? expected.at(where) : 0;
    if (where.second == IdleCause::kSynchronization) {
      CHECK(waits.count(where.first) == 1);
      if (time > wanted) by_lead += time - wanted;
    } else {
      CHECK(time <= wanted);
    }
  }
  CHECK(by_lead <= lead);
  if (!complete) return outcome;
  for (const auto& [where, wanted] : expected) {
    INFO("line " << where.first << ", " << idle_cause_name(where.second));
    CHECK(found[where] >= wanted);
  }
  return outcome;
}

}  // namespace

TEST_CASE("Generated programs: every gap has the line that it waited for", "[code_gaps]") {
  const bool threads = GENERATE(false, true);
  const std::size_t most_held = GENERATE(std::size_t{100}, DeviceTimeStatistics::kMaxHeld);
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed << (threads ? ", two threads" : ""));
    Machine machine(seed, most_held);
    std::uint32_t places = 0;
    const Listing program = make_program(machine.choice, places, threads);
    machine.iterate(program);
    machine.open(1);
    for (int i = 0; i < 5; ++i) machine.iterate(program);
    machine.close();
    for (int i = 0; i < 2; ++i) machine.iterate(program);
    machine.boundary();
    machine.settle();
    if (most_held != DeviceTimeStatistics::kMaxHeld) continue;
    check_sums(machine);
    check_lines(machine, true);
  }
}

TEST_CASE("Generated programs whose iterations take turns, and vary", "[code_gaps]") {
  const bool threads = GENERATE(false, true);
  Outcome all;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed << (threads ? ", two threads" : ""));
    Machine machine(seed);
    std::uint32_t places = 0;
    const Listing critic = make_program(machine.choice, places, threads);
    const Listing generator = make_program(machine.choice, places, threads);
    machine.open(1);
    for (int i = 0; i < 8; ++i) {
      Listing program = i % 2 == 0 ? critic : generator;
      const auto at = static_cast<std::ptrdiff_t>(machine.choice.between(0, program.size() - 1));
      // A line that the named iterations do not run, or one that this iteration skips.
      if (i % 4 == 2) {
        Line added;
        added.place = ++places;
        added.computing = ++places;
        added.compute = machine.choice.between(0, 15) * kMillisecond;
        added.works = 50 * kMicrosecond;
        added.kernel = 100;  // a kernel with one other place only would be attributed to that place
        program.insert(program.begin() + at, added);
      } else if (i % 4 == 3 && program.size() > 1) {
        program.erase(program.begin() + at);
      }
      machine.iterate(program);
    }
    machine.close();
    machine.iterate(critic);
    machine.iterate(generator);
    machine.boundary();
    machine.settle();
    check_sums(machine);
    const Outcome outcome = check_lines(machine, false);
    all.known += outcome.known;
    all.all += outcome.all;
  }
  INFO(all.known << " of " << all.all << " ns");
  CHECK(static_cast<double>(all.known) > 0.7 * static_cast<double>(all.all));
}

TEST_CASE("Generated programs on several devices, and windows without names: sums", "[code_gaps]") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    Machine machine(seed);
    std::uint32_t places = 0;
    Listing program = make_program(machine.choice, places, true);
    for (Line& line : program) line.device = static_cast<std::uint32_t>(machine.choice.between(0, 2));
    machine.open(1);
    for (int i = 0; i < 3; ++i) machine.iterate(program);
    machine.closed = machine.time + machine.choice.between(0, 3) * kMillisecond;
    machine.settle();
    machine.time = machine.closed + 100 * kMillisecond;
    machine.open(2);
    for (int i = 0; i < 3; ++i) machine.iterate(program);
    machine.close();
    for (int i = 0; i < 2; ++i) machine.iterate(program);
    machine.boundary();
    machine.settle();
    check_sums(machine);
  }
}

TEST_CASE("Gaps are told in time when the statistics are bounded", "[code_gaps]") {
  // However early gaps are judged, the reported ones add up to the rows' sums.
  for (const std::size_t most : {std::size_t{20}, std::size_t{200}, std::size_t{2000}}) {
    DeviceTimeStatistics statistics(most);
    std::uint64_t told = 0;
    std::uint64_t count = 0;
    statistics.tell_gaps([&](std::uint32_t window, const IdleGap& gap) {
      CHECK(window == 1);
      CHECK(gap.device < 2);
      told += gap.time;
      ++count;
    });
    std::mt19937 random(7);
    Nanoseconds time = kMillisecond;
    for (int i = 0; i < 5000; ++i) {
      TimedWork work;
      work.launch_begin = time += random() % 1000;
      work.launch_end = time += random() % 1000;
      work.start = time += random() % 1000;
      work.end = work.start + random() % 2000;
      work.thread = 1;
      work.launch_known = random() % 10 != 0;
      statistics.work(1, static_cast<std::uint32_t>(random() % 2), work);
    }
    statistics.settle_window(1, kMillisecond, time + 5000);
    std::uint64_t idle = 0;
    std::uint64_t gaps = 0;
    for (const DeviceTimeRow& row : statistics.rows()) {
      for (const DeviceTimes::Idle& one : row.times.idle_by_cause) {
        idle += one.time;
        gaps += one.gaps;
      }
    }
    CHECK(told == idle);
    CHECK(count == gaps);
  }
}

}  // namespace inject
