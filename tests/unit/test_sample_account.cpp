// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/sample_account.h"

#include <string>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr Nanoseconds kInterval = 100'000;
constexpr Nanoseconds kUptime = 5'000 * kSecond;

/// CUPTI's image, as far as an account reads it.
class FakeImage final : public ImageReader {
 public:
  struct Times {
    Nanoseconds start = 0;
    Nanoseconds end = 0;
    bool told = true;
  };

  bool times(std::size_t sample, Nanoseconds& start, Nanoseconds& end) override {
    const Times times = sample < samples.size() ? samples[sample] : Times{0, 0, false};
    start = times.start;
    end = times.end;
    failed_ = !times.told;
    return times.told;
  }
  std::string error() override { return failed_ ? "CUPTI_ERROR_UNKNOWN" : ""; }
  Nanoseconds now() override { return time; }
  Nanoseconds wall_clock_ahead() override { return ahead; }

  /// Adds `count` more samples, one directly after the other.
  void sample(std::size_t count = 1) {
    for (; count != 0; --count, next += kInterval) samples.push_back({next, next + kInterval});
  }

  std::vector<Times> samples;
  Nanoseconds next = kUptime;  // begin of the next sample
  Nanoseconds time = kUptime;
  Nanoseconds ahead = kSecond * 1'000'000'000;

 private:
  bool failed_ = false;
};

struct Sampling {
  Sampling() {
    account.set_up();
    account.start(kUptime);
  }
  /// Takes all samples in the image, and uses those with a place in time.
  std::size_t take() { return take(image.samples.size()); }
  std::size_t take(std::size_t completed) {
    const std::uint64_t count = account.take(image, completed);
    for (const SampleAccount::Placed& one : account.placed()) account.use(one, {});
    return count;
  }
  void empty() {
    account.empty_image(image);
    image.samples.clear();
  }
  std::uint64_t lost(MetricLoss loss) const { return totals.lost[static_cast<std::size_t>(loss)]; }
  std::uint64_t lost() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : totals.lost) sum += count;
    return sum;
  }

  SampleTotals totals;
  SampleAccount account{3, kInterval, totals};
  FakeImage image;
};

}  // namespace

TEST_CASE("Whose clock a sample's time is on", "[metrics]") {
  constexpr Nanoseconds kSince1970 = 1'800'000'000'000'000'000;
  CHECK(clock_ahead_of_ours(kUptime - 3'000'000, kUptime, kSince1970) == 0);
  CHECK(clock_ahead_of_ours(kUptime + 3'000'000, kUptime, kSince1970) == 0);
  CHECK(clock_ahead_of_ours(kSince1970 - 3'000'000, kUptime, kSince1970) == kSince1970 - kUptime);
  CHECK(clock_ahead_of_ours(kSince1970 + 3'000'000, kUptime, kSince1970) == kSince1970 - kUptime);
}

TEST_CASE("Samples that did not come", "[metrics]") {
  CHECK(samples_between(1000, 1000, 100) == 0);
  CHECK(samples_between(1000, 1040, 100) == 0);
  CHECK(samples_between(1000, 1100, 100) == 1);
  CHECK(samples_between(1000, 1990, 100) == 10);
  CHECK(samples_between(1000, 900, 100) == 0);
  CHECK(samples_between(1000, 1990, 0) == 0);
}

TEST_CASE("The first sample spans the set-up, the others are taken once", "[metrics]") {
  Sampling s;
  s.image.sample(3);
  CHECK(s.take() == 3);
  REQUIRE(s.totals.samples.size() == 2);
  CHECK(s.totals.samples[0].start == kUptime + kInterval);
  CHECK(s.totals.samples[1].end == kUptime + 3 * kInterval);
  CHECK(s.totals.samples[1].device == 3);
  CHECK(s.totals.first.start == kUptime + kInterval);
  s.image.sample(2);
  CHECK(s.take() == 2);
  CHECK(s.take() == 0);
  CHECK(s.totals.samples.size() == 4);
  CHECK(s.lost() == 0);
}

