// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/iteration_tracker.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libinject/base/format.h"
#include "libinject/base/mapping.h"
#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

constexpr const char* kFusedAdam = "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18FusedAdam";
constexpr Nanoseconds kBetweenSigns = 51'000;  // between two signs
constexpr std::uint64_t kOptimizerSign = 500;

using Rows = std::vector<std::string>;

/// Where iterations begin, as reported to the statistics.
class Boundaries : public EventSink {
 public:
  using EventSink::add;
  void add(const IterationBoundary& boundary) override { all.push_back(boundary); }
  std::vector<IterationBoundary> all;
};

/// A program whose signs pass through this thread's queue, with a simulated clock. Uses the process's only
/// watch.
struct Tracking {
  Tracking() : Tracking(std::string()) {}
  explicit Tracking(std::string recording) : tracker(core, windows, profiled, drain, std::move(recording)) {
    drain.add_sink(told);
    core.threads.drain([](std::uint32_t, const Slot&) {});  // left over from an earlier test
    iteration_watch.armed = false;
    iteration_watch.count = 0;
    iteration_watch.dropped_units = 0;
    iteration_watch.next_stop = IterationWatch::kNever;
    iteration_watch.on_stop = nullptr;
    iteration_watch.source = SignSource::kHooks;
  }
  ~Tracking() {
    iteration_watch.source = SignSource::kNone;
    iteration_watch.armed = false;
  }
  Tracking(const Tracking&) = delete;
  Tracking& operator=(const Tracking&) = delete;

  static std::uint64_t hash(std::uint64_t function) { return hash_mix(function * kHashSeed + 1); }
  void event(SignKind kind, std::uint64_t function, std::uint64_t size = 0) {
    time += kBetweenSigns;
    emit_sign(kind, hash(function), hash_mix(hash(function) + size + 2), 7, false, time);
  }
  void kernels(std::uint64_t first, std::uint64_t last, std::uint64_t size = 0) {
    for (std::uint64_t function = first; function <= last; ++function)
      event(SignKind::kKernel, function, size);
  }
  /// PyTorch kernels; an optimizer's can be recognised by name.
  void name_layer() { emit_name(hash(10), "_ZN2at6native18elementwise_kernelILi128ELi4EEEv"); }
  void name_optimizer() { emit_name(hash(kOptimizerSign), kFusedAdam); }
  /// 30 signs: a batch, forward and backward through three layers, the optimizer. A step that only
  /// accumulates gradients has no optimizer.
  void step(bool optimizer = true) {
    begins.push_back(time + kBetweenSigns);
    event(SignKind::kCopyToDevice, 9001);
    for (std::uint64_t layer = 0; layer < 3; ++layer) kernels(10, 13, layer);
    kernels(20, 21);
    for (std::uint64_t layer = 3; layer-- > 0;) kernels(30, 33, layer);
    if (optimizer) kernels(kOptimizerSign, kOptimizerSign + 2);
  }
  /// Steps, each followed by a pass of the drain.
  void steps(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      step();
      pass();
    }
  }
  void pass() {
    tracker.prepare();
    const SignPass pass = begin_sign_pass();
    core.threads.drain([this](std::uint32_t thread, const Slot& slot) { drain.take(thread, slot); });
    drain.advance_search(pass, false);
    tracker.update(time);
  }
  /// Starts the search with the signs from here on.
  void search() { tracker.restart(begin_sign_pass().sequence, time); }

  /// Begins of the reported iterations, whose numbers are checked.
  std::vector<Nanoseconds> told_begins(std::uint64_t first = 0) {
    std::vector<Nanoseconds> found;
    for (const IterationBoundary& boundary : told.all) {
      CHECK(boundary.label == IterationLabel::kIteration);
      CHECK(boundary.followed);
      CHECK(boundary.number == first + found.size());
      found.push_back(boundary.begin);
    }
    return found;
  }
  /// Begins of the program's iterations that are over, which excludes the last one.
  std::vector<Nanoseconds> over() const { return {begins.begin(), begins.end() - 1}; }

  Core& core = *Core::get();
  WindowLog windows;
  ProfiledTimes profiled;
  Statistics statistics{core.names, core.ranges, core.shapes};
  Drain drain{core, windows, statistics, [] {}};
  Boundaries told;
  IterationTracker tracker;
  Nanoseconds time = 1000 * kSecond;
  std::vector<Nanoseconds> begins;
};

