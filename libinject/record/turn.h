// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>

#include "libinject/base/clock.h"

namespace inject {

/// Takes a turn that threads keep for microseconds, unless they are preempted. False if it is not free within
/// a tenth of a second.
inline bool wait_for_turn(std::atomic<bool>& turn) noexcept {
  constexpr int kPauses = 100;
  for (int i = 0; i < kPauses; ++i) {
    if (!turn.exchange(true, std::memory_order_acquire)) return true;
    sleep_for(kMillisecond);
  }
  return false;
}

/// True if the value was raised.
inline bool raise_to(std::atomic<std::uint64_t>& greatest, std::uint64_t value) noexcept {
  std::uint64_t known = greatest.load(std::memory_order_relaxed);
  while (value > known) {
    if (greatest.compare_exchange_weak(known, value, std::memory_order_relaxed)) return true;
  }
  return false;
}

}  // namespace inject
