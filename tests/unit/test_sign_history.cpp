// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/sign_history.h"

#include "tests/unit/catch.h"
#include "tests/unit/sign_letters.h"

using namespace inject;

TEST_CASE("a history knows its latest events, each by function and by shape", "[iterations]") {
  SignHistory history;
  add_letters(history, "aba");
  CHECK(history.total() == 3);
  CHECK(history.oldest() == 0);
  CHECK(history.event(0).function == history.event(2).function);
  CHECK(history.event(0).shape != history.event(0).function);
  CHECK(history.matches(1, letter_hash('b')));
  CHECK(history.matches(1, letter_hash('b') + 1));
  CHECK_FALSE(history.matches(1, letter_hash('a')));
  const auto& token = history.token(history.token_at(2, false));
  CHECK(token.count == 2);
  CHECK(token.first == 0);
  CHECK(token.last == 2);
  CHECK(history.first_time() == kLetterTime);
}

TEST_CASE("a history forgets what no longer fits, and only then", "[iterations]") {
  SignHistory history;
  constexpr std::uint64_t kKept = 1 << 20;
  LaunchSign sign = letter_sign('a', 0);
  for (std::uint64_t i = 0; i < kKept + 10; ++i) {
    if (i == kKept) CHECK(history.oldest() == 0);
    sign.time = i;
    history.add(sign);
  }
  CHECK(history.oldest() == 10);
  CHECK(history.event(10).time == 10);
  CHECK(history.event(kKept + 9).time == kKept + 9);
}

TEST_CASE("a kernel's name counts for what came before it", "[iterations]") {
  SignHistory history;
  add_letters(history, "aoa");
  CHECK_FALSE(history.has_optimizer());
  history.name(letter_hash('o'), "sgd_update");
  CHECK(history.has_optimizer());
  CHECK(history.optimizer_end() == 2);
  CHECK(history.token(history.event(1).shape).optimizer);
  CHECK_FALSE(history.token(history.event(0).shape).optimizer);
  add_letters(history, "bbo");
  CHECK(history.optimizer_end() == 6);
  CHECK(history.optimizer_gap() == 4);
  CHECK(history.name_of(history.event(1).shape) == "sgd_update");
  CHECK(history.name_of(history.event(0).shape) == "a kernel");
  CHECK_FALSE(history.has_pytorch());
  history.name(letter_hash('z'), "_ZN2at6native6fill");
  CHECK(history.has_pytorch());
}

TEST_CASE("gaps with nothing between them are one", "[iterations]") {
  SignHistory history;
  history.add_gap(true);  // before the first event, so there is none
  add_letters(history, "ab");
  history.add_gap(true);
  history.add_gap(false);
  add_letters(history, "c");
  history.add_gap(true);
  add_letters(history, "d");
  CHECK(history.gap_before(0) == nullptr);
  CHECK(history.gap_before(1) == nullptr);
  REQUIRE(history.gap_before(2) != nullptr);
  CHECK_FALSE(history.gap_before(2)->bracketed);
  REQUIRE(history.gap_before(3) != nullptr);
  CHECK(history.gap_before(3)->bracketed);
}