const WindowSpec kAutoWindow = parse_window_spec("auto").spec;

WindowSpec iterations_from(std::uint64_t start) {
  return parse_window_spec(str_format("iter:{}+1", start)).spec;
}

}  // namespace

TEST_CASE_METHOD(Tracking, "where no iterations are looked for there is nothing to say of them",
                 "[iterations]") {
  steps(2);
  tracker.note_window(true, 1, 1);
  tracker.settle();
  tracker.finish();
  CHECK_FALSE(tracker.restarting());
  CHECK_FALSE(tracker.found().lock);
  CHECK(tracker.found().events == 0);
  CHECK(tracker.report().empty());
  CHECK(tracker.why_none(kAutoWindow).empty());
  CHECK_FALSE(tracker.info("hooks"));
  CHECK(told.all.empty());
}

TEST_CASE_METHOD(Tracking,
                 "what repeated without an optimizer, and came no more, may have been no iterations",
                 "[iterations]") {
  search();
  for (int i = 0; i < 40; ++i) {
    for (std::uint64_t function = 1; function <= 10; ++function) event(SignKind::kKernel, function);
    pass();
  }
  REQUIRE(tracker.found().lock);
  CHECK(tracker.why_none(kAutoWindow).find("if they were iterations") == std::string::npos);
  for (std::uint64_t function = 100; function < 400; ++function) event(SignKind::kKernel, function);
  pass();
  CHECK(tracker.why_none(kAutoWindow).find(" training iterations ran, if they were iterations") !=
        std::string::npos);
}

TEST_CASE_METHOD(Tracking, "a search begins with the pass after it was asked for, and its first sign",
                 "[iterations]") {
  step();
  search();
  CHECK(tracker.restarting());
  kernels(1, 5);
  CHECK(tracker.found().events == 0);
  pass();
  CHECK_FALSE(tracker.restarting());
  CHECK(tracker.found().events == 5);
  kernels(1, 3);
  pass();
  CHECK(tracker.found().events == 8);
}

TEST_CASE_METHOD(Tracking, "iterations that are found arm the watch, and are told as they end",
                 "[iterations]") {
  search();
  name_optimizer();
  while (!tracker.found().lock) {
    REQUIRE(begins.size() < 20);
    iteration_watch.next_stop = 7;
    steps(1);
  }
  const FoundIterations& found = tracker.found();
  CHECK(found.lock->optimizer);
  CHECK(found.changes == 1);
  CHECK(found.begun == begins.size());
  CHECK(found.begun_then == begins.size());
  CHECK(found.since == time);
  CHECK(found.events == 30 * begins.size());
  CHECK(told_begins() == over());
  // Plans made with the old numbers are void.
  CHECK(iteration_watch.next_stop == IterationWatch::kNever);
  CHECK(iteration_watch.armed);
  CHECK(iteration_watch.begin == found.lock->marks.begin);
  CHECK(iteration_watch.anchor == found.lock->marks.anchor);
  CHECK_FALSE(found.offset);

  const std::uint64_t then = begins.size();
  steps(4);
  REQUIRE(found.offset);
  CHECK(iteration_watch.count >= 3u);
  CHECK(static_cast<std::int64_t>(iteration_watch.count) + *found.offset ==
        static_cast<std::int64_t>(begins.size() - 1));
  CHECK(found.changes == 1);
  CHECK(found.begun == begins.size());
  CHECK(found.begun_then == then);
  CHECK(found.since != time);
  CHECK(found.typical_duration == 30 * kBetweenSigns);
  CHECK(told_begins() == over());
}

TEST_CASE_METHOD(Tracking, "iterations that nobody watches are told, but are not to be planned by",
                 "[iterations]") {
  iteration_watch.source = SignSource::kNone;
  search();
  name_optimizer();
  steps(20);
  CHECK_FALSE(tracker.found().lock);
  CHECK_FALSE(iteration_watch.armed);
  CHECK(tracker.found().begun == 20);
  CHECK(told_begins() == over());
}

