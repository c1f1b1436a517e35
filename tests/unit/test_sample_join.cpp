// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/sample_join.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Samples of 100 ns, and the result of joining them.
struct Joining {
  struct Joined {
    std::vector<JoinedSample::RowPart> rows;
    std::vector<double> shares;
    float value;
    std::uint64_t length;
  };

  void sample(Nanoseconds start, float value = 50, std::uint32_t window = 1, std::uint32_t after = 1) {
    join.add({start, start + 100, window, after}, std::vector<float>{value});
  }
  bool kernel(std::uint32_t row, Nanoseconds start, Nanoseconds end, std::uint32_t window = 1) {
    return join.add({start, end, row, window});
  }
  SampleJoin::Take taker() {
    return [this](const JoinedSample& sample) {
      Joined& one = joined.emplace_back();
      one.rows.assign(sample.rows.begin(), sample.rows.end());
      for (const SampleMixture::Part& part : sample.states) one.shares.push_back(part.share);
      one.value = sample.values[0];
      one.length = sample.length;
    };
  }
  void all() { join.join(join.samples(), mixture, taker()); }

  SampleJoin join{1};
  SampleMixture mixture{1};
  std::vector<Joined> joined;
};

}  // namespace

TEST_CASE("What ran in a sample", "[metrics]") {
  Joining j;
  j.sample(1000);
  SECTION("nothing") {
    j.all();
    REQUIRE(j.joined.size() == 1);
    CHECK(j.joined[0].rows.empty());
    CHECK(j.joined[0].shares == std::vector<double>{1});
  }
  SECTION("a part of one kernel, and nothing") {
    j.kernel(7, 1050, 1500);
    j.all();
    REQUIRE(j.joined.size() == 1);
    REQUIRE(j.joined[0].rows.size() == 1);
    CHECK(j.joined[0].rows[0].row == 7);
    CHECK(j.joined[0].rows[0].time == 50);
    CHECK(j.joined[0].rows[0].shared == 0);
    CHECK(j.joined[0].shares == std::vector<double>{0.5, 0.5});
    CHECK(j.join.kernels() == 1);  // it continues
  }
  SECTION("a short kernel has two parts, a long one four") {
    j.kernel(7, 1010, 1050);
    j.kernel(8, 1050, 1114);
    j.all();
    REQUIRE(j.joined.size() == 1);
    CHECK(j.joined[0].shares == std::vector<double>{0.1, 0.2, 0.2, 0.16, 0.16, 0.16, 0.02});
    CHECK(j.joined[0].rows[0].time == 40);
    CHECK(j.joined[0].rows[1].time == 50);
  }
  SECTION("halves and quarters of one row are different states") {
    j.kernel(7, 1000, 1040);
    j.kernel(7, 1040, 1100);
    j.all();
    CHECK(j.joined[0].shares == std::vector<double>{0.2, 0.2, 0.15, 0.15, 0.15, 0.15});
    CHECK(j.joined[0].rows.size() == 1);
  }
  SECTION("two at once") {
    j.kernel(7, 1000, 1060);
    j.kernel(8, 1040, 1100);
    j.all();
    REQUIRE(j.joined[0].rows.size() == 2);
    CHECK(j.joined[0].rows[0].time == 60);
    CHECK(j.joined[0].rows[0].shared == 20);
    CHECK(j.joined[0].rows[1].time == 60);
    CHECK(j.joined[0].rows[1].shared == 20);
  }
  SECTION("two of one row at once are not shared") {
    j.kernel(7, 1000, 1060);
    j.kernel(7, 1040, 1100);
    j.all();
    REQUIRE(j.joined[0].rows.size() == 1);
    CHECK(j.joined[0].rows[0].time == 100);
    CHECK(j.joined[0].rows[0].shared == 0);
  }
  CHECK(j.joined[0].length == 100);
  CHECK(j.joined[0].value == 50);
  CHECK(j.join.samples() == 0);
  CHECK(j.join.joined_until() == 1100);
}

