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
/// sampled, and the shortest time between two checks.
Nanoseconds poll_interval(Nanoseconds interval) noexcept;
inline constexpr Nanoseconds kMinPause = 2 * kMillisecond;

/// CUPTI reports the size of an image, not of a sample: it is derived from an image of so many samples.
inline constexpr std::uint32_t kMinImageSamples = 16;

/// How many samples CUPTI's image gets room for, and the pause from one decode to the next, at most.
struct DecodePlan {
  std::uint32_t image_samples = 0;
  Nanoseconds pause = 0;
};
/// `bytes_in_image`: what a sample takes there. No pause is longer than `most`, but for kMinPause.
DecodePlan plan_decoding(std::size_t bytes_in_image, std::size_t buffer_bytes, Nanoseconds interval,
                         Nanoseconds most) noexcept;

/// The schedule of one device.
class DecodePace {
 public:
  /// A device whose buffer overflows so often is sampled faster than it can be decoded …
  static constexpr int kMaxOverflows = 8;
  /// … within this time of each other.
  static constexpr Nanoseconds kOverflowsForgotten = 10 * kSecond;
  /// If samples were missing, decoding is done twice as often, down to this pause …
  static constexpr Nanoseconds kMinDecodePause = 10 * kMillisecond;
  /// … if at least so many were missing. Fewer may have other reasons.
  static constexpr std::uint64_t kMinMissing = 4;

  /// The pause grows up to here.
  void limit(Nanoseconds pause) noexcept { longest_pause_ = pause; }
  /// Sampling has been started. The first decode is sooner than the others, as samples may turn out to be of
  /// no use.
  void start(Nanoseconds time, Nanoseconds interval) noexcept;
  bool due(Nanoseconds time) const noexcept { return time >= decode_at_; }
  Nanoseconds until_due(Nanoseconds time) const noexcept;
  /// A decode that began at that time is done.
  void decoded(Nanoseconds begun) noexcept;
  /// The hardware's buffer was full: decodes twice as often from now on. False: that is not possible.
  bool shorten() noexcept;
  Nanoseconds longest_pause() const noexcept { return longest_pause_; }
  /// Whether an image with room for `room` more samples has to be emptied: it needs room for what comes
  /// until the next decode, even if that is late.
  bool is_tight(std::size_t room, Nanoseconds interval) const noexcept;

  void note_overflow(Nanoseconds time) noexcept;
  /// Does not count the latest overflow.
  void forgive_overflow() noexcept { overflows_ -= overflows_ > 0 ? 1 : 0; }
  bool too_fast() const noexcept { return overflows_ == kMaxOverflows; }
  /// Decoding failed: whether sampling may restart, which it may unless it has done so recently.
  bool may_retry(Nanoseconds time) noexcept;

 private:
  Nanoseconds decode_at_ = 0;      // when it is due
  Nanoseconds pause_ = 0;          // from one decode to the next …
  Nanoseconds longest_pause_ = 0;  // … at most
  Nanoseconds overflowed_at_ = 0;
  Nanoseconds retried_at_ = 0;  // 0: never
  int overflows_ = 0;
};

}  // namespace inject