TEST_CASE_METHOD(Tracking, "repetition alone is believed after some iterations and some time",
                 "[iterations]") {
  search();
  while (!tracker.found().lock) {
    REQUIRE(begins.size() < 40);
    steps(1);
  }
  REQUIRE_FALSE(tracker.found().lock->optimizer);
  const std::uint64_t then = tracker.found().begun_then;
  REQUIRE(then == begins.size());
  const bool time_first = GENERATE(true, false);
  CAPTURE(time_first);
  if (time_first) {
    time = tracker.found().since + FoundIterations::kSteadyTime;
    steps(FoundIterations::kSteadyUnnamed - 1);
    CHECK(told.all.empty());
    steps(1);
  } else {
    steps(FoundIterations::kSteadyUnnamed);
    const Nanoseconds before = time;
    REQUIRE(before < tracker.found().since + FoundIterations::kSteadyTime);
    time = tracker.found().since + FoundIterations::kSteadyTime - 1;
    pass();
    CHECK(told.all.empty());
    ++time;
    pass();
  }
  CHECK(told_begins() == over());
  steps(1);
  CHECK(told_begins() == over());
}

TEST_CASE_METHOD(Tracking, "repetition alone is not believed where an optimizer will show", "[iterations]") {
  search();
  name_layer();
  steps(10);
  CHECK_FALSE(tracker.found().lock);
  time += 30 * kSecond;
  steps(10);
  REQUIRE(tracker.found().lock);
  REQUIRE_FALSE(tracker.found().lock->optimizer);
  time += FoundIterations::kSteadyTime;
  steps(40);
  CHECK(told.all.empty());
  // The end of a window waits for no better answer.
  tracker.settle();
  CHECK(told_begins().size() == begins.size());
}

TEST_CASE_METHOD(Tracking, "a better lock tells from the beginning what was held back", "[iterations]") {
  search();
  // Four batches per iteration: single batches are found first.
  const auto accumulate = [&](unsigned count) {
    std::vector<Nanoseconds> iterations;
    for (unsigned i = 0; i < count; ++i) {
      iterations.push_back(time + kBetweenSigns);
      for (int batch = 0; batch < 4; ++batch) {
        const std::uint64_t before = tracker.found().changes;
        step(batch == 3);
        pass();
        // The watch's count refers to other iterations.
        if (tracker.found().changes != before) CHECK_FALSE(tracker.found().offset);
      }
    }
    return iterations;
  };
  std::vector<Nanoseconds> iterations = accumulate(12);
  REQUIRE(tracker.found().lock);
  const std::uint64_t changes = tracker.found().changes;
  const Nanoseconds since = tracker.found().since;
  REQUIRE_FALSE(tracker.found().lock->optimizer);
  CHECK(told.all.empty());
  iteration_watch.next_stop = 1000;

  name_optimizer();
  for (const Nanoseconds begin : accumulate(12)) iterations.push_back(begin);
  CHECK(tracker.found().changes > changes);
  CHECK(tracker.found().since > since);
  REQUIRE(tracker.found().lock->optimizer);
  CHECK(tracker.found().lock->events == Approx(4 * 30 - 9));
  CHECK(iteration_watch.next_stop == IterationWatch::kNever);
  iterations.pop_back();
  CHECK(told_begins() == iterations);
  CHECK(tracker.info("hooks")->changes == tracker.found().changes - 1);
}

TEST_CASE_METHOD(Tracking, "a new search ends what was known, and numbers anew", "[iterations]") {
  search();
  name_optimizer();
  steps(20);
  REQUIRE(tracker.found().lock);
  const std::size_t before = told.all.size();
  const bool window = GENERATE(true, false);
  CAPTURE(window);
  // A window that has ended keeps the iteration in which it ended.
  if (window) windows.end(windows.open("test", begins.back() + 1), time);
  step();  // from the earlier source
  search();
  const Nanoseconds asked = time;
  name_optimizer();
  pass();
  CHECK_FALSE(tracker.found().lock);
  CHECK(tracker.found().begun == 0);
  CHECK(tracker.found().changes == 0);
  // If something was to be shown, the iteration that was running is reported first.
  REQUIRE(told.all.size() == before + (window ? 3 : 1));
  CHECK_FALSE(told.all.back().followed);
  CHECK(told.all.back().begin == asked);
  if (window) {
    CHECK(told.all[before].begin == begins[19]);
    CHECK(told.all[before + 1].number == 20);
    CHECK(told.all[before + 1].begin == windows.span(1).end);
  }
  told.all.clear();
  begins.clear();
  steps(20);
  REQUIRE(tracker.found().lock);
  CHECK(tracker.found().begun == 20);
  CHECK(told_begins() == over());
}

