// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/decode_schedule.h"

#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr std::size_t kBuffer = std::size_t{32} << 20;
constexpr Nanoseconds kAny = ~Nanoseconds{0};

}  // namespace

TEST_CASE("Room and pauses as measured for the automatic set", "[metrics]") {
  // 46 kB in the image, hence 11.5 kB in the buffer: docs/metrics_collection.md.
  constexpr std::size_t kEach = 46'000;
  const DecodePlan usual = plan_decoding(kEach, kBuffer, 500 * kMicrosecond, kAny);
  CHECK(usual.pause / kMillisecond == 54);
  CHECK(usual.image_samples == (std::size_t{16} << 20) / kEach);
  CHECK(plan_decoding(kEach, kBuffer, kMillisecond, kAny).pause / kMillisecond == 56);
  CHECK(plan_decoding(kEach, kBuffer, 100 * kMicrosecond, kAny).pause / kMillisecond == 12);
  // A buffer that was full before.
  CHECK(plan_decoding(kEach, kBuffer, 500 * kMicrosecond, 20 * kMillisecond).pause == 20 * kMillisecond);
  CHECK(plan_decoding(kEach, kBuffer, 500 * kMicrosecond, 1).pause == kMinPause);
}

TEST_CASE("Room and pauses of few and of very many counters", "[metrics]") {
  const DecodePlan none = plan_decoding(0, kBuffer, 500 * kMicrosecond, kAny);
  CHECK(none.pause == 100 * kMillisecond);
  CHECK(none.image_samples == 8 * 200);
  const DecodePlan huge = plan_decoding(kBuffer, kBuffer, 500 * kMicrosecond, kAny);
  CHECK(huge.image_samples == kMinImageSamples);
  CHECK(huge.pause == kMinPause);
}

TEST_CASE("The first look is after 100 intervals, 2 to 20 ms", "[metrics]") {
  CHECK(poll_interval(10 * kMicrosecond) == 2 * kMillisecond);
  CHECK(poll_interval(100 * kMicrosecond) == 10 * kMillisecond);
  CHECK(poll_interval(kMillisecond) == 20 * kMillisecond);
}

TEST_CASE("Pauses between decodes double up to the limit", "[metrics]") {
  DecodeSchedule schedule;
  CHECK(schedule.due(0));
  schedule.limit(50 * kMillisecond);
  schedule.start(kSecond, 500 * kMicrosecond);
  CHECK_FALSE(schedule.due(kSecond + 20 * kMillisecond - 1));
  CHECK(schedule.due(kSecond + 20 * kMillisecond));
  CHECK(schedule.until_due(kSecond) == 20 * kMillisecond);
  CHECK(schedule.until_due(2 * kSecond) == kMinPause);
  schedule.decoded(2 * kSecond);
  CHECK(schedule.until_due(2 * kSecond) == 40 * kMillisecond);
  schedule.decoded(3 * kSecond);
  CHECK(schedule.until_due(3 * kSecond) == 50 * kMillisecond);
}

TEST_CASE("A buffer that was full is decoded twice as often, every 10 ms at most", "[metrics]") {
  DecodeSchedule schedule;
  schedule.limit(50 * kMillisecond);
  schedule.start(0, kMillisecond);
  schedule.decoded(0);
  schedule.decoded(0);
  REQUIRE(schedule.shorten());
  CHECK(schedule.longest_pause() == 25 * kMillisecond);
  schedule.decoded(0);
  REQUIRE(schedule.shorten());
  CHECK(schedule.longest_pause() == 12 * kMillisecond + 500 * kMicrosecond);
  schedule.decoded(0);
  REQUIRE(schedule.shorten());
  CHECK(schedule.longest_pause() == 10 * kMillisecond);
  schedule.decoded(0);
  CHECK_FALSE(schedule.shorten());
  CHECK(schedule.longest_pause() == 10 * kMillisecond);
}

TEST_CASE("An image has to have room for two pauses", "[metrics]") {
  DecodeSchedule schedule;
  schedule.limit(50 * kMillisecond);
  CHECK(schedule.is_tight(2 * 101 - 1, 500 * kMicrosecond));
  CHECK_FALSE(schedule.is_tight(2 * 101, 500 * kMicrosecond));
}

TEST_CASE("Eight overflows soon after each other are too many", "[metrics]") {
  DecodeSchedule schedule;
  Nanoseconds time = kSecond;
  for (int i = 0; i < 7; ++i) schedule.note_overflow(time += kSecond);
  CHECK_FALSE(schedule.too_fast());
  SECTION("in a row") {
    schedule.note_overflow(time + 10 * kSecond);
    CHECK(schedule.too_fast());
  }
  SECTION("but not where there was a pause") {
    schedule.note_overflow(time + 10 * kSecond + 1);
    CHECK_FALSE(schedule.too_fast());
  }
  SECTION("nor where one was not the device's own") {
    schedule.forgive_overflow();
    schedule.note_overflow(time);
    CHECK_FALSE(schedule.too_fast());
  }
}

TEST_CASE("A decode that failed is tried again, not twice in ten seconds", "[metrics]") {
  DecodeSchedule schedule;
  CHECK(schedule.may_retry(kSecond));
  CHECK(schedule.may_retry(11 * kSecond));
  CHECK_FALSE(schedule.may_retry(21 * kSecond - 1));
  CHECK_FALSE(schedule.may_retry(22 * kSecond));
}