TEST_CASE("Samples in which not all is known are joined to nothing", "[metrics]") {
  Joining j;
  SECTION("a kernel of no window ran") {
    j.sample(1000);
    j.sample(1100);
    j.kernel(SampleJoin::kOthers, 1050, 1070, 0);
    j.kernel(3, 1000, 1200);
    j.all();
    REQUIRE(j.joined.size() == 1);  // a kernel that ran before continues in the next
    CHECK(j.joined[0].rows[0].time == 100);
  }
  SECTION("after the window's end, once its last kernel has ended") {
    j.kernel(3, 1000, 1150);
    j.sample(1000, 50, 0, 1);
    j.sample(1100, 50, 0, 1);
    j.all();
    CHECK(j.joined.size() == 1);
  }
  SECTION("after the end of a window whose kernels are not known") {
    j.kernel(3, 1000, 1150, 2);
    j.sample(1000, 50, 0, 1);
    j.all();
    CHECK(j.joined.empty());
  }
  CHECK(j.join.samples() == 0);
}

TEST_CASE("What comes for a time that is joined", "[metrics]") {
  Joining j;
  j.sample(1000);
  j.all();
  CHECK_FALSE(j.kernel(1, 1000, 1100));
  CHECK_FALSE(j.kernel(1, 1200, 1200));  // of no duration
  CHECK(j.kernel(1, 1050, 1150));
  j.sample(1100);
  j.all();
  REQUIRE(j.joined.size() == 2);
  CHECK(j.joined[1].rows[0].time == 50);
  // Overlapping samples share no time.
  j.sample(1150);
  j.all();
  REQUIRE(j.joined.size() == 3);
  CHECK(j.joined[2].length == 100);
}

TEST_CASE("Samples are in order of their starts, whenever they come", "[metrics]") {
  Joining j;
  j.sample(1100, 2, 2);
  j.sample(1000, 1, 1);
  j.sample(1200, 3, 2);
  CHECK(j.join.samples_until(1099) == 0);
  CHECK(j.join.samples_until(1200) == 2);
  CHECK(j.join.samples_through(1) == 1);
  CHECK(j.join.samples_through(2) == 3);
  j.all();
  REQUIRE(j.joined.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(j.joined[i].value == static_cast<float>(i + 1));
}

TEST_CASE("Neighbours become one sample", "[metrics]") {
  Joining j;
  SECTION("that follow each other") {
    j.sample(1000, 10);
    j.sample(1100, 20);
    j.sample(1200, kNan);
    j.sample(1300, 30);
    j.sample(1400, 40);
    j.join.coarsen();
    j.all();
    REQUIRE(j.joined.size() == 3);
    CHECK(j.joined[0].value == 15);
    CHECK(j.joined[0].length == 200);
    CHECK(j.joined[1].value == 30);
    CHECK(j.joined[2].value == 40);
    CHECK(j.joined[2].length == 100);
  }
  SECTION("but not with time between, or of two windows") {
    j.sample(1000, 10);
    j.sample(1102, 20);
    j.sample(1202, 30, 2);
    j.join.coarsen();
    CHECK(j.join.samples() == 3);
  }
}

TEST_CASE("What is too much goes, the older half first", "[metrics]") {
  Joining j;
  for (Nanoseconds i = 0; i < 10; ++i) j.sample(1000 + i * 100);
  SECTION("of the samples") {
    CHECK(j.join.leave_out_older_half() == 5);
    CHECK(j.join.samples() == 5);
    CHECK(j.join.joined_until() == 1500);
    CHECK(j.joined.empty());
  }
  SECTION("of the kernels, joined") {
    for (Nanoseconds i = 0; i < 10; ++i) j.kernel(1, 1000 + i * 100, 1100 + i * 100);
    j.join.join_older_half(j.mixture, j.taker());
    CHECK(j.joined.size() == 6);
    CHECK(j.join.joined_until() == 1600);
    CHECK(j.join.kernels() == 4);
  }
  SECTION("of the kernels, where there are no samples for them") {
    for (Nanoseconds i = 0; i < 10; ++i) j.kernel(1, 100 + i * 10, 110 + i * 10);
    j.join.join_older_half(j.mixture, j.taker());
    CHECK(j.joined.empty());
    CHECK(j.join.joined_until() == 160);
    CHECK(j.join.kernels() == 4);
  }
}

TEST_CASE("Kernels for which no sample comes are forgotten", "[metrics]") {
  Joining j;
  j.sample(1000);
  j.kernel(1, 1050, 1300);
  j.kernel(2, 1100, 1200);
  j.kernel(3, 1100, 1200, 2);
  j.join.forget_kernels(1);
  CHECK(j.join.kernels() == 2);
}
