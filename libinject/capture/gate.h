// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>

#include "libinject/base/clock.h"

namespace inject {

/// The launch gate. CUPTI attaches and detaches under a lock that launching threads hold in turn: with eight
/// threads that launch without pause it starves for up to 3.4 s; with their launches held it needs 3 … 14 ms
/// (H200, CUDA 13.0). While a LaunchGate lives, hooks hold new launches (hooks/frame.cpp), for
/// kMaxHold at most, all of them together: attaching waits for running kernels, and one that waits for a
/// held launch would otherwise never end; nor must a program crawl from launch to launch until it does. It
/// improves latency and is not needed for correctness: launches that pass no hook are not held.
class LaunchGate {
 public:
  /// Longest time that the gate is closed.
  static constexpr Nanoseconds kMaxHold = 30'000'000;
  /// Given to calls that passed the gate before it closed.
  static constexpr Nanoseconds kInFlight = 300'000;

  /// `close` false: does nothing (the caller is inside a hooked call or a callback itself).
  explicit LaunchGate(bool close) noexcept;
  ~LaunchGate();
  LaunchGate(const LaunchGate&) = delete;
  LaunchGate& operator=(const LaunchGate&) = delete;

  void open() noexcept;

  /// Called by a hook that found kControlGate set: returns when the gate opens or the hold is over. Keeps
  /// errno.
  static void wait() noexcept;

  static std::uint64_t holds() noexcept;     ///< launches held so far
  static std::uint64_t timeouts() noexcept;  ///< of these, released by time
  static Nanoseconds held_for() noexcept;    ///< their waits' sum

 private:
  bool closed_ = false;
};

}  // namespace inject
