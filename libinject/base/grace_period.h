// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/base/time.h"

namespace inject {

enum class GracePeriod : std::uint8_t {
  kOver,
  kTooLong,  ///< a thread has not been seen to leave
  kUnknown,  ///< the threads can't be listed: /proc does not show them, or there is no memory
};

/// Waits until every other thread of the process has slept, or has run for a while, since the call began: it
/// has then left whatever short piece of code it was in. (A grace period, as in read-copy-update.) A thread
/// that sleeps in the middle of that code is not noticed. Given up if it takes longer than `most` and this
/// thread has checked several times. Reads /proc and allocates: not for hooks and callbacks.
GracePeriod wait_grace_period(Nanoseconds most) noexcept;

}  // namespace inject