TEST_CASE_METHOD(Tracking, "a new search forgets spans that were not believed", "[iterations]") {
  search();
  steps(25);
  REQUIRE(tracker.found().lock);
  CHECK(told.all.empty());
  search();
  // Windows may be settled before there is time to process signs.
  tracker.prepare();
  tracker.settle();
  CHECK(told.all.empty());
  pass();
  begins.clear();
  name_optimizer();
  steps(10);
  CHECK(told_begins() == over());
}

TEST_CASE_METHOD(Tracking, "numbers that a window has shown are not given again", "[iterations]") {
  search();
  name_optimizer();
  steps(20);
  windows.open("test", begins.back());
  steps(3);
  CHECK(told.all.back().window == 1);
  CHECK(told.all.back().number == 21);
  windows.end(1, time);
  search();
  name_optimizer();
  pass();
  REQUIRE(told.all.size() == 25);
  CHECK(told.all[22].number == 22);
  CHECK(told.all[22].window == 1);
  CHECK(told.all[22].begin == begins[22]);
  CHECK(told.all[23].window_before == 1);
  CHECK_FALSE(told.all[24].followed);
  told.all.clear();
  begins.clear();
  steps(20);
  CHECK(told_begins(23) == over());
}

TEST_CASE_METHOD(Tracking, "what runs at the program's end is told of", "[iterations]") {
  search();
  name_optimizer();
  steps(20);
  windows.end(windows.open("test", begins.back()), time + 1);
  step();
  core.threads.drain([this](std::uint32_t thread, const Slot& slot) { drain.take(thread, slot); });
  tracker.finish();
  // The signs not yet processed are in it.
  REQUIRE(told.all.size() == 21);
  CHECK(told.all[19].window == 1);
  CHECK(told.all[20].begin == begins[20]);
  CHECK(told.all[20].window_before == 1);
}

TEST_CASE_METHOD(Tracking, "the iteration at a window's end is shown, unless the clock ended it",
                 "[iterations]") {
  search();
  name_optimizer();
  steps(20);
  CHECK(tracker.clock_window() == 0);
  CHECK_FALSE(tracker.clock_ended());
  // Iteration 19 appears to be over.
  windows.end(windows.open("test", begins[19] - 1), time + 1);
  const int clock = GENERATE(0, 1, 2);
  CAPTURE(clock);
  if (clock == 1) tracker.set_clock_window(1);
  if (clock == 2) tracker.set_clock_ended(true);
  CHECK(tracker.clock_window() == (clock == 1 ? 1 : 0));
  CHECK(tracker.clock_ended() == (clock == 2));
  tracker.settle();
  CHECK(told_begins().size() == (clock == 0 ? 21 : 20));
  CHECK(told.all.back().begin == (clock == 0 ? time + 1 : begins[19]));
}

TEST_CASE_METHOD(Tracking, "what ran unseen is told as a gap", "[iterations]") {
  search();
  name_optimizer();
  steps(20);
  CHECK(told_begins() == over());
  windows.end(windows.open("test", begins[19]), time + 5);
  // The program's own switch, between two iterations; the following signs are in the middle of one.
  REQUIRE(tracker.gaps().add(begin_sign_pass().sequence, true));
  time += kSecond;
  kernels(30, 33);
  pass();
  REQUIRE(told.all.size() == 21);
  CHECK(told.all[19].begin == begins[19]);
  CHECK(told.all[19].window == 1);
  CHECK(told.all[20].begin == windows.span(1).end);
  CHECK(told.all[20].window_before == 1);
  CHECK(told.all[20].number == 20);
}

