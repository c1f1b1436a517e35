// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// `launch:START+COUNT/EVERYxN`, decided launch by launch: exact whatever the number of threads and however
// short the windows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "libinject/base/time.h"

namespace inject {

/// Times of one kind of edge, of the latest `kPlaces` windows. Written by the launching threads, read by one
/// that may be late: a reader gets the time of the requested window, or none. A window keeps its slot until
/// the window `kPlaces` later arrives, and a thread that writes late never overwrites a later window's time.
class EdgeTimes {
 public:
  /// 1.3 s of windows at intervals of 20 us. A window's page is touched when the window comes.
  static constexpr std::size_t kPlaces = std::size_t{1} << 16;

  void write(std::uint32_t window, Nanoseconds time) noexcept {
    Place& place = places_[window % kPlaces];
    std::uint64_t owner = place.owner.load(std::memory_order_relaxed);
    // If another thread was preempted while writing the slot, this window has no time.
    if ((owner & kWriting) != 0 || owner >= owner_of(window) ||
        !place.owner.compare_exchange_strong(owner, owner_of(window) | kWriting, std::memory_order_acq_rel,
                                             std::memory_order_relaxed)) {
      return;
    }
    // A reader of this time also sees the slot being written, and does not read an owner to which it does not
    // belong.
    place.time.store(time, std::memory_order_release);
    place.owner.store(owner_of(window), std::memory_order_release);
  }

  /// 0: not available (yet, or any more).
  Nanoseconds read(std::uint32_t window) const noexcept {
    const Place& place = places_[window % kPlaces];
    if (place.owner.load(std::memory_order_acquire) != owner_of(window)) return 0;
    const Nanoseconds time = place.time.load(std::memory_order_acquire);
    return place.owner.load(std::memory_order_relaxed) == owner_of(window) ? time : 0;
  }

 private:
  static constexpr std::uint64_t kWriting = 1;
  static constexpr std::uint64_t owner_of(std::uint32_t window) { return std::uint64_t{window} << 1; }

  struct Place {
    std::atomic<std::uint64_t> owner{0};  // twice the window, and kWriting
    std::atomic<Nanoseconds> time{0};
  };
  Place places_[kPlaces];
};

/// Counts launches. Launch n lies in window (n - start) / every + 1 if the remainder is below `length`.
struct LaunchTrigger {
  struct Launch {
    std::uint32_t window = 0;  ///< in which it lies, 0 if none
    std::uint32_t opens = 0;   ///< whose first launch it is
    std::uint32_t closes = 0;  ///< after which it is the first launch
    Nanoseconds time = 0;      ///< of that edge
  };

  std::atomic<bool> counting{false};
  // Set before `counting`, constant after it.
  std::uint64_t start = 0;
  std::uint64_t length = 0;
  std::uint64_t every = 0;
  std::uint64_t most_windows = 0;
  std::atomic<std::uint64_t> count{0};
  EdgeTimes opened;  ///< time of the window's first launch
  EdgeTimes closed;  ///< time of the first launch after its last

  Launch launch(std::uint64_t number) const noexcept {
    Launch launch;
    if (number < start) return launch;
    const std::uint64_t index = every == 0 ? 0 : (number - start) / every;
    const std::uint64_t offset = number - start - index * every;
    const auto window = static_cast<std::uint32_t>(index + 1);
    // The previous window, if this one follows it without a launch in between.
    if (offset == 0 && index != 0 && length == every && index <= most_windows)
      launch.closes = static_cast<std::uint32_t>(index);
    if (index >= most_windows) return launch;
    if (offset < length) launch.window = window;
    if (offset == 0) launch.opens = window;
    if (offset == length) launch.closes = window;
    return launch;
  }

  /// Counts one more launch. The time of an edge is taken between the previous launch and this one, and no
  /// other thread can count in between: edges are ordered as their launches, whichever threads make them.
  template <typename Clock>
  Launch next(Clock clock) noexcept {
    std::uint64_t number = count.load(std::memory_order_acquire);
    for (;;) {
      Launch one = launch(number);
      if (one.opens != 0 || one.closes != 0) one.time = clock();
      if (!count.compare_exchange_weak(number, number + 1, std::memory_order_seq_cst,
                                       std::memory_order_acquire)) {
        continue;
      }
      if (one.closes != 0) closed.write(one.closes, one.time);
      if (one.opens != 0) opened.write(one.opens, one.time);
      return one;
    }
  }

  /// Number of windows whose first launch has been counted.
  std::uint32_t windows_begun() const noexcept {
    const std::uint64_t launches = count.load(std::memory_order_seq_cst);
    if (launches <= start) return 0;
    const std::uint64_t index = every == 0 ? 0 : (launches - 1 - start) / every;
    return static_cast<std::uint32_t>(index < most_windows ? index + 1 : most_windows);
  }

  /// True if the first launch after this window has been counted.
  bool window_over(std::uint32_t window) const noexcept {
    return count.load(std::memory_order_seq_cst) > start + (window - std::uint64_t{1}) * every + length;
  }
};

}  // namespace inject
