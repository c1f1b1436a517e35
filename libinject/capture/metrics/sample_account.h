// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/model/metric_samples.h"

namespace inject {

/// Access of an account to a device's image and the clocks.
class ImageReader {
 public:
  ImageReader() = default;
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;

  /// A sample's times on CUPTI's clock. False if they are unknown, even partly; error() then gives the
  /// reason.
  virtual bool times(std::size_t sample, Nanoseconds& start, Nanoseconds& end) = 0;
  /// The error of the latest times(); empty if there was none.
  virtual std::string error() = 0;
  virtual Nanoseconds now() = 0;
  /// How far the wall clock is ahead of ours.
  virtual Nanoseconds wall_clock_ahead() = 0;

 protected:
  ~ImageReader() = default;
};

/// Totals over all devices' accounts.
struct SampleTotals {
  // Until they are taken:
  std::vector<MetricSample> samples;
  std::array<std::uint64_t, kMetricLosses> lost{};
  // Since the beginning:
  MetricSampleTimes first;       ///< of the first sample
  MetricSampleTimes first_lost;  ///< of the first one that arrived but could not be used
  MetricLoss first_lost_by = MetricLoss::kMissing;
  std::string first_lost_error;
};

/// One device's samples: which are taken from CUPTI's image, which can't be used and why, and how many never
/// arrived. Nothing here calls CUPTI.
///
/// A sample that arrived without its times, or with impossible ones, is not counted as lost yet. The next
/// sample with valid times shows what was lost: the gap before it is attributed to what arrived in between.
class SampleAccount {
 public:
  /// If this many samples of a device started to arrive without one being usable, it will yield none: some of
  /// its units, such as links that are switched off, report no values.
  static constexpr std::size_t kMaxFruitless = 64;
  /// A sample whose time is further than this from ours uses an unknown clock.
  static constexpr Nanoseconds kMaxClockDistance = 60 * kSecond;
  /// How often the wall clock, which may be set, is compared with ours.
  static constexpr Nanoseconds kClockInterval = kSecond;

  /// A sample of the image with valid times.
  struct Placed {
    std::size_t index = 0;
    MetricSample sample;
    MetricSampleTimes times;
  };

  SampleAccount(std::uint32_t device, Nanoseconds interval, SampleTotals& totals)
      : device_(device), interval_(interval), totals_(totals) {}

  /// The device has been set up with a new image.
  void set_up() noexcept;
  /// Sampling has been started at `time`.
  void start(Nanoseconds time) noexcept;
  /// Sampling has been stopped, and will be started again. Samples that have not arrived until then are lost.
  void restart() noexcept { first_ = reopened_ = true; }

  /// Resets missing().
  void begin_decode() noexcept { missing_ = 0; }
  /// Takes the samples completed in the image since the last call; `completed` is their total number. Those
  /// with valid times are in placed(), each to be passed to use() or drop(). Returns the number of new ones.
  std::uint64_t take(ImageReader& image, std::size_t completed);
  const std::vector<Placed>& placed() const { return placed_; }
  void use(const Placed& one, const std::array<float, kMaxMetrics>& values);
  /// A sample with valid times that can't be used.
  void drop(const MetricSampleTimes& times, MetricLoss loss, std::string error = {});

  /// This many samples of the image have started to arrive and are not complete.
  void wait_for(std::size_t samples) noexcept { waiting_ = samples; }
  /// Those samples will not be completed.
  void stop_waiting(ImageReader& image);
  /// The image is restarted, without incomplete samples. What other units report for these goes into the new
  /// image, where CUPTI considers them complete: on an H100 that was each image's first sample, with 1 to 6 %
  /// of what the SMs counted and all of the rest. An image always has a sample that has begun, whatever CUPTI
  /// reports.
  void empty_image(ImageReader& image);
  /// Sampling has stopped: samples that have not arrived until then are lost. A difference of one sample,
  /// which was in progress, does not count as a loss.
  void note_end(ImageReader& image, Nanoseconds until);

  /// When sampling was first started; 0: never.
  Nanoseconds opened() const { return opened_; }
  /// There has been a usable sample, ever; since set_up().
  bool sampled() const { return sampled_; }
  bool useful() const { return useful_; }
  /// True if many arrived since set_up(), and not one could be used.
  bool fruitless() const { return !useful_ && fruitless_ + waiting_ > kMaxFruitless; }
  /// Why most of them could not be used, including incomplete ones.
  MetricLoss main_reason() const;
  /// Number of samples missing without a trace since begin_decode().
  std::uint64_t missing() const { return missing_; }
  /// True if the newest sample has no times, for example because the image was full.
  bool unplaced() const { return unplaced_; }
  /// True if CUPTI's times are the wall clock's.
  bool on_wall_clock() const { return clock_known_ && clock_ahead_ != 0; }

 private:
  bool image_restarted(ImageReader& image, std::size_t completed);
  void place(ImageReader& image, std::size_t index);
  void suspect(ImageReader& image, MetricLoss loss, Nanoseconds start, Nanoseconds end);
  void count_lost(MetricLoss loss, std::uint64_t count);
  void count_lost_gap(std::uint64_t count);

  const std::uint32_t device_;
  const Nanoseconds interval_;
  SampleTotals& totals_;
  std::vector<Placed> placed_;

  std::size_t taken_ = 0;      // number of samples of the image that have been read
  Nanoseconds taken_end_ = 0;  // the end of the last one read, in CUPTI's time
  std::size_t waiting_ = 0;    // number of incomplete samples in the image
  std::size_t torn_ = 0;       // samples still to arrive, part of which was in the previous image
  std::size_t fruitless_ = 0;  // samples that arrived, since set_up(), before one could be used
  bool useful_ = false;        // one could be used
  bool sampled_ = false;       // the same, ever
  // Samples that arrived but could not be used since the latest usable one, and in total, by MetricLoss.
  std::array<std::uint64_t, kMetricLosses> unusable_{};
  std::array<std::uint64_t, kMetricLosses> unusable_ever_{};
  MetricSampleTimes suspect_;  // the first of these
  MetricLoss suspect_by_ = MetricLoss::kMissing;
  std::string suspect_error_;
  Nanoseconds last_end_ = 0;     // on CUPTI's clock
  Nanoseconds clock_ahead_ = 0;  // how far CUPTI's clock is ahead of ours
  Nanoseconds clock_read_ = 0;
  bool clock_known_ = false;
  Nanoseconds opened_ = 0;  // on our clock; 0: it has not been sampled
  bool reopened_ = false;   // the time before its first sample is lost
  bool first_ = true;       // the next sample is the first since sampling started
  bool unplaced_ = false;   // the newest one has no times
  std::uint64_t missing_ = 0;
};

/// How far CUPTI's clock is ahead of CLOCK_MONOTONIC, depending on which clock a time just taken is closer
/// to: 0, or the wall clock's lead.
Nanoseconds clock_ahead_of_ours(Nanoseconds time, Nanoseconds monotonic, Nanoseconds realtime) noexcept;

/// Number of samples that should have arrived between two consecutive times.
std::uint64_t samples_between(Nanoseconds end, Nanoseconds next_start, Nanoseconds interval) noexcept;

}  // namespace inject
