// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/key_index.h"

#include <map>
#include <random>

#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("Keys are numbered in the order in which they come", "[stats]") {
  KeyIndex<2> index(10);
  CHECK(index.find({1, 2}) == KeyIndex<2>::kNone);
  CHECK(index.find_or_add({1, 2}) == 0);
  CHECK(index.find_or_add({2, 1}) == 1);
  CHECK(index.find_or_add({1, 2}) == 0);
  CHECK(index.find({2, 1}) == 1);
  CHECK(index.key(1) == KeyIndex<2>::Key{2, 1});
  CHECK(index.size() == 2);
  CHECK(index.overflows() == 0);
}

TEST_CASE("A full index answers kOther for new keys alone", "[stats]") {
  KeyIndex<1> index(3);
  for (std::uint32_t i = 0; i < 3; ++i) CHECK(index.find_or_add({i}) == i);
  CHECK(index.find_or_add({3}) == KeyIndex<1>::kOther);
  CHECK(index.find_or_add({3}) == KeyIndex<1>::kOther);
  CHECK(index.find_or_add({1}) == 1);
  CHECK(index.find({3}) == KeyIndex<1>::kNone);
  CHECK(index.size() == 3);
  CHECK(index.overflows() == 2);
}

TEST_CASE("An index agrees with a map", "[stats]") {
  KeyIndex<3> index(100'000);
  std::map<KeyIndex<3>::Key, std::uint32_t> expected;
  std::mt19937 random(5);
  const auto word = [&random] { return static_cast<std::uint32_t>(random() % 40); };
  for (int i = 0; i < 200'000; ++i) {
    const KeyIndex<3>::Key key{word(), word(), word()};
    const auto [entry, fresh] = expected.try_emplace(key, static_cast<std::uint32_t>(expected.size()));
    REQUIRE(index.find_or_add(key) == entry->second);
  }
  CHECK(index.size() == expected.size());
  for (const auto& [key, number] : expected) REQUIRE(index.find(key) == number);
}
