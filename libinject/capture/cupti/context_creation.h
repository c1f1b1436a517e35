// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/base/time.h"

namespace inject {

/// Whether the calling thread may wait for a context that another one is creating: not in a callback, nor if
/// it may be the creating thread itself.
enum class ContextWait : bool { kNo, kMay };

/// Keeps the program's threads from creating a context while CUPTI's activity is switched on or off. A switch
/// in the middle of a creation, or of the first cuInit, corrupts that context: the program ends with a
/// segmentation fault in CUPTI once the context is created, or at the first launch in it (CUDA 13.0; JAX
/// and PyTorch). So creations in progress are waited for, and the callbacks of calls that create contexts
/// hold new ones, for kMaxHold at most.
class ContextHold {
 public:
  static constexpr Nanoseconds kMaxHold = kSecond;
  /// Longest wait for creations in progress: one context per device, one after the other.
  static constexpr Nanoseconds kMaxWait = 20 * kSecond;

  explicit ContextHold(ContextWait contexts) noexcept;
  ~ContextHold();
  ContextHold(const ContextHold&) = delete;
  ContextHold& operator=(const ContextHold&) = delete;

  /// Called when a thread enters or leaves a call that may create a context. Preserves errno.
  static void on_call(bool enter) noexcept;
  /// CUPTI's callbacks are about to start, or have stopped: for calls in progress, only one edge is seen.
  static void begin_callbacks() noexcept;
  static void end_callbacks() noexcept;
  /// In a forked child, where those threads do not exist.
  static void forget() noexcept;
  /// Returns once no thread is in such a call, or in cuInit or nvmlInit (wait_for_driver()). True if it had
  /// to wait.
  static bool wait_for_creations() noexcept;
};

}  // namespace inject
