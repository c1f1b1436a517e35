// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/span_boundaries.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

using Rows = std::vector<std::string>;

struct Telling {
  /// `iteration 3 at 300: 0 -> 1`: the window of the iteration that ends there, and of the one that begins.
  static std::string row(const IterationBoundary& boundary) {
    if (!boundary.followed) return "unknown from " + std::to_string(boundary.begin);
    const char* const label = boundary.label == IterationLabel::kCheckpoint   ? "checkpoint before "
                              : boundary.label == IterationLabel::kValidation ? "validation before "
                                                                              : "iteration ";
    return label + std::to_string(boundary.number) + " at " + std::to_string(boundary.begin) + ": " +
           std::to_string(boundary.window_before) + " -> " + std::to_string(boundary.window);
  }

  /// Its last event is ten nanoseconds before its end.
  static IterationSpan iteration(std::uint64_t number, Nanoseconds begin, Nanoseconds end) {
    IterationSpan span;
    span.number = number;
    span.begin = begin;
    span.end = end;
    span.last_event_time = end - 10;
    return span;
  }
  static IterationSpan phase(std::uint64_t following, Nanoseconds begin, Nanoseconds end) {
    IterationSpan span = iteration(following, begin, end);
    span.phase = true;
    return span;
  }
  static IterationSpan cut(std::uint64_t number, Nanoseconds begin, Nanoseconds end, bool whole,
                           std::uint64_t following) {
    IterationSpan span = iteration(number, begin, end);
    span.cut = true;
    span.whole = whole;
    span.following = following;
    return span;
  }
  void window(Nanoseconds begin, Nanoseconds end = 0) {
    const std::uint32_t number = windows.open("test", begin);
    if (end != 0) windows.end(number, end);
  }
  /// Iterations first … last; number n begins at 100 n + 100.
  void iterations(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t n = first; n <= last; ++n) boundaries.add(iteration(n, 100 * n + 100, 100 * n + 200));
  }
  /// Boundaries reported since the last call.
  Rows told() { return std::exchange(told_, {}); }
  Rows kept() { return std::exchange(kept_, {}); }

  WindowLog windows;
  ProfiledTimes profiled;
  SpanBoundaries boundaries{windows,
                            profiled,
                            {[this](const IterationBoundary& boundary) {
                               told_.push_back(row(boundary));
                               // The iteration that ends there.
                               if (boundary.unprofiled_before) unprofiled.push_back(boundary.number - 1);
                               if (boundary.anew) anew.push_back(boundary.begin);
                               units.push_back(boundary.units_before.value_or(-1));
                             },
                             [this](std::uint64_t next, Nanoseconds until) {
                               kept_.push_back(std::to_string(next) + " until " + std::to_string(until));
                             }}};
  std::vector<std::uint64_t> unprofiled;
  std::vector<Nanoseconds> anew;
  std::vector<double> units;  // -1: none
  Rows told_;
  Rows kept_;
};

}  // namespace

TEST_CASE_METHOD(Telling, "a boundary is told where an iteration begins, in its window", "[iterations]") {
  window(200, 400);
  iterations(0, 4);
  // The window closed before the first call of iteration 3.
  CHECK(told() == Rows{"iteration 0 at 100: 0 -> 0", "iteration 1 at 200: 0 -> 1",
                       "iteration 2 at 300: 1 -> 1", "iteration 3 at 400: 1 -> 0",
                       "iteration 4 at 500: 0 -> 0"});
  // Only iterations that are shown keep their numbers.
  CHECK(kept() == Rows{"2 until 200", "3 until 300"});
}

TEST_CASE_METHOD(Telling, "a window's edges may lie within an iteration", "[iterations]") {
  window(250, 395);
  window(396);
  iterations(0, 3);
  // The last call of iteration 2 was at 390.
  CHECK(told() == Rows{"iteration 0 at 100: 0 -> 0", "iteration 1 at 200: 0 -> 0",
                       "iteration 2 at 300: 1 -> 1", "iteration 3 at 400: 1 -> 2"});
  CHECK(kept() == Rows{"3 until 300", "4 until 400"});
}

TEST_CASE_METHOD(Telling, "what ran before the first iteration is judged by the moment before it",
                 "[iterations]") {
  window(50, 99);
  window(120);
  boundaries.add(iteration(0, 100, 200));
  CHECK(told() == Rows{"iteration 0 at 100: 1 -> 0"});
}

