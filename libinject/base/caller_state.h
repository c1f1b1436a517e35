// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <pthread.h>

#include <cerrno>

namespace inject {

/// Saves what our code must not change on a thread of the program: errno, and a pending cancellation,
/// which would otherwise take effect at a cancellation point inside our code (which is not the program's, and
/// must not be unwound). Create one wherever a thread of the program enters code that waits, writes or
/// allocates.
class CallerState {
 public:
  CallerState() noexcept : errno_(errno) { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_); }
  ~CallerState() {
    pthread_setcancelstate(cancel_state_, nullptr);
    errno = errno_;
  }
  CallerState(const CallerState&) = delete;
  CallerState& operator=(const CallerState&) = delete;

 private:
  int errno_;
  int cancel_state_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace inject
