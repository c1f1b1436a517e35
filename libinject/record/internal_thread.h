// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// Starts a thread of ours, detached, with all signals blocked before it begins: a handler of the program's
/// must never run on it, and SIGPIPE or SIGXFSZ from our writes must become errors. 0, or what pthread_create
/// returned.
int start_internal_thread(void* (*run)(void*) noexcept, void* argument) noexcept;

/// What such a thread does first: it is named, and nothing that it does is recorded.
void enter_internal_thread() noexcept;

}  // namespace inject
