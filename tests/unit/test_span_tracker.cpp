// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/span_tracker.h"

#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/catch.h"
#include "tests/unit/sign_letters.h"

using namespace inject;

namespace {

constexpr IterationMarks kMarks{letter_hash('o'), letter_hash('a'), letter_hash('a')};

/// Iterations are "abco"; four of them have run.
struct Followed {
  Followed() {
    add_letters(history, "abcoabcoabcoabco");
    tracker.follow(history, kMarks, 4, 0);
  }
  void run(std::string_view letters) {
    for (const char letter : letters) {
      add_letters(history, std::string_view(&letter, 1));
      tracker.track(history, history.total() - 1);
    }
  }
  /// As in "0 2V 3": numbers; V is a phase, C a checkpoint, X a cut.
  std::string spans() {
    std::string text;
    for (const IterationSpan& span : tracker.take_spans()) {
      if (!text.empty()) text += ' ';
      text += std::to_string(span.number);
      if (span.cut) text += span.whole ? "XW" : "X";
      if (span.phase) text += span.checkpoint ? 'C' : 'V';
    }
    return text;
  }
  SignHistory history;
  SpanTracker tracker;
};

}  // namespace

TEST_CASE("iterations are followed through the history, the first one from its end", "[iterations]") {
  Followed followed;
  const auto spans = followed.tracker.take_spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].first_event == 0);
  CHECK(spans[0].begin == kLetterTime);
  CHECK(spans[0].end == 5 * kLetterTime);
  CHECK(spans[0].last_event_time == 4 * kLetterTime);
  CHECK(spans[2].number == 2);
  CHECK(followed.tracker.number() == 3);
  CHECK(followed.tracker.begin_event() == 12);
  CHECK(followed.tracker.last_anchor() == 15);
  CHECK(followed.tracker.typical_duration() == 4 * kLetterTime);
  CHECK(followed.tracker.trailing_span(followed.history));
}

TEST_CASE("a few iterations that take long do not tell how long one takes", "[iterations]") {
  SignHistory history;
  SpanTracker tracker;
  add_letters(history, "abco");
  tracker.follow(history, kMarks, 4, 0);
  CHECK(tracker.typical_duration() == 0);
  Nanoseconds time = 4 * kLetterTime;
  const auto iterations = [&](int count, Nanoseconds apart) {
    for (; count != 0; --count) {
      for (const char letter : std::string_view("abco")) {
        history.add(letter_sign(letter, time += apart));
        tracker.track(history, history.total() - 1);
      }
    }
  };
  iterations(1, 3'000'000'000);  // kernels are compiled
  iterations(1, kLetterTime);
  CHECK(tracker.typical_duration() > kSecond);  // there is no other iteration
  iterations(2, kLetterTime);
  CHECK(tracker.typical_duration() == 4 * kLetterTime);
  iterations(20, kLetterTime);
  iterations(6, kSecond);
  CHECK(tracker.typical_duration() == 4 * kLetterTime);
  iterations(10, kSecond);
  CHECK(tracker.typical_duration() == 4 * kSecond);
}

TEST_CASE("what is in progress has no certain beginning before its anchor", "[iterations]") {
  Followed followed;
  followed.run("abc");
  CHECK_FALSE(followed.tracker.unfinished_span(followed.history));
  followed.run("o");
  const auto span = followed.tracker.unfinished_span(followed.history);
  REQUIRE(span);
  CHECK(span->number == 4);
  CHECK(span->first_event == 16);
}

TEST_CASE("what begins more often than iterations do was a validation", "[iterations]") {
  Followed followed;
  followed.spans();
  followed.run("abababcoabco");
  const auto spans = followed.tracker.take_spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[1].phase);
  CHECK_FALSE(spans[1].checkpoint);
  CHECK(spans[1].number == 4);
  CHECK(spans[1].first_event == 16);
  CHECK(spans[2].first_event == 20);
  CHECK(spans[2].number == 4);
}

TEST_CASE("many copies to the host without work between them are a checkpoint", "[iterations]") {
  Followed followed;
  followed.spans();
  const auto with_copies = [](unsigned count) { return "abco" + std::string(count, 'h'); };
  followed.run(with_copies(15) + with_copies(5) + "abco");
  CHECK(followed.spans() == "3 4 5");
  followed.run(with_copies(5) + with_copies(19) + "abco");
  CHECK(followed.spans() == "6 7 8");
  followed.run(with_copies(5));
  followed.spans();
  followed.run(with_copies(20) + "abco");
  const auto spans = followed.tracker.take_spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[1].number == 11);
  CHECK_FALSE(spans[1].phase);
  CHECK(spans[2].checkpoint);
  CHECK(spans[2].first_event ==
        spans[1].first_event + 4 + 5);  // copies at the end of iterations belong to them
}

TEST_CASE("a stretch without signs cuts the iteration, unless it lay between two", "[iterations]") {
  Followed followed;
  followed.spans();
  followed.run("ab");
  followed.history.add_gap(false);
  followed.run("abcoabco");
  CHECK(followed.spans() == "3 4X 5");
  followed.history.add_gap(true);
  followed.run("abco");
  CHECK(followed.spans() == "6");
  followed.history.add_gap(true);
  followed.run("bcoab");
  CHECK(followed.spans() == "7XW");
}

TEST_CASE("numbers grow with the iterations that had run, and past those that were shown", "[iterations]") {
  Followed followed;
  followed.tracker.renumber(10);
  CHECK(followed.tracker.number() == 10);
  CHECK(followed.spans() == "7 8 9");
  followed.run("a");
  followed.tracker.keep_numbers(40, 0);
  followed.tracker.renumber(11);
  CHECK(followed.spans() == "40");
  CHECK(followed.tracker.number() == 41);
}
