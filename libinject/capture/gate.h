// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>

#include "libinject/base/clock.h"

namespace inject {

/// The launch gate. CUPTI attaches and detaches under a lock that launching threads hold in turn: with eight
/// threads that launch without pause it starves for up to 3.4 s; with their launches held it needs 3 … 14 ms
/// (H200, CUDA 13.0). While a LaunchGate exists, hooks hold new launches (hooks/frame.cpp), for at most
/// kMaxHold in total: attaching waits for running kernels, and if one of those waits for a held launch, it
/// would otherwise never end; nor may a program crawl from launch to launch until attaching ends. The gate
/// improves latency and is not needed for correctness: launches that pass no hook are not held.
class LaunchGate {
 public:
  /// Longest time that the gate is closed.
  static constexpr Nanoseconds kMaxHold = 30 * kMillisecond;
  /// Time allowed for calls that passed the gate before it closed.
  static constexpr Nanoseconds kInFlight = 300 * kMicrosecond;

  /// If `close` is false, does nothing (the caller is inside a hooked call or a callback itself).
  explicit LaunchGate(bool close) noexcept;
  ~LaunchGate();
  LaunchGate(const LaunchGate&) = delete;
  LaunchGate& operator=(const LaunchGate&) = delete;

  /// Called by a hook that found kControlGate set: returns when the gate opens or the hold time is over.
  /// Preserves errno.
  static void wait() noexcept;

  static std::uint64_t holds() noexcept;   ///< launches held so far
  static Nanoseconds held_for() noexcept;  ///< total time that they waited

 private:
  const bool closed_;
};

}  // namespace inject