TEST_CASE("What is missing between two samples is lost, by what came instead", "[metrics]") {
  Sampling s;
  s.image.sample(2);
  s.take();
  s.account.begin_decode();
  SECTION("nothing came") {
    s.image.next += 5 * kInterval;
    s.image.sample();
    s.take();
    CHECK(s.lost(MetricLoss::kMissing) == 5);
    CHECK(s.account.missing() == 5);
    CHECK(s.totals.first_lost.read == 0);
    s.account.begin_decode();
    CHECK(s.account.missing() == 0);
  }
  SECTION("two came without times") {
    s.image.samples.push_back({0, 0});
    s.image.samples.push_back({kUptime, kUptime, false});
    s.take();
    CHECK(s.account.unplaced());
    CHECK(s.lost() == 0);  // they may not be samples at all
    s.image.next += 3 * kInterval;
    s.image.sample();
    s.take();
    CHECK_FALSE(s.account.unplaced());
    CHECK(s.lost(MetricLoss::kTimeless) == 2);
    CHECK(s.lost(MetricLoss::kMissing) == 1);
    CHECK(s.account.missing() == 1);
    CHECK(s.totals.first_lost_by == MetricLoss::kTimeless);
    CHECK(s.totals.first_lost_error.empty());
  }
  SECTION("one came without times, and none is missing") {
    s.image.samples.push_back({0, 0});
    s.image.sample();
    s.take();
    CHECK(s.lost() == 0);
    CHECK(s.totals.samples.size() == 2);
  }
  SECTION("CUPTI did not tell") {
    s.image.samples.push_back({0, 0, false});
    s.image.next += kInterval;
    s.image.sample();
    s.take();
    CHECK(s.lost(MetricLoss::kTimeless) == 1);
    CHECK(s.totals.first_lost_error == "CUPTI_ERROR_UNKNOWN");
  }
  SECTION("their times can't be") {
    s.image.samples.push_back({kUptime - kInterval, kUptime});                           // before the last
    s.image.samples.push_back({kUptime + 61 * kSecond, kUptime + 61 * kSecond + 1000});  // of no known clock
    s.image.samples.push_back({kUptime + 9 * kInterval, kUptime + 8 * kInterval});       // backwards
    s.image.next += 3 * kInterval;
    s.image.sample();
    s.take();
    CHECK(s.lost(MetricLoss::kMistimed) == 3);
    CHECK(s.lost() == 3);
    CHECK(s.totals.first_lost.cupti_end == kUptime);
    CHECK(s.totals.first_lost_by == MetricLoss::kMistimed);
  }
}

TEST_CASE("A sample that was torn when the image was emptied is left out", "[metrics]") {
  Sampling s;
  s.image.sample(3);
  s.take();
  SECTION("which was seen") {
    s.account.wait_for(1);
    s.empty();
    s.image.sample(2);
    s.take();
    CHECK(s.totals.samples.size() == 3);
    CHECK(s.lost(MetricLoss::kIncomplete) == 1);
    CHECK(s.lost() == 1);
    CHECK(s.totals.first_lost.start == kUptime + 3 * kInterval);
  }
  SECTION("which was not: there is always one") {
    s.empty();
    s.image.sample(2);
    s.take();
    CHECK(s.totals.samples.size() == 3);
    CHECK(s.lost(MetricLoss::kIncomplete) == 1);
  }
  SECTION("several of them") {
    s.account.wait_for(3);
    s.empty();
    s.image.sample(5);
    s.take();
    CHECK(s.totals.samples.size() == 4);
    CHECK(s.lost(MetricLoss::kIncomplete) == 3);
  }
  SECTION("of which one does not come again") {
    s.account.wait_for(1);
    s.empty();
    s.image.next += 2 * kInterval;
    s.image.sample(2);
    s.take();
    CHECK(s.lost(MetricLoss::kIncomplete) == 1);
    CHECK(s.lost(MetricLoss::kMissing) == 2);
  }
}

TEST_CASE("An image that CUPTI began anew by itself is read from its beginning", "[metrics]") {
  Sampling s;
  s.image.sample(3);
  s.take();
  s.image.samples.clear();
  SECTION("with fewer samples") {
    s.image.sample(2);
  }
  SECTION("with as many or more") {
    s.image.sample(4);
  }
  const std::size_t count = s.image.samples.size();
  CHECK(s.take() == count);
  // Except for the first one, which may be torn.
  CHECK(s.totals.samples.size() == 2 + count - 1);
  CHECK(s.lost(MetricLoss::kIncomplete) == 1);
}

TEST_CASE("A sample that CUPTI has timed anew is not another one", "[metrics]") {
  Sampling s;
  s.image.sample(3);
  s.take();
  for (FakeImage::Times& sample : s.image.samples) sample = {sample.start + 1100, sample.end + 1100};
  s.image.next += 1100;
  s.image.sample();
  CHECK(s.take() == 1);
  CHECK(s.totals.samples.size() == 3);
  CHECK(s.lost() == 0);
}

