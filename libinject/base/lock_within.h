// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <mutex>

#include "libinject/base/clock.h"

namespace inject {

/// The lock, or one that owns nothing if it is not free within `most`. Counts pauses, not the clock: while
/// the whole process is stopped, nobody can release it. A pause takes some 80 us longer than requested: the
/// longer the wait has been, the longer the pauses are, so that their number stays small.
inline std::unique_lock<std::mutex> lock_within(std::mutex& mutex, Nanoseconds most) noexcept {
  std::unique_lock lock(mutex, std::try_to_lock);
  constexpr Nanoseconds kFirstPause = 100 * kMicrosecond;
  constexpr Nanoseconds kLongestPause = 10 * kMillisecond;
  constexpr Nanoseconds kShare = 16;  // of the wait so far
  for (Nanoseconds waited = 0; !lock.owns_lock() && waited < most;) {
    const Nanoseconds length =
        std::min(std::clamp(waited / kShare, kFirstPause, kLongestPause), most - waited);
    waited += sleep_for(length) ? length : kFirstPause;
    lock.try_lock();
  }
  return lock;
}

}  // namespace inject
