// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>

#include "libinject/base/clock.h"
#include "libinject/base/uint128.h"

namespace inject {

/// The CPU's own constant-rate counter: half the cost of the clock. If no such counter is known, the clock.
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

/// Converts ticks to times on CLOCK_MONOTONIC: a line through the last two readings of both. Never late: a
/// time taken with now() after ticks() is not before time() of these ticks.
class TickClock {
 public:
  TickClock() noexcept : first_(read()), last_(first_) {}

  /// Takes another reading. Between calls, time() is one fixed line.
  void calibrate() noexcept {
    const Reading reading = read();
    if (reading.ticks <= last_.ticks || reading.time <= last_.time) return;
    // Readings close together give an inaccurate line; between readings far apart, NTP changes its slope.
    if (last_.time - first_.time >= kApart) first_ = last_;
    last_ = reading;
    scale_ = static_cast<double>(last_.time - first_.time) / static_cast<double>(last_.ticks - first_.ticks);
  }

  /// Nanoseconds per tick; 0 as long as the readings are too close together.
  double period() const noexcept { return last_.time - first_.time < kApart ? 0 : scale_; }

  Nanoseconds time(std::uint64_t at) const noexcept {
    const auto distance = static_cast<std::int64_t>(at - last_.ticks);
    const auto later = static_cast<std::int64_t>(static_cast<double>(distance) * scale_);
    return last_.time + static_cast<Nanoseconds>(later);
  }

 private:
  static constexpr Nanoseconds kApart = kMillisecond;
  struct Reading {
    std::uint64_t ticks;
    Nanoseconds time;
  };
  // Reads the ticks after the time, so that no time is too late; uses the fastest of a few, because the
  // thread may be preempted in between.
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

/// The period of ticks; any thread may read it while another one sets it.
class TickPeriod {
 public:
  /// Uses a clock with two readings that are far enough apart; otherwise nothing changes.
  void set(const TickClock& clock) noexcept {
    if (const double period = clock.period(); period > 0)
      scaled_.store(static_cast<std::uint64_t>(period * kOne), std::memory_order_relaxed);
  }
  bool known() const noexcept { return scaled_.load(std::memory_order_relaxed) != 0; }
  /// 0 as long as the period is not known, and if the counter has gone backwards.
  Nanoseconds between(std::uint64_t begin, std::uint64_t end) const noexcept {
    if (end <= begin) return 0;
    return static_cast<Nanoseconds>(Uint128{end - begin} * scaled_.load(std::memory_order_relaxed) >> 32u);
  }

 private:
  static constexpr double kOne = 4294967296.0;
  std::atomic<std::uint64_t> scaled_{0};  // ns, with 32 fractional bits
};

}  // namespace inject
