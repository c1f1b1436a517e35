// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/sample_account.h"

#include <algorithm>
#include <utility>

namespace inject {

namespace {

Nanoseconds distance(Nanoseconds a, Nanoseconds b) noexcept {
  return a > b ? a - b : b - a;
}

constexpr std::size_t kIncomplete = static_cast<std::size_t>(MetricLoss::kIncomplete);

}  // namespace

Nanoseconds clock_ahead_of_ours(Nanoseconds time, Nanoseconds monotonic, Nanoseconds realtime) noexcept {
  return distance(time, realtime) < distance(time, monotonic) ? realtime - monotonic : 0;
}

std::uint64_t samples_between(Nanoseconds end, Nanoseconds next_start, Nanoseconds interval) noexcept {
  if (interval == 0 || next_start <= end) return 0;
  return (next_start - end + interval / 2) / interval;
}

void SampleAccount::set_up() noexcept {
  taken_ = 0;
  torn_ = 0;
  fruitless_ = 0;
  useful_ = false;
}

void SampleAccount::start(Nanoseconds time) noexcept {
  if (opened_ == 0) opened_ = time;
}

std::uint64_t SampleAccount::take(ImageReader& image, std::size_t completed) {
  placed_.clear();
  if (image_restarted(image, completed)) {
    taken_ = 0;
    torn_ = std::max<std::size_t>(torn_, 1);
  }
  const std::uint64_t fresh = completed - std::min(completed, taken_);
  for (; taken_ < completed; ++taken_) place(image, taken_);
  return fresh;
}

// True if the image holds other samples in place of those that have been taken from it.
bool SampleAccount::image_restarted(ImageReader& image, std::size_t completed) {
  if (taken_ == 0) return false;
  if (completed < taken_) return true;
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  image.times(taken_ - 1, start, end);
  if (end == taken_end_) return false;
  // CUPTI may compare clocks between two decodes, which shifts the sample taken last by a microsecond (seen
  // on an H200): it is the same sample.
  if (2 * distance(end, taken_end_) >= end - start) return true;
  if (last_end_ == taken_end_) last_end_ = end;
  taken_end_ = end;
  return false;
}

void SampleAccount::place(ImageReader& image, std::size_t index) {
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  const bool told = image.times(index, start, end);
  taken_end_ = end;
  // Some samples have no times, or the set-up's time as both: if others did not fit in the image before them,
  // and once sampling has stopped. They represent no lost time of their own: if one does, the gap appears
  // between samples that have both times.
  if (!told || start == 0 || end == start) {
    unplaced_ = true;
    suspect(image, MetricLoss::kTimeless, start, end);
    return;
  }
  const Nanoseconds time = image.now();
  if (!clock_known_) {
    clock_read_ = time;
    clock_ahead_ = clock_ahead_of_ours(end, time, time + image.wall_clock_ahead());
  }
  if (clock_ahead_ != 0 && time - clock_read_ >= kClockInterval) {
    clock_read_ = time;
    clock_ahead_ = image.wall_clock_ahead();
  }
  if (end <= start || end <= last_end_ || distance(end, time + clock_ahead_) > kMaxClockDistance) {
    suspect(image, MetricLoss::kMistimed, start, end);
    return;
  }
  clock_known_ = true;
  unplaced_ = false;
  const bool torn = torn_ != 0;
  if (torn) --torn_;
  const Nanoseconds before = std::exchange(last_end_, end);
  const Nanoseconds our_end = end - clock_ahead_;
  // The first sample spans the set-up; if sampling was restarted, the time before it is lost.
  if (std::exchange(first_, false)) {
    if (reopened_)
      count_lost_gap(samples_between(before == 0 ? opened_ : before - clock_ahead_, our_end, interval_));
  } else {
    Placed placed;
    placed.index = index;
    placed.sample.start = start - clock_ahead_;
    placed.sample.end = our_end;
    placed.sample.device = device_;
    placed.times = {start, end, placed.sample.start, our_end, time};
    // It was counted among those given up, and is not another one.
    std::uint64_t& incomplete = unusable_[kIncomplete];
    if (torn && incomplete != 0) --incomplete;
    count_lost_gap(samples_between(before, start, end - start));
    if (torn) {
      suspect_ = {};
      drop(placed.times, MetricLoss::kIncomplete);
    } else {
      placed_.push_back(placed);
    }
  }
  unusable_ = {};
  suspect_ = {};
}

void SampleAccount::use(const Placed& one, const std::array<float, kMaxMetrics>& values) {
  totals_.samples.push_back(one.sample);
  totals_.samples.back().values = values;
  if (totals_.first.read == 0) totals_.first = one.times;
  sampled_ = useful_ = true;
}

void SampleAccount::stop_waiting(ImageReader& image) {
  const std::size_t given_up = std::exchange(waiting_, 0);
  if (given_up == 0) return;
  fruitless_ += given_up;
  unusable_[kIncomplete] += given_up;
  unusable_ever_[kIncomplete] += given_up;
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  image.times(taken_, start, end);
  suspect(image, MetricLoss::kIncomplete, start, end);
}

void SampleAccount::empty_image(ImageReader& image) {
  torn_ = std::max<std::size_t>(waiting_, 1);
  stop_waiting(image);
  taken_ = 0;
}

void SampleAccount::note_end(ImageReader& image, Nanoseconds until) {
  const Nanoseconds since = last_end_ == 0 ? opened_ : last_end_ - clock_ahead_;
  if (since == 0 || until <= since) return;
  const std::uint64_t missing = (until - since) / interval_;
  if (missing <= 1) return;
  stop_waiting(image);
  count_lost_gap(missing);
}

MetricLoss SampleAccount::main_reason() const {
  auto reasons = unusable_ever_;
  reasons[kIncomplete] += waiting_;
  return main_loss(reasons);
}

// A sample arrived but can't be used. The next usable one will show whether it is missing.
void SampleAccount::suspect(ImageReader& image, MetricLoss loss, Nanoseconds start, Nanoseconds end) {
  if (loss != MetricLoss::kIncomplete) {
    ++fruitless_;
    ++unusable_[static_cast<std::size_t>(loss)];
    ++unusable_ever_[static_cast<std::size_t>(loss)];
  }
  if (suspect_.read != 0) return;
  const Nanoseconds time = image.now();
  const Nanoseconds ahead =
      clock_known_ ? clock_ahead_ : clock_ahead_of_ours(end, time, time + image.wall_clock_ahead());
  const auto ours = [ahead](Nanoseconds on_cupti) { return on_cupti > ahead ? on_cupti - ahead : 0; };
  suspect_ = {start, end, ours(start), ours(end), time};
  suspect_by_ = loss;
  suspect_error_ = image.error();
}

void SampleAccount::drop(const MetricSampleTimes& times, MetricLoss loss, std::string error) {
  ++fruitless_;
  ++unusable_ever_[static_cast<std::size_t>(loss)];
  if (suspect_.read == 0) {
    suspect_ = times;
    suspect_by_ = loss;
    suspect_error_ = std::move(error);
  }
  count_lost(loss, 1);
}

void SampleAccount::count_lost(MetricLoss loss, std::uint64_t count) {
  if (count == 0) return;
  totals_.lost[static_cast<std::size_t>(loss)] += count;
  if (totals_.first_lost.read != 0 || suspect_.read == 0) return;
  totals_.first_lost = suspect_;
  totals_.first_lost_by = suspect_by_;
  totals_.first_lost_error = suspect_error_;
}

// Attributes the samples missing up to here to the unusable ones that arrived in their place.
void SampleAccount::count_lost_gap(std::uint64_t count) {
  for (std::size_t loss = 0; loss < kMetricLosses && count != 0; ++loss) {
    const std::uint64_t known = std::min(count, unusable_[loss]);
    count_lost(static_cast<MetricLoss>(loss), known);
    count -= known;
  }
  count_lost(MetricLoss::kMissing, count);
  missing_ += count;
}

}  // namespace inject
