// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/base/time.h"

namespace inject {

/// Waits until every other thread of the process has slept, or has run for a while, since the call began:
/// whatever short piece of code it was in then, it has left it. (Read-copy-update calls that a grace period.)
/// A thread that sleeps in the middle of that code goes unnoticed. False if it takes longer than `most` and
/// this thread has looked several times, or if nothing is known of the threads. Reads /proc and allocates:
/// not for hooks and callbacks.
bool wait_grace_period(Nanoseconds most) noexcept;

}  // namespace inject
