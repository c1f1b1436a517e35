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

/// A device's image and the clocks, as an account reads them.
class ImageReader {
 public:
  ImageReader() = default;
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;

  /// A sample's times on CUPTI's clock. False: they are unknown, or partly so; error() says why.
  virtual bool times(std::size_t sample, Nanoseconds& start, Nanoseconds& end) = 0;
  /// The error of the latest times(); empty if it had none.
  virtual std::string error() = 0;
  virtual Nanoseconds now() = 0;
  /// The wall clock beyond ours.
  virtual Nanoseconds wall_clock_ahead() = 0;

 protected:
  ~ImageReader() = default;
};

/// What the accounts of all devices add up to.
struct SampleTotals {
  // Until they are taken.
  std::vector<MetricSample> samples;
  std::array<std::uint64_t, kMetricLosses> lost{};
  // Since the beginning.
  MetricSampleTimes first;       ///< of the first sample
  MetricSampleTimes first_lost;  ///< … that came, and could not be used
  MetricLoss first_lost_by = MetricLoss::kMissing;
  std::string first_lost_error;
};

/// One device's samples: which are taken from CUPTI's image, which can't be used and why, and how many
/// never arrived. Nothing here calls CUPTI.
///
/// A sample that came without its times, or with impossible ones, is not lost yet. What is lost shows at the
/// next sample that has its place in time: the gap before it is put down to what came meanwhile.
class SampleAccount {
 public:
  /// A device from which so many samples started to arrive without one being usable will yield none: some
  /// of its units, such as links that are switched off, report no values.
  static constexpr std::size_t kMaxFruitless = 64;
  /// A sample whose time is further from ours is on a clock that is not known.
  static constexpr Nanoseconds kMaxClockDistance = 60 * kSecond;
  /// How often the wall clock, which may be set, is compared with ours.
  static constexpr Nanoseconds kClockInterval = kSecond;

  /// A sample of the image that has its place in time.
  struct Placed {
    std::size_t index = 0;
    MetricSample sample;
    MetricSampleTimes times;
  };

  SampleAccount(std::uint32_t device, Nanoseconds interval, SampleTotals& totals)
      : device_(device), interval_(interval), totals_(totals) {}

  /// The device has been set up with a new image.
  void set_up() noexcept;
  /// Sampling has been started at that time.
  void start(Nanoseconds time) noexcept;
  /// It has been stopped, and will be started again. What does not come until then is lost.
  void restart() noexcept { first_ = reopened_ = true; }

  /// From here on missing() counts.
  void begin_decode() noexcept { missing_ = 0; }
  /// Takes what has been completed in the image since the last call; `completed` is how many samples are.
  /// Those that have their place in time are in placed(), each for use() or drop(). How many were new.
  std::uint64_t take(ImageReader& image, std::size_t completed);
  const std::vector<Placed>& placed() const { return placed_; }
  void use(const Placed& one, const std::array<float, kMaxMetrics>& values);
  /// A sample whose time is known, but that can't be used.
  void drop(const MetricSampleTimes& times, MetricLoss loss, std::string error = {});

  /// So many samples of the image have started to arrive and are not complete.
  void wait_for(std::size_t samples) noexcept { waiting_ = samples; }
  /// These will not be completed.
  void stop_waiting(ImageReader& image);
  /// The image starts again, without those that are not complete. What their other units tell comes into the
  /// new image, where CUPTI calls it complete: on an H100 that was each image's first sample, with 1 to 6 %
  /// of what the SMs counted and all of the rest. No image is without one that has begun, whatever CUPTI
  /// says of it.
  void empty_image(ImageReader& image);
  /// Sampling has stopped: what has not come until then is lost. One sample more or less that was under way
  /// is none that is lost.
  void note_end(ImageReader& image, Nanoseconds until);

  /// When sampling was started first; 0: it has not been.
  Nanoseconds opened() const { return opened_; }
  /// There has been a sample, ever; since set_up().
  bool sampled() const { return sampled_; }
  bool useful() const { return useful_; }
  /// Many came since set_up(), and not one could be used.
  bool fruitless() const { return !useful_ && fruitless_ + waiting_ > kMaxFruitless; }
  /// Why most of them could not, those that are not complete among them.
  MetricLoss main_reason() const;
  /// Samples that are missing without a trace since begin_decode().
  std::uint64_t missing() const { return missing_; }
  /// The newest sample has no times, for example because the image was full.
  bool unplaced() const { return unplaced_; }
  /// CUPTI's times are the wall clock's.
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

  std::size_t taken_ = 0;      // samples of the image that have been read
  Nanoseconds taken_end_ = 0;  // the end of the last of them, as CUPTI has it
  std::size_t waiting_ = 0;    // samples of the image that are not complete
  std::size_t torn_ = 0;       // samples still to come, a part of which went with the image before
  std::size_t fruitless_ = 0;  // samples that came, since set_up(), before one could be used
  bool useful_ = false;        // one could be
  bool sampled_ = false;       // … ever
  // Samples that came and could not be used since the latest that could, and how many in all, by MetricLoss.
  std::array<std::uint64_t, kMetricLosses> unusable_{};
  std::array<std::uint64_t, kMetricLosses> unusable_ever_{};
  MetricSampleTimes suspect_;  // the first of them
  MetricLoss suspect_by_ = MetricLoss::kMissing;
  std::string suspect_error_;
  Nanoseconds last_end_ = 0;     // on CUPTI's clock
  Nanoseconds clock_ahead_ = 0;  // CUPTI's clock beyond ours
  Nanoseconds clock_read_ = 0;
  bool clock_known_ = false;
  Nanoseconds opened_ = 0;  // on ours; 0: it has not been sampled
  bool reopened_ = false;   // what lies before its first sample is lost
  bool first_ = true;       // the next sample is the first since sampling started
  bool unplaced_ = false;   // the newest found no room
  std::uint64_t missing_ = 0;
};

/// How far CUPTI's clock is ahead of CLOCK_MONOTONIC, by which clock a time just taken is closer to: 0, or
/// the wall clock's lead.
Nanoseconds clock_ahead_of_ours(Nanoseconds time, Nanoseconds monotonic, Nanoseconds realtime) noexcept;

/// Samples that should have come between two times that follow each other.
std::uint64_t samples_between(Nanoseconds end, Nanoseconds next_start, Nanoseconds interval) noexcept;

}  // namespace inject
