// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/base/time.h"

namespace inject {

/// Waits until every other thread of the process has slept, or has run for a while, since the call began: it
/// has then left whatever short piece of code it was in. (A grace period, as in read-copy-update.) A thread
/// that sleeps in the middle of that code is not noticed. False if it takes longer than `most` and this
/// thread has checked several times, or if nothing is known about the threads. Reads /proc and allocates: not
/// for hooks and callbacks.
bool wait_grace_period(Nanoseconds most) noexcept;

}  // namespace inject
