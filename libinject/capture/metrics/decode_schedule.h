// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// When a device's buffer is decoded, given the sizes of buffer and image. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libinject/base/clock.h"

namespace inject {

/// How often the sampling thread checks whether a device is due, has come into use, or is no longer to be
/// sampled, and the minimum of that interval.
Nanoseconds poll_interval(Nanoseconds interval) noexcept;
inline constexpr Nanoseconds kMinPause = 2 * kMillisecond;

/// CUPTI reports the size of an image, not of a sample: the latter is derived from an image of this many
/// samples.
inline constexpr std::uint32_t kMinImageSamples = 16;

/// How many samples CUPTI's image can hold, and the maximum pause from one decode to the next.
struct DecodePlan {
  std::uint32_t image_samples = 0;
  Nanoseconds pause = 0;
};
/// `bytes_in_image`: the size of a sample in the image. No pause is longer than `most`, except kMinPause.
DecodePlan plan_decoding(std::size_t bytes_in_image, std::size_t buffer_bytes, Nanoseconds interval,
                         Nanoseconds most) noexcept;

/// The schedule of one device.
class DecodeSchedule {
 public:
  /// A device whose buffer overflows this often is sampled faster than it can be decoded.
  static constexpr int kMaxOverflows = 8;
  /// Only overflows within this time of each other are counted.
  static constexpr Nanoseconds kOverflowsForgotten = 10 * kSecond;
  /// If samples were missing, decoding is done twice as often, down to this pause.
  static constexpr Nanoseconds kMinDecodePause = 10 * kMillisecond;
  /// Only if at least this many were missing: fewer may have other reasons.
  static constexpr std::uint64_t kMinMissing = 4;

  /// Sets the maximum of the pause.
  void limit(Nanoseconds pause) noexcept { longest_pause_ = pause; }
  /// Sampling has been started. The first decode comes sooner than the others, because samples may turn out
  /// to be of no use.
  void start(Nanoseconds time, Nanoseconds interval) noexcept;
  bool due(Nanoseconds time) const noexcept { return time >= decode_at_; }
  Nanoseconds until_due(Nanoseconds time) const noexcept;
  /// A decode that began at `begun` is done.
  void decoded(Nanoseconds begun) noexcept;
  /// The hardware's buffer was full: decodes twice as often from now on. False if that is not possible.
  bool shorten() noexcept;
  Nanoseconds longest_pause() const noexcept { return longest_pause_; }
  /// True if an image with room for `room` more samples has to be emptied: it needs room for what arrives
  /// until the next decode, even if that is late.
  bool is_tight(std::size_t room, Nanoseconds interval) const noexcept;

  void note_overflow(Nanoseconds time) noexcept;
  /// Does not count the latest overflow.
  void forgive_overflow() noexcept { overflows_ -= overflows_ > 0 ? 1 : 0; }
  bool too_fast() const noexcept { return overflows_ == kMaxOverflows; }
  /// Decoding failed: true if sampling may restart, that is, unless it has done so recently.
  bool may_retry(Nanoseconds time) noexcept;

 private:
  Nanoseconds decode_at_ = 0;      // when it is due
  Nanoseconds pause_ = 0;          // from one decode to the next
  Nanoseconds longest_pause_ = 0;  // maximum of pause_
  Nanoseconds overflowed_at_ = 0;
  Nanoseconds retried_at_ = 0;  // 0: never
  int overflows_ = 0;
};

}  // namespace inject