TEST_CASE_METHOD(Telling, "boundaries ascend: what was told is not told again", "[iterations]") {
  window(100);
  iterations(0, 2);
  told();
  kept();
  // A better lock reports the past again.
  iterations(0, 1);
  boundaries.add(iteration(2, 299, 310));
  CHECK(told().empty());
  CHECK(kept().empty());
  boundaries.add(iteration(2, 310, 400));
  CHECK(told() == Rows{"iteration 2 at 310: 1 -> 1"});
}

TEST_CASE_METHOD(Telling, "units are told at the end of what they are of", "[iterations]") {
  const auto with_units = [](IterationSpan span, double said) {
    span.units = said;
    return span;
  };
  using Units = std::vector<double>;
  window(100);
  boundaries.add(with_units(iteration(0, 100, 200), 8));
  boundaries.add(iteration(1, 200, 300));
  boundaries.add(with_units(phase(2, 300, 400), 5));
  boundaries.add(with_units(iteration(2, 400, 500), 0));
  CHECK(units == Units{-1, 8, -1, 5});
  SECTION("the last one, at a window's end") {
    windows.end(1, 600);
    boundaries.finish(with_units(iteration(3, 500, 590), 7), 0, false);
    CHECK(units == Units{-1, 8, -1, 5, 0, 7});
  }
  SECTION("what is cut, and not what follows it") {
    boundaries.add(with_units(cut(3, 500, 600, true, 4), 7));
    boundaries.add(with_units(iteration(4, 700, 800), 6));
    boundaries.add(iteration(5, 800, 900));
    CHECK(units == Units{-1, 8, -1, 5, 0, 7, -1, 6});
  }
  SECTION("not where another lock ends it elsewhere") {
    boundaries.start_anew();
    boundaries.add(with_units(iteration(0, 100, 450), 8));
    boundaries.add(with_units(iteration(1, 450, 800), 9));
    boundaries.add(iteration(2, 800, 900));
    CHECK(units == Units{-1, 8, -1, 5, -1, 9});
  }
  SECTION("not where another lock begins in the midst of it") {
    boundaries.start_anew();
    boundaries.add(with_units(iteration(0, 450, 800), 9));
    boundaries.add(iteration(1, 800, 900));
    CHECK(units == Units{-1, 8, -1, 5, -1, 9});
  }
  SECTION("nor after a new search") {
    boundaries.restart(500);
    boundaries.add(with_units(iteration(0, 600, 700), 9));
    boundaries.add(iteration(1, 700, 800));
    CHECK(units == Units{-1, 8, -1, 5, -1, -1, 9});
  }
}

TEST_CASE_METHOD(Telling, "phases between iterations have labels, and take no number", "[iterations]") {
  window(150);
  boundaries.add(iteration(0, 100, 200));
  boundaries.add(phase(1, 200, 300));
  IterationSpan checkpoint = phase(1, 300, 400);
  checkpoint.checkpoint = true;
  boundaries.add(checkpoint);
  boundaries.finish(std::nullopt, 0, false);
  CHECK(told() == Rows{"iteration 0 at 100: 0 -> 0", "validation before 1 at 200: 1 -> 1",
                       "checkpoint before 1 at 300: 1 -> 1", "iteration 1 at 400: 1 -> 1"});
  CHECK(kept() == Rows{"1 until 200", "1 until 300"});
}

TEST_CASE_METHOD(Telling, "an iteration whose first launch was held begins with the window", "[iterations]") {
  boundaries.hold(150, 160);  // no iteration began there
  boundaries.hold(200, 250);
  boundaries.hold(400, 430);
  window(250, 400);
  window(430);
  iterations(0, 3);
  CHECK(told() == Rows{"iteration 0 at 100: 0 -> 0", "iteration 1 at 250: 0 -> 1",
                       "iteration 2 at 300: 1 -> 1", "iteration 3 at 430: 1 -> 2"});
  CHECK(kept() == Rows{"2 until 250", "3 until 300", "4 until 430"});
}

TEST_CASE_METHOD(Telling, "of held launches the latest 64 are known", "[iterations]") {
  for (std::uint64_t n = 0; n <= 64; ++n) boundaries.hold(100 * n + 100, 100 * n + 150);
  iterations(0, 64);
  const Rows rows = told();
  REQUIRE(rows.size() == 65);
  CHECK(rows[0] == "iteration 0 at 100: 0 -> 0");
  CHECK(rows[1] == "iteration 1 at 250: 0 -> 0");
  CHECK(rows[64] == "iteration 64 at 6550: 0 -> 0");
}

