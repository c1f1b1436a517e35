// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/said_units.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("Units are of the event that comes next", "[iterations]") {
  SaidUnits said;
  CHECK(said.between(0, 100) == std::nullopt);
  said.say(0, 1);
  said.say(10, 2);
  said.say(10, 0.5);
  said.say(20, 0);
  CHECK(said.between(0, 10) == 1);
  CHECK(said.between(1, 10) == std::nullopt);
  CHECK(said.between(10, 11) == 2.5);
  CHECK(said.between(11, 20) == std::nullopt);
  CHECK(said.between(11, 21) == 0);
  CHECK(said.between(0, 1000) == 3.5);
  CHECK(said.latest() == 20);
  said.clear();
  CHECK(said.between(0, 1000) == std::nullopt);
}

TEST_CASE("Where one is not known, there is no sum", "[iterations]") {
  SaidUnits said;
  for (std::uint64_t i = 0; i < 10; ++i) said.say(10 * i, 5);
  said.say(100, -1);
  said.say(100, 5);
  said.say(110, std::numeric_limits<double>::quiet_NaN());
  said.say(120, std::numeric_limits<double>::infinity());
  said.say(130, 5);
  said.miss(30, 42);
  CHECK(said.between(20, 30) == 5);
  CHECK(said.between(20, 31) == std::nullopt);
  CHECK(said.between(35, 36) == std::nullopt);
  CHECK(said.between(42, 60) == std::nullopt);
  CHECK(said.between(43, 60) == 5);
  CHECK(said.between(90, 101) == std::nullopt);
  CHECK(said.between(101, 110) == std::nullopt);  // nothing was reported
  CHECK(said.between(110, 131) == std::nullopt);
  CHECK(said.between(121, 131) == 5);
  // Values derived from such a number are never infinite, and never shown as 0.
  for (const double units :
       {std::numeric_limits<double>::max(), 1.1e12, 9e-13, std::numeric_limits<double>::denorm_min()}) {
    CAPTURE(units);
    said.clear();
    said.say(140, units);
    CHECK(said.between(140, 141) == std::nullopt);
  }
  for (const double units : {1e12, 1e-12, 0.0, -0.0}) {
    CAPTURE(units);
    said.clear();
    said.say(140, units);
    CHECK(said.between(140, 141) == units);
  }
}

TEST_CASE("Units are those of a list of all of them, as far as they are known", "[iterations]") {
  std::mt19937_64 random(3);
  const auto up_to = [&random](std::uint64_t most) { return random() % (most + 1); };
  for (int round = 0; round < 50; ++round) {
    SaidUnits said;
    struct Told {
      std::uint64_t first, last;
      double units;  // -1: missing
    };
    std::vector<Told> all;
    std::uint64_t position = 0;
    // More gaps than are kept: units between two of the oldest are unknown as well, but no value is wrong.
    const std::uint64_t gaps = round % 2 == 0 ? 20 : SaidUnits::kMaxMissing * 4;
    for (int i = 0; i < 2000; ++i) {
      position += up_to(3);
      const bool missing = up_to(2000) < gaps;
      const std::uint64_t first = missing ? position - std::min(position, up_to(5)) : position;
      all.push_back({first, position, missing ? -1 : static_cast<double>(up_to(9))});
      if (missing) {
        said.miss(first, position);
      } else {
        said.say(position, all.back().units);
      }
    }
    for (int i = 0; i < 500; ++i) {
      const std::uint64_t first = up_to(position);
      const std::uint64_t end = first + up_to(20);
      std::optional<double> expected;
      bool known = true;
      for (const Told& told : all) {
        if (told.units < 0) known = known && (told.first >= end || told.last < first);
        if (told.units >= 0 && told.first >= first && told.first < end)
          expected = expected.value_or(0) + told.units;
      }
      if (!known) expected.reset();
      const std::optional<double> found = said.between(first, end);
      if (gaps == 20 || found) CHECK(found == expected);
    }
  }
}

TEST_CASE("Units further back than are kept are not known", "[iterations]") {
  SaidUnits said;
  for (std::uint64_t i = 0; i < SaidUnits::kMaxHeld + 10; ++i) said.say(i, 1);
  CHECK(said.between(0, 20) == std::nullopt);
  CHECK(said.between(9, 20) == std::nullopt);
  CHECK(said.between(10, 20) == 10);
}
