// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Files and signals in somebody else's process.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string_view>

namespace inject {

/// open(), close-on-exec, again on EINTR, and never as descriptor 0, 1 or 2: a program that was started
/// without them must find them closed, and what it prints must not end up in our files. -1 and errno on
/// failure.
int open_file(const char* path, int flags, mode_t mode = 0644) noexcept;

/// While it lives, a write by this thread that hits a closed pipe or RLIMIT_FSIZE is an error of that write,
/// not a signal to the program.
class QuietSignals {
 public:
  QuietSignals() noexcept;
  ~QuietSignals();
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

 private:
  sigset_t previous_;
  sigset_t ours_;  // to be taken back: not pending before
};

/// Looks whether the program was started with a stderr, before it can open anything else in its place.
void note_stderr() noexcept;

/// Writes all of `text`, without a signal; to a stderr that the program was started without, nothing.
void write_quietly(int descriptor, std::string_view text) noexcept;

}  // namespace inject