TEST_CASE("Samples with the wall clock's times are moved to ours", "[metrics]") {
  Sampling s;
  s.image.next += s.image.ahead;
  s.image.sample(2);
  CHECK_FALSE(s.account.on_wall_clock());
  s.take();
  CHECK(s.account.on_wall_clock());
  REQUIRE(s.totals.samples.size() == 1);
  CHECK(s.totals.samples[0].start == kUptime + kInterval);
  CHECK(s.totals.first.cupti_start == kUptime + kInterval + s.image.ahead);
  // The clock was adjusted, which is seen a second later.
  const Nanoseconds before = s.image.ahead;
  s.image.ahead += 5000;
  s.image.sample();
  s.take();
  CHECK(s.totals.samples.back().start == kUptime + 2 * kInterval);
  s.image.time += SampleAccount::kClockInterval;
  s.image.sample();
  s.take();
  CHECK(s.totals.samples.back().start == kUptime + 3 * kInterval - (s.image.ahead - before));
}

TEST_CASE("A device of which nothing can be used", "[metrics]") {
  Sampling s;
  SECTION("as units tell nothing of theirs") {
    s.account.wait_for(SampleAccount::kMaxFruitless);
    CHECK_FALSE(s.account.fruitless());
    s.account.wait_for(SampleAccount::kMaxFruitless + 1);
    CHECK(s.account.fruitless());
    CHECK(s.account.main_reason() == MetricLoss::kIncomplete);
    s.account.stop_waiting(s.image);
    CHECK(s.account.fruitless());
    s.account.set_up();
    CHECK_FALSE(s.account.fruitless());
  }
  SECTION("as they have no values") {
    s.image.sample(SampleAccount::kMaxFruitless + 2);
    s.account.take(s.image, s.image.samples.size());
    for (const SampleAccount::Placed& one : s.account.placed())
      s.account.drop(one.times, MetricLoss::kNotEvaluated, "no value");
    CHECK(s.account.fruitless());
    CHECK(s.account.main_reason() == MetricLoss::kNotEvaluated);
    CHECK(s.lost(MetricLoss::kNotEvaluated) == SampleAccount::kMaxFruitless + 1);
    CHECK(s.totals.first_lost_error == "no value");
  }
  SECTION("but not once one could be") {
    s.image.sample(2);
    s.take();
    s.account.wait_for(100);
    CHECK_FALSE(s.account.fruitless());
    CHECK(s.account.sampled());
    s.account.set_up();
    CHECK(s.account.fruitless());  // of the new image
    CHECK(s.account.sampled());
    CHECK_FALSE(s.account.useful());
  }
}

TEST_CASE("What did not come while sampling began anew is lost", "[metrics]") {
  Sampling s;
  SECTION("from the latest sample on") {
    s.image.sample(2);
    s.take();
  }
  SECTION("from the start on, where there was none") {
    s.image.next += 2 * kInterval;
  }
  s.account.restart();
  s.account.set_up();
  s.image.samples.clear();
  s.image.next += 6 * kInterval;
  s.image.sample(2);  // the first one spans the set-up
  s.take();
  CHECK(s.lost(MetricLoss::kMissing) == 7 + (s.totals.samples.size() == 2 ? 0 : 2));
}

TEST_CASE("What has not come when sampling stops is lost, but for one that was under way", "[metrics]") {
  Sampling s;
  SECTION("after samples") {
    s.image.sample(2);
    s.take();
    s.account.note_end(s.image, s.image.next + 2 * kInterval - 1);
    CHECK(s.lost() == 0);
    s.account.note_end(s.image, s.image.next + 4 * kInterval);
    CHECK(s.lost(MetricLoss::kMissing) == 4);
  }
  SECTION("some of it incomplete") {
    s.image.sample(2);
    s.take();
    s.account.wait_for(3);
    s.account.note_end(s.image, s.image.next + 5 * kInterval);
    CHECK(s.lost(MetricLoss::kIncomplete) == 3);
    CHECK(s.lost(MetricLoss::kMissing) == 2);
  }
  SECTION("without any") {
    s.account.note_end(s.image, kUptime + 9 * kInterval);
    CHECK(s.lost(MetricLoss::kMissing) == 9);
  }
  SECTION("never started") {
    SampleAccount other(0, kInterval, s.totals);
    other.note_end(s.image, kUptime);
    CHECK(s.lost() == 0);
  }
}
