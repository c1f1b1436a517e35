// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/base/clock.h"

namespace inject {

/// The processor's own steady counter: half the cost of the clock. Where there is none that we know, the
/// clock.
inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return now();
#endif
}

/// Turns ticks into times on CLOCK_MONOTONIC: a line through the last two readings of both. Never late: a
/// time that was taken with now() after ticks() is not before what time() makes of these.
class TickClock {
 public:
  TickClock() noexcept : first_(read()), last_(first_) {}

  /// Takes another reading. Between calls time() is one fixed line.
  void calibrate() noexcept {
    const Reading reading = read();
    if (reading.ticks <= last_.ticks || reading.time <= last_.time) return;
    // Two readings that are close together make a bad line; with ones far apart, NTP has bent it in between.
    if (last_.time - first_.time >= kApart) first_ = last_;
    last_ = reading;
    scale_ = static_cast<double>(last_.time - first_.time) / static_cast<double>(last_.ticks - first_.ticks);
  }

  Nanoseconds time(std::uint64_t at) const noexcept {
    const auto distance = static_cast<std::int64_t>(at - last_.ticks);
    const auto later = static_cast<std::int64_t>(static_cast<double>(distance) * scale_);
    return last_.time + static_cast<Nanoseconds>(later);
  }

 private:
  static constexpr Nanoseconds kApart = 1'000'000;
  struct Reading {
    std::uint64_t ticks;
    Nanoseconds time;
  };
  // The ticks after the time, so that no time comes out late; the quickest of a few, as the processor may be
  // lost in between.
  static Reading read() noexcept {
    Reading best{};
    std::uint64_t least = ~std::uint64_t{0};
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t before = ticks();
      const Nanoseconds time = now();
      const std::uint64_t after = ticks();
      if (after - before >= least) continue;
      least = after - before;
      best = {after, time};
    }
    return best;
  }

  Reading first_;
  Reading last_;
  double scale_ = 1;
};

}  // namespace inject
