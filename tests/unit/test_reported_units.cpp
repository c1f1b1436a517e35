// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/reported_units.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("Units are of the event that comes next", "[iterations]") {
  ReportedUnits reported;
  CHECK(reported.between(0, 100) == std::nullopt);
  reported.add(0, 1);
  reported.add(10, 2);
  reported.add(10, 0.5);
  reported.add(20, 0);
  CHECK(reported.between(0, 10) == 1);
  CHECK(reported.between(1, 10) == std::nullopt);
  CHECK(reported.between(10, 11) == 2.5);
  CHECK(reported.between(11, 20) == std::nullopt);
  CHECK(reported.between(11, 21) == 0);
  CHECK(reported.between(0, 1000) == 3.5);
  CHECK(reported.latest() == 20);
  reported.clear();
  CHECK(reported.between(0, 1000) == std::nullopt);
}

TEST_CASE("Where one is not known, there is no sum", "[iterations]") {
  ReportedUnits reported;
  for (std::uint64_t i = 0; i < 10; ++i) reported.add(10 * i, 5);
  reported.add(100, -1);
  reported.add(100, 5);
  reported.add(110, std::numeric_limits<double>::quiet_NaN());
  reported.add(120, std::numeric_limits<double>::infinity());
  reported.add(130, 5);
  reported.add_unknown(30, 42);
  CHECK(reported.between(20, 30) == 5);
  CHECK(reported.between(20, 31) == std::nullopt);
  CHECK(reported.between(35, 36) == std::nullopt);
  CHECK(reported.between(42, 60) == std::nullopt);
  CHECK(reported.between(43, 60) == 5);
  CHECK(reported.between(90, 101) == std::nullopt);
  CHECK(reported.between(101, 110) == std::nullopt);  // nothing was reported
  CHECK(reported.between(110, 131) == std::nullopt);
  CHECK(reported.between(121, 131) == 5);
  // Values derived from such a number are never infinite, and never shown as 0.
  for (const double units :
       {std::numeric_limits<double>::max(), 1.1e12, 9e-13, std::numeric_limits<double>::denorm_min()}) {
    CAPTURE(units);
    reported.clear();
    reported.add(140, units);
    CHECK(reported.between(140, 141) == std::nullopt);
  }
  for (const double units : {1e12, 1e-12, 0.0, -0.0}) {
    CAPTURE(units);
    reported.clear();
    reported.add(140, units);
    CHECK(reported.between(140, 141) == units);
  }
}

TEST_CASE("Units are those of a list of all of them, as far as they are known", "[iterations]") {
  std::mt19937_64 random(3);
  const auto up_to = [&random](std::uint64_t most) { return random() % (most + 1); };
  for (int round = 0; round < 50; ++round) {
    ReportedUnits reported;
    struct Report {
      std::uint64_t first, last;
      double units;  // -1: missing
    };
    std::vector<Report> all;
    std::uint64_t position = 0;
    // More gaps than are kept: units between two of the oldest are unknown as well, but no value is wrong.
    const std::uint64_t gaps = round % 2 == 0 ? 20 : ReportedUnits::kMaxMissing * 4;
    for (int i = 0; i < 2000; ++i) {
      position += up_to(3);
      const bool missing = up_to(2000) < gaps;
      const std::uint64_t first = missing ? position - std::min(position, up_to(5)) : position;
      all.push_back({first, position, missing ? -1 : static_cast<double>(up_to(9))});
      if (missing) {
        reported.add_unknown(first, position);
      } else {
        reported.add(position, all.back().units);
      }
    }
    for (int i = 0; i < 500; ++i) {
      const std::uint64_t first = up_to(position);
      const std::uint64_t end = first + up_to(20);
      std::optional<double> expected;
      bool known = true;
      for (const Report& report : all) {
        if (report.units < 0) known = known && (report.first >= end || report.last < first);
        if (report.units >= 0 && report.first >= first && report.first < end)
          expected = expected.value_or(0) + report.units;
      }
      if (!known) expected.reset();
      const std::optional<double> found = reported.between(first, end);
      if (gaps == 20 || found) CHECK(found == expected);
    }
  }
}

TEST_CASE("Units further back than are kept are not known", "[iterations]") {
  ReportedUnits reported;
  for (std::uint64_t i = 0; i < ReportedUnits::kMaxHeld + 10; ++i) reported.add(i, 1);
  CHECK(reported.between(0, 20) == std::nullopt);
  CHECK(reported.between(9, 20) == std::nullopt);
  CHECK(reported.between(10, 20) == 10);
}