TEST_CASE_METHOD(Telling, "after a cut the next window shows what began unseen", "[iterations]") {
  window(100, 350);
  window(450);
  iterations(0, 1);
  const bool whole = GENERATE(true, false);
  boundaries.add(cut(2, 300, 350, whole, whole ? 7 : 2));
  boundaries.add(iteration(whole ? 7 : 2, 500, 600));
  // An iteration that has not ended when the window closes is in no window.
  CHECK(told() == Rows{"iteration 0 at 100: 0 -> 1", "iteration 1 at 200: 1 -> 1",
                       "iteration 2 at 300: 1 -> 1",
                       whole ? "iteration 7 at 350: 1 -> 0" : "iteration 2 at 350: 0 -> 0",
                       whole ? "iteration 7 at 500: 2 -> 2" : "iteration 2 at 500: 2 -> 2"});
  CHECK(kept() == Rows{"1 until 100", "2 until 200", "3 until 300", whole ? "7 until 350" : "2 until 350",
                       whole ? "8 until 500" : "3 until 500"});
}

TEST_CASE_METHOD(Telling, "a cut outside of windows is told where its last sign came", "[iterations]") {
  boundaries.add(cut(0, 100, 150, true, 1));
  CHECK(told() == Rows{"iteration 0 at 100: 0 -> 0", "iteration 1 at 141: 0 -> 0"});
  CHECK(kept() == Rows{"1 until 141"});
  // No further iteration is known to have begun.
  boundaries.add(cut(0, 0, 310, false, 1));
  CHECK(told() == Rows{"iteration 1 at 301: 0 -> 0"});
  // So there is nothing to report at the end.
  boundaries.finish(std::nullopt, 0, false);
  CHECK(told().empty());
}

TEST_CASE_METHOD(Telling, "a cut that has been told of already is passed over", "[iterations]") {
  iterations(0, 4);
  told();
  boundaries.add(cut(0, 0, 400, true, 9));
  CHECK(told().empty());
  CHECK(kept().empty());
}

TEST_CASE_METHOD(Telling, "a new search knows nothing of what was followed", "[iterations]") {
  boundaries.restart(50);
  CHECK(told().empty());  // nothing was being followed
  iterations(0, 1);
  told();
  const Nanoseconds time = GENERATE(150u, 270u);
  const Nanoseconds from = time < 200 ? 201 : 270;
  boundaries.restart(time);
  CHECK(told() == Rows{"unknown from " + std::to_string(from)});
  boundaries.finish(std::nullopt, 0, false);
  CHECK(told().empty());
  // The last sign seen is forgotten as well: the window is that of the moment before the boundary.
  window(240, 260);
  window(280, 299);
  boundaries.add(iteration(0, 300, 400));
  CHECK(told() == Rows{"iteration 0 at 300: 2 -> 0"});
}

TEST_CASE_METHOD(Telling, "a new search has no cut behind it", "[iterations]") {
  window(100, 150);
  window(200, 295);
  window(300);
  boundaries.add(cut(0, 100, 150, true, 1));
  boundaries.restart(160);
  CHECK(told() == Rows{"iteration 0 at 100: 0 -> 1", "iteration 1 at 150: 1 -> 0", "unknown from 160"});
  // After a cut it would be in window 3, which has not seen the iteration that ends here.
  boundaries.add(iteration(0, 300, 400));
  CHECK(told() == Rows{"iteration 0 at 300: 0 -> 3"});
}

TEST_CASE_METHOD(Telling, "at the end what ran is ended where it was last seen", "[iterations]") {
  boundaries.finish(std::nullopt, 0, false);
  CHECK(told().empty());
  window(100, 300);
  iterations(0, 1);
  told();
  boundaries.finish(std::nullopt, 0, false);
  CHECK(told() == Rows{"iteration 2 at 300: 1 -> 0"});
  boundaries.finish(std::nullopt, 0, false);
  CHECK(told().empty());
}

