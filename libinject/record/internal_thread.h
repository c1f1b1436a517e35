// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// Starts a thread of ours, detached, with all signals blocked from the start: the program's signal handlers
/// must never run on it, and SIGPIPE or SIGXFSZ from our writes must become errors. Returns 0, or
/// pthread_create's error.
int start_internal_thread(void* (*run)(void*) noexcept, void* argument) noexcept;

/// Must be called first on such a thread: names it, excludes it from recording, and gives up a real-time
/// priority that it has inherited.
void enter_internal_thread() noexcept;

}  // namespace inject
