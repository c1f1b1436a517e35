// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <pthread.h>

#include <cerrno>

namespace inject {

/// What our code must leave as it is on a thread of the program's: errno, and a pending cancellation,
/// which would otherwise strike at a cancellation point inside our own code (where the program never was, and
/// where nothing may be unwound). To be made wherever the program's thread enters code that waits, writes or
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