TEST_CASE_METHOD(Tracking, "a launch that was held for the window begins its iteration there",
                 "[iterations]") {
  search();
  name_optimizer();
  steps(20);
  step();
  tracker.hold(begins[20], begins[20] + 20'000);
  pass();
  steps(1);
  REQUIRE(told.all.size() == 21);
  CHECK(told.all[20].begin == begins[20] + 20'000);
}

TEST_CASE_METHOD(Tracking, "units are of the iteration whose first sign follows", "[iterations]") {
  search();
  name_optimizer();
  emit_units(1000, UnitSource::kCalled);  // of the first iteration, like the next ones
  for (unsigned i = 0; i < 40; ++i) {
    if (i % 3 != 1) emit_units(i, UnitSource::kCalled);
    event(SignKind::kCopyToDevice, 9001);
    begins.push_back(time);
    kernels(10, 28);
    if (i % 4 == 0) emit_units(0.5, UnitSource::kCalled);
    kernels(kOptimizerSign, kOptimizerSign + 2);
    if (i % 5 == 0) pass();
  }
  pass();
  REQUIRE(told.all.size() == 39);
  for (unsigned i = 0; i < 38; ++i) {
    CAPTURE(i);
    std::optional<double> expected;
    if (i % 3 != 1) expected = i;
    if (i % 4 == 0) expected = expected.value_or(0) + 0.5;
    if (i == 0) expected = 1000.5;
    CHECK(told.all[i + 1].units_before == expected);
  }
  CHECK_FALSE(told.all[0].units_before);
}

TEST_CASE_METHOD(Tracking, "where some units were not heard, their iteration has none", "[iterations]") {
  search();
  name_optimizer();
  for (unsigned i = 0; i < 40; ++i) {
    emit_units(8, UnitSource::kCalled);
    if (i == 30) {
      // Nothing was seen for a while between two iterations.
      iteration_watch.source = SignSource::kNone;
      emit_units(8, UnitSource::kCalled);
      REQUIRE(tracker.gaps().add(begin_sign_pass().sequence, true));
      iteration_watch.source = SignSource::kHooks;
      emit_units(8, UnitSource::kCalled);
    }
    if (i == 33) {
      // A mark without a sequence number is from an earlier source and is ignored.
      SignRecord filler;
      filler.sign = SignKind::kMark;
      while (ThreadRegistry::push(*ThreadRegistry::current(), filler)) {
      }
      emit_units(8, UnitSource::kCalled);
      pass();
      emit_units(8, UnitSource::kCalled);
    }
    if (i == 35) emit_units(-1, UnitSource::kCalled);
    step();
    pass();
  }
  std::vector<std::optional<double>> units(40);
  for (std::size_t i = 1; i < told.all.size(); ++i) {
    if (told.all[i - 1].number < 40) units[told.all[i - 1].number] = told.all[i].units_before;
  }
  for (unsigned i = 0; i < 38; ++i) {
    CAPTURE(i);
    CHECK(units[i] == (i == 30 || i == 33 || i == 35 ? std::optional<double>() : 8));
  }
}

TEST_CASE_METHOD(Tracking, "a number that found no room is not known before another one tells of it",
                 "[iterations]") {
  search();
  name_optimizer();
  for (unsigned i = 0; i < 40; ++i) {
    event(SignKind::kCopyToDevice, 9001);
    begins.push_back(time);
    pass();  // the previous iteration is reported, with no number after it
    emit_units(8, UnitSource::kCalled);
    if (i == 33) {
      SignRecord filler;
      filler.sign = SignKind::kMark;
      while (ThreadRegistry::push(*ThreadRegistry::current(), filler)) {
      }
      emit_units(8, UnitSource::kCalled);
      pass();
    }
    kernels(10, 28);
    kernels(kOptimizerSign, kOptimizerSign + 2);
    pass();
  }
  REQUIRE(told.all.size() == 39);
  for (unsigned i = 0; i < 38; ++i) {
    CAPTURE(i);
    CHECK(told.all[i].begin == begins[i]);
    // It was reported after the latest number of 33 and before the first one of 34.
    CHECK(told.all[i + 1].units_before == (i == 33 || i == 34 ? std::optional<double>() : 8));
  }
}

TEST_CASE_METHOD(Tracking, "what was said of the first iteration before a restart is missing",
                 "[iterations]") {
  enum class Before { kNothing, kTaken, kInTheQueue, kOfAnEventUnderWay, kOfAnEventBefore };
  for (const Before before : {Before::kNothing, Before::kNothing, Before::kTaken, Before::kInTheQueue,
                              Before::kOfAnEventUnderWay, Before::kOfAnEventBefore}) {
    CAPTURE(static_cast<int>(before));
    if (before != Before::kNothing) emit_units(10, UnitSource::kCalled);
    if (before == Before::kTaken) pass();
    if (before == Before::kOfAnEventUnderWay || before == Before::kOfAnEventBefore)
      event(SignKind::kSync, 9002);
    if (before == Before::kOfAnEventBefore) event(SignKind::kSync, 9002);
    search();
    name_optimizer();
    const std::size_t first = begins.size();
    for (unsigned i = 0; i < 30; ++i) {
      emit_units(20, UnitSource::kCalled);
      steps(1);
    }
    auto told_first = std::ranges::find(told.all, begins[first], &IterationBoundary::begin);
    REQUIRE(told.all.end() - told_first > 10);
    const bool is_known = before == Before::kNothing || before == Before::kOfAnEventBefore;
    CHECK((++told_first)->units_before == (is_known ? 20 : std::optional<double>()));
    for (unsigned i = 1; i < 10; ++i) CHECK((++told_first)->units_before == 20);
  }
}

TEST_CASE_METHOD(Tracking, "what another source says while nothing is followed counts for nothing",
                 "[iterations]") {
  search();
  name_optimizer();
  for (unsigned i = 0; i < 30; ++i) {
    if (i == 20) {
      iteration_watch.source = SignSource::kNone;
      emit_units(8, UnitSource::kCalled);
      iteration_watch.source = SignSource::kHooks;
      REQUIRE(tracker.gaps().add(begin_sign_pass().sequence, true));
    }
    emit_units(8, UnitSource::kPayload);
    steps(1);
  }
  REQUIRE(told.all.size() == 29);
  for (unsigned i = 1; i < 29; ++i) CHECK(told.all[i].units_before == 8);
}

TEST_CASE_METHOD(Tracking, "the iteration at a window's end has its units", "[iterations]") {
  search();
  name_optimizer();
  for (unsigned i = 0; i < 20; ++i) {
    emit_units(i, UnitSource::kCalled);
    steps(1);
  }
  emit_units(100, UnitSource::kCalled);  // belongs to the next iteration
  windows.end(windows.open("test", begins[19] - 1), time + 1);
  pass();
  tracker.settle();
  REQUIRE(told.all.size() == 21);
  CHECK(told.all[20].units_before == 19);
}

TEST_CASE_METHOD(Tracking, "spans that are held back are bounded", "[iterations]") {
  constexpr std::size_t kMax = 65'536;
  search();
  // Graphs are accepted as iterations sooner.
  const auto short_steps = [&](std::size_t count) {
    for (; count != 0; --count) {
      event(SignKind::kCopyToDevice, 9001);
      event(SignKind::kGraph, 5);
      event(SignKind::kSync, 9002);
    }
    pass();
  };
  name_layer();
  while (!tracker.found().lock) {
    REQUIRE(tracker.found().events < 10'000);
    short_steps(10);
  }
  while (tracker.found().begun + 1000 < kMax) short_steps(1000);
  CHECK(tracker.found().changes == 1);
  short_steps(kMax - tracker.found().begun);
  REQUIRE(tracker.found().begun == kMax);
  CHECK(told.all.empty());
  short_steps(1);
  CHECK(told.all.empty());
  short_steps(1);
  CHECK(told.all.size() == kMax + 1);
}

TEST_CASE_METHOD(Tracking, "a run without a window says what was seen", "[iterations]") {
  search();
  kernels(1, 3);
  pass();
  CHECK(tracker.report() ==
        "3 launches, copies and synchronizations of 3 kinds were seen (3 launches and library calls), none "
        "of a known optimizer");
  CHECK(tracker.why_none(kAutoWindow) == ": no training iterations were found; " + tracker.report());
  const auto none = tracker.info("hooks");
  REQUIRE(none);
  CHECK(none->source == "hooks");
  CHECK_FALSE(none->found);
  CHECK(none->report == tracker.report());

  search();
  name_optimizer();
  // All of them: work after the optimizer could be the end of an iteration in which the stream begins.
  for (std::uint64_t i = 1; i < 3; ++i) emit_name(hash(kOptimizerSign + i), kFusedAdam);
  pass();
  steps(20);
  REQUIRE(tracker.found().lock);
  CHECK(tracker.why_none(iterations_from(20)) == ": only 20 training iterations ran");
  const std::uint64_t before = tracker.found().begun_then;
  REQUIRE((before > 0 && before < 20));
  CHECK(tracker.why_none(iterations_from(before)) == ": 20 training iterations ran");
  CHECK(tracker.why_none(iterations_from(before - 1)) ==
        str_format(": 20 training iterations ran, {} of them before they were recognized", before));
  CHECK(tracker.why_none(kAutoWindow) ==
        ": 20 training iterations ran, but not for long enough: auto waits for one second and 5 iterations "
        "after it has recognized them");
  steps(700);  // more than a second: a window should have opened
  CHECK(tracker.why_none(kAutoWindow) == ": 720 training iterations ran");
  const auto some = tracker.info("callbacks");
  REQUIRE(some);
  CHECK(some->source == "callbacks");
  CHECK(some->found);
  CHECK(some->report.empty());
  CHECK(some->optimizer);
  CHECK_FALSE(some->rough);
  CHECK(some->by_shape == tracker.found().lock->by_shape);
  CHECK(some->events == 30);
  CHECK(some->begun == 720);
  CHECK(some->changes == 0);
  CHECK(some->locked_after == tracker.found().lock->seen_before);
  CHECK_FALSE(some->begins_with.empty());
  CHECK(some->anchor.find("multi_tensor_apply_kernel") != std::string::npos);
}

TEST_CASE("a stream of launches is recorded on request", "[iterations]") {
  const TemporaryFolder folder;
  {
    Tracking run(folder.path() + "/stream");
    run.steps(1);
    CHECK(folder.read("stream").empty());
    run.search();
    run.kernels(1, 2);
    run.pass();
    run.tracker.note_window(true, 5, 1);
    run.tracker.note_window(false, 9, 1);
    run.search();
    run.pass();
    run.kernels(3, 3);
    run.pass();
    run.tracker.finish();
  }
  std::string kinds;
  const std::string text = folder.read("stream");
  for (std::size_t line = 0; line < text.size(); line = text.find('\n', line) + 1) kinds += text[line];
  CHECK(kinds == "KKOCRK");
  CHECK(text.find("\nO 5 1\nC 9 1\n") != std::string::npos);
}

TEST_CASE("a recording that can't be made is an error, and the search goes on", "[iterations]") {
  const TemporaryFolder folder;
  Tracking run(folder.path() + "/none/stream");
  run.search();
  run.name_optimizer();
  run.steps(20);
  CHECK(run.tracker.found().lock);
  const std::vector<std::string> messages = Log::notable();
  CHECK(std::count_if(messages.begin(), messages.end(), [&](const std::string& message) {
          return message.rfind("INJECT_ITER_RECORD: the launch stream can't be recorded: ", 0) == 0 &&
                 message.find(folder.path()) != std::string::npos;
        }) == 1);
}

TEST_CASE("what is found is taken over whole only where the lock is another", "[iterations]") {
  FoundIterations known;
  FoundIterations newer;
  newer.begun = 3;
  newer.typical_duration = 7;
  newer.events = 100;
  newer.offset = -2;
  newer.begun_then = 50;
  known.update(newer);
  CHECK(known.begun == 3);
  CHECK(known.typical_duration == 7);
  CHECK(known.events == 100);
  CHECK(known.offset == -2);
  CHECK(known.begun_then == 0);

  newer.lock.emplace();
  newer.lock->events = 30;
  const int what = GENERATE(0, 1, 2);
  if (what == 0) known.lock.emplace();
  if (what == 1) newer.changes = 1;
  if (what == 2) newer.since = 5;
  known.update(newer);
  REQUIRE(known.lock);
  CHECK(known.lock->events == (what == 0 ? 0 : 30));
  CHECK(known.begun_then == (what == 0 ? 0 : 50));
  CHECK(known.changes == newer.changes);
  CHECK(known.since == newer.since);
}

TEST_CASE("a lock in words", "[iterations]") {
  IterationDetector::Lock lock;
  lock.seen_before = 12;
  lock.events = 56.6;
  lock.begin_name = "the first";
  lock.anchor_name = "the last";
  CHECK(describe(lock) ==
        "12 had run; about 57 launches, copies and synchronizations each; they begin with the first after "
        "the last");
}
