// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <time.h>

#include <mutex>

#include "libinject/base/time.h"

namespace inject {

/// The lock, or one that owns nothing if it is not free within `most`. Counts pauses, not the clock: while
/// the whole process stands still, nobody can release it.
inline std::unique_lock<std::mutex> lock_within(std::mutex& mutex, Nanoseconds most) noexcept {
  std::unique_lock lock(mutex, std::try_to_lock);
  constexpr Nanoseconds kPause = 100'000;
  const timespec pause{0, kPause};
  for (Nanoseconds waited = 0; !lock.owns_lock() && waited < most; waited += kPause) {
    nanosleep(&pause, nullptr);
    lock.try_lock();
  }
  return lock;
}

}  // namespace inject
