// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/base/mutex.h"
#include "libinject/base/time.h"
#include "libinject/session/session_state.h"

namespace inject {

struct SessionParts;

/// Our own thread, which exists while there is something to do. step() lists its work in order.
class Worker {
 public:
  explicit Worker(SessionParts& parts) : parts_(parts) {}

  /// Starts the thread if there is none. False if it can't be started, which is logged once.
  bool ensure() noexcept INJECT_REQUIRES(session_mutex);
  bool running() const INJECT_REQUIRES(session_mutex) { return running_; }

 private:
  static void* entry(void* worker) noexcept;
  void work();
  void give_up() noexcept;
  Nanoseconds next_wake() const INJECT_REQUIRES(session_mutex);
  void step() INJECT_REQUIRES(session_mutex);

  SessionParts& parts_;
  bool running_ INJECT_GUARDED_BY(session_mutex) = false;
};

}  // namespace inject