TEST_CASE_METHOD(Telling, "a window may end with an iteration, if its end was the program's own",
                 "[iterations]") {
  struct Case {
    bool inside;  // the iteration's end lies in the window
    std::uint32_t clock_window;
    bool clock_ended;
    Rows told;
  };
  const Rows with{"iteration 2 at 300: 1 -> 1", "iteration 3 at 395: 1 -> 0"};
  const Rows without{"iteration 2 at 300: 1 -> 1"};
  const Case cases[] = {
      {true, 0, false, with},   {true, 2, false, with},   {true, 1, false, without},
      {true, 0, true, without}, {true, 1, true, without}, {false, 0, false, without},
  };
  for (const Case& test : cases) {
    INFO(test.inside << " " << test.clock_window << " " << test.clock_ended);
    Telling run;
    run.window(200, 395);
    run.iterations(0, 1);
    run.told();
    run.boundaries.finish(iteration(2, 300, test.inside ? 390 : 396), test.clock_window, test.clock_ended);
    CHECK(run.told() == test.told);
    CHECK(run.kept().size() == (test.told == with ? 2 : 1));
    run.boundaries.finish(std::nullopt, 0, false);
    CHECK(run.told().empty());
  }
}

TEST_CASE("a window that ends anywhere cuts an iteration after its last call as well", "[iterations]") {
  for (const bool cut : {false, true}) {
    INFO(cut);
    Telling run;
    if (cut) run.boundaries.let_windows_cut();
    run.window(200, 395);
    run.window(400, 600);
    run.iterations(0, 6);
    const Rows told = run.told();
    const auto has = [&told](const std::string& one) {
      return std::find(told.begin(), told.end(), one) != told.end();
    };
    // The iteration before began in the same window, and the next one begins where the window ends.
    CHECK(has("iteration 2 at 300: 1 -> 1"));
    CHECK(has(cut ? "iteration 3 at 400: 0 -> 2" : "iteration 3 at 400: 1 -> 2"));
    CHECK(has("iteration 5 at 600: 2 -> 0"));
  }
}

TEST_CASE_METHOD(Telling, "an iteration has run without the profiler if the one before it has as well",
                 "[iterations]") {
  using Numbers = std::vector<std::uint64_t>;
  // CUPTI was attached before the window, and released after it.
  profiled.begin(300);
  window(400, 600);
  profiled.end(650);
  iterations(0, 8);
  // Nothing tells what came before the first one, and the seventh directly follows the profiler.
  CHECK(unprofiled == Numbers{1, 7});
  CHECK(boundaries.unprofiled() == 2);
  // Work that was not followed is no iteration, and neither is a validation.
  boundaries.restart(2000);
  iterations(30, 32);
  boundaries.add(phase(33, 3400, 3500));
  iterations(34, 36);
  CHECK(unprofiled == Numbers{1, 7, 31, 32, 34, 35});
}

TEST_CASE_METHOD(Telling, "a window without CUPTI lies in no step, wherever it opens and closes",
                 "[iterations]") {
  window(420, 440);
  window(500, 600);
  iterations(0, 8);
  boundaries.finish(std::nullopt, 0, false);
  // The first window is in the middle of iteration 3, and the second is iteration 4.
  CHECK(unprofiled == std::vector<std::uint64_t>{1, 2, 5, 6, 7, 8});
}

TEST_CASE_METHOD(Telling, "what was told by other signs is no step", "[iterations]") {
  iterations(0, 3);
  CHECK(unprofiled == std::vector<std::uint64_t>{1, 2});
  boundaries.start_anew();
  // From part of an iteration to the next boundary, and the iterations after it.
  for (std::uint64_t n = 5; n <= 8; ++n) boundaries.add(iteration(n, 100 * n, 100 * n + 100));
  CHECK(anew == std::vector<Nanoseconds>{500});
  CHECK(unprofiled == std::vector<std::uint64_t>{1, 2, 6, 7});
}

TEST_CASE("times with the profiler are known, the latest thousand of them", "[iterations]") {
  ProfiledTimes times;
  CHECK_FALSE(times.overlap(0, 1000));
  times.end(5);  // has not begun
  times.begin(10);
  times.begin(15);  // has begun
  CHECK(times.overlap(100, 200));
  CHECK_FALSE(times.overlap(0, 10));
  times.end(20);
  times.end(30);  // has ended
  CHECK(times.overlap(19, 25));
  CHECK_FALSE(times.overlap(20, 25));
  for (Nanoseconds i = 1; i <= ProfiledTimes::kMost; ++i) {
    times.begin(100 * i);
    times.end(100 * i + 10);
  }
  CHECK(times.overlap(0, 5));  // forgotten
  CHECK_FALSE(times.overlap(50'020, 50'100));
  CHECK(times.overlap(50'005, 50'100));
}
