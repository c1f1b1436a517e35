// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/record/clock.h"

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

/// Turns ticks into times on CLOCK_MONOTONIC: a line through two readings of both.
class TickClock {
 public:
  TickClock() noexcept : first_ticks_(ticks()), first_time_(now()) {}

  /// Takes a second reading, which is the better the later it is. Between calls time() is one fixed line.
  void calibrate() noexcept {
    const std::uint64_t later = ticks();
    const Nanoseconds time = now();
    if (later > first_ticks_ && time > first_time_) {
      scale_ = static_cast<double>(time - first_time_) / static_cast<double>(later - first_ticks_);
    }
  }

  Nanoseconds time(std::uint64_t at) const noexcept {
    const auto distance = static_cast<std::int64_t>(at - first_ticks_);
    const auto later = static_cast<std::int64_t>(static_cast<double>(distance) * scale_);
    return first_time_ + static_cast<Nanoseconds>(later);
  }

 private:
  std::uint64_t first_ticks_;
  Nanoseconds first_time_;
  double scale_ = 1;
};

}  // namespace inject
