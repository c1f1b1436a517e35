// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/repetition.h"

#include <string>

#include "libinject/iterations/analysis_schedule.h"
#include "libinject/iterations/boundary_marks.h"
#include "tests/unit/catch.h"
#include "tests/unit/sign_letters.h"

using namespace inject;

namespace {

std::string times(std::string_view letters, unsigned count) {
  std::string all;
  while (count-- != 0) all += letters;
  return all;
}

}  // namespace

TEST_CASE("of layers and steps the one with the optimizer is the iteration", "[iterations]") {
  SignHistory history;
  history.name(letter_hash('o'), "adam");
  add_letters(history, times("dabcabcabclo", 6));
  RepetitionSearch search;
  const auto found = search.find(history, history.total(), false);
  REQUIRE(found);
  CHECK(found->optimizer);
  CHECK(found->by_shape);
  CHECK(found->spacing == 12);
  CHECK(found->intervals == 5);
  CHECK(found->core.size() == 6);
  CHECK(found->once.size() == 3);  // d, l, o
  CHECK(search.visits() > 0);
  CHECK(count_before(history, *found, history.total()) == 6);
  CHECK(count_before(history, *found, 24) == 2);
}

TEST_CASE("without an optimizer's name more of the same work makes no iteration, other work does",
          "[iterations]") {
  RepetitionSearch search;
  SignHistory with_others;
  add_letters(with_others, times("abcabcabcxyzw", 9));
  const auto steps = search.find(with_others, with_others.total(), false);
  REQUIRE(steps);
  CHECK_FALSE(steps->optimizer);
  CHECK(steps->spacing == 13);
  SignHistory with_copies;
  add_letters(with_copies, times(times("abcefgijkl", 4) + "h", 9));
  const auto layers = search.find(with_copies, with_copies.total(), false);
  REQUIRE(layers);
  CHECK(layers->spacing < 11);
}

TEST_CASE("what does not repeat is none", "[iterations]") {
  RepetitionSearch search;
  SignHistory twice;
  twice.name(letter_hash('o'), "adam");
  add_letters(twice, times("abco", 3));  // two intervals
  CHECK_FALSE(search.find(twice, twice.total(), false));
  SignHistory tuning;
  tuning.name(letter_hash('t'), "redzone_checker");
  tuning.name(letter_hash('o'), "adam");
  add_letters(tuning, times("abtco", 10));
  CHECK_FALSE(search.find(tuning, tuning.total(), false));
}

TEST_CASE("an iteration begins with what was seen first, and with the copies of its data", "[iterations]") {
  RepetitionSearch search;
  SignHistory history;
  history.name(letter_hash('o'), "adam");
  history.name(letter_hash('a'), "forward");
  add_letters(history, times("dabclo", 5) + "hs" + times("dabclo", 5));
  const auto found = search.find(history, history.total(), false);
  REQUIRE(found);
  const auto lock = find_marks(history, *found);
  REQUIRE(lock);
  CHECK(lock->marks.begin == letter_hash('d'));
  CHECK(lock->marks.other_begin == letter_hash('a'));
  CHECK(lock->anchor_name == "adam");
  CHECK(lock->begin_name == "a copy to the device");
  CHECK_FALSE(lock->rough);
  CHECK(lock->optimizer);
}

TEST_CASE("an analysis is due once enough of the events are new", "[iterations]") {
  constexpr std::uint64_t kShare = AnalysisSchedule::kDueShare;
  AnalysisSchedule schedule;
  CHECK_FALSE(schedule.is_due(0, 3, kShare));
  CHECK(schedule.is_due(0, 4, kShare));
  CHECK_FALSE(schedule.is_due(0, 7, kShare));
  CHECK(schedule.is_due(0, 8, kShare));
  CHECK_FALSE(schedule.is_due(1, 8, kShare));
  CHECK(schedule.is_due(1, 16, kShare));
  CHECK_FALSE(schedule.is_due(0, 39, AnalysisSchedule::kLockedDueShare));
  CHECK(schedule.is_due(0, 40, AnalysisSchedule::kLockedDueShare));
}

TEST_CASE("analyses wait once they have looked at what is allowed", "[iterations]") {
  AnalysisSchedule schedule;
  schedule.allow(100);
  REQUIRE(schedule.is_due(0, 100, 16));
  schedule.charge(0, 100);
  CHECK_FALSE(schedule.is_due(0, 200, 16));
  schedule.allow(1);
  CHECK(schedule.is_due(0, 200, 16));
}

TEST_CASE("when analyses have used up their credit, each depth has seven looks for every event",
          "[iterations]") {
  AnalysisSchedule schedule;
  REQUIRE(schedule.is_due(0, 64, 16));
  CHECK_FALSE(schedule.is_scarce());
  schedule.charge(0, 1'000'000'000);
  REQUIRE(schedule.is_due(0, 128, 16));
  CHECK(schedule.is_scarce());
  schedule.charge(0, 70);
  std::uint64_t total = 192;
  unsigned waited = 1;
  for (; !schedule.is_due(0, ++total, 16); ++waited) {
  }
  CHECK(waited == 10);
  CHECK(schedule.is_due(1, total, 16));  // the others' shares are separate
}
