// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/decode_schedule.h"

#include <algorithm>
#include <utility>

namespace inject {

namespace {

constexpr Nanoseconds kIntervalsPerPoll = 100;
constexpr Nanoseconds kMaxPoll = 20 * kMillisecond;
// The cost of a decode depends on what the hardware has written since the last one; the call itself costs
// next to nothing (H200). So it is done well before the hardware's buffer is full.
constexpr Nanoseconds kMaxPause = 100 * kMillisecond;
// A sample of the automatic set takes some 46 kilobytes in CUPTI's image: 35 bytes for each counter of each
// of the device's units. Together with the hardware's buffer, that is 50 MB per device.
constexpr std::size_t kMaxImageBytes = std::size_t{16} << 20;
// In the hardware's buffer, a unit's counters share records of 32 bytes: a sample takes a quarter of its size
// in the image if many counters are sampled, all of it if there is one.
constexpr std::size_t kBufferShare = 4;
constexpr std::size_t kMaxBytesInBuffer = 8192;
// In addition to a sample's own records, as many are written each time this much of it has passed, whatever
// its length: on an H200 every 150 us in a product in bfloat16, every 40 to 80 in one in fp32 or where memory
// is the limit, and at much longer intervals while it idles.
constexpr Nanoseconds kRecordsRepeat = 40 * kMicrosecond;
// Both have to hold what arrives between two decodes, and as much again if our thread is late: what does not
// fit is lost. Emptying the image takes ten microseconds for each sample that it can hold, so it can hold
// more than that.
constexpr std::size_t kRoomInPauses = 2;
constexpr std::size_t kImageInPauses = 8;

// The time within which the hardware's buffer must be decoded, however busy the device, given the size of a
// sample in CUPTI's image.
Nanoseconds max_buffer_pause(std::size_t bytes_in_image, std::size_t buffer_bytes, Nanoseconds interval) {
  const std::size_t records =
      std::max(bytes_in_image / kBufferShare, std::min(bytes_in_image, kMaxBytesInBuffer));
  return buffer_bytes / records / kRoomInPauses * interval * kRecordsRepeat / (interval + kRecordsRepeat);
}

}  // namespace

Nanoseconds poll_interval(Nanoseconds interval) noexcept {
  return std::clamp(kIntervalsPerPoll * interval, kMinPause, kMaxPoll);
}

DecodePlan plan_decoding(std::size_t bytes_in_image, std::size_t buffer_bytes, Nanoseconds interval,
                         Nanoseconds most) noexcept {
  const std::size_t each = std::max<std::size_t>(bytes_in_image, 1);
  const Nanoseconds buffer = std::min(max_buffer_pause(each, buffer_bytes, interval), kMaxPause);
  DecodePlan plan;
  plan.image_samples = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(kImageInPauses * (buffer / interval), kMinImageSamples,
                              std::max<std::size_t>(kMaxImageBytes / each, kMinImageSamples)));
  // The rest is reserved for late samples, so that the image need not be emptied each time.
  const Nanoseconds image = plan.image_samples / (kRoomInPauses + 1) * interval;
  plan.pause = std::max(std::min({buffer, image, most}), kMinPause);
  return plan;
}

void DecodeSchedule::start(Nanoseconds time, Nanoseconds interval) noexcept {
  pause_ = std::min(poll_interval(interval), longest_pause_);
  decode_at_ = time + pause_;
}

Nanoseconds DecodeSchedule::until_due(Nanoseconds time) const noexcept {
  return decode_at_ > time ? decode_at_ - time : kMinPause;
}

void DecodeSchedule::decoded(Nanoseconds begun) noexcept {
  pause_ = std::min(2 * pause_, longest_pause_);
  decode_at_ = begun + pause_;
}

bool DecodeSchedule::shorten() noexcept {
  const Nanoseconds pause = std::max(pause_ / 2, std::min(kMinDecodePause, longest_pause_));
  if (pause >= longest_pause_) return false;
  longest_pause_ = pause;
  return true;
}

bool DecodeSchedule::is_tight(std::size_t room, Nanoseconds interval) const noexcept {
  return room < kRoomInPauses * (longest_pause_ / interval + 1);
}

void DecodeSchedule::note_overflow(Nanoseconds time) noexcept {
  if (time - std::exchange(overflowed_at_, time) > kOverflowsForgotten) overflows_ = 0;
  ++overflows_;
}

bool DecodeSchedule::may_retry(Nanoseconds time) noexcept {
  const Nanoseconds before = std::exchange(retried_at_, time);
  return before == 0 || time - before >= kOverflowsForgotten;
}

}  // namespace inject
