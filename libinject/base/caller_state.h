// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <pthread.h>

#include <cerrno>

#include "libinject/base/floating_point.h"

namespace inject {

/// Saves what our code must not change on a thread of the program: errno, floating-point flags, and a pending
/// cancellation, which would otherwise take effect at a cancellation point inside our code (which is not the
/// program's, and must not be unwound). Also keeps the program's floating-point traps from our code. Create
/// one wherever a thread of the program enters code that waits, writes or allocates.
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
  FloatingPointDefaults floating_point_;
  int errno_;
  int cancel_state_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace inject
