// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <condition_variable>

#include "libinject/base/mutex.h"
#include "libinject/base/time.h"
#include "libinject/config/options.h"

namespace inject {

class Session;

/// INJECT_AFTER: what follows once the last window has closed, or INJECT_TIMEOUT is over. On its own thread,
/// so that it happens even if the session's is stuck in a flush behind a kernel that never ends; with the
/// defaults, there is no such thread. Never destroyed.
class ProcessTerminator {
 public:
  /// `base`: time of CUDA's initialisation.
  ProcessTerminator(const Options& options, Nanoseconds base) : options_(options), base_(base) {}
  ProcessTerminator(const ProcessTerminator&) = delete;
  ProcessTerminator& operator=(const ProcessTerminator&) = delete;

  /// `before_end`: called before this ends the process without its exit handlers.
  void start(Session& session, void (*before_end)() noexcept) noexcept;
  /// No window is open, and none will open any more. Any thread, with the session's lock.
  void note_last_window() noexcept;

 private:
  static void* entry(void* terminator) noexcept;
  void run();
  /// True on timeout, false after the last window, or if that was some time ago and is to be checked again
  /// `soon`.
  bool wait(bool soon);
  void act(AfterAction action, bool timed_out);
  void wait_for_other_ranks();

  const Options& options_;
  const Nanoseconds base_;
  Session* session_ = nullptr;
  void (*before_end_)() noexcept = nullptr;
  Mutex mutex_;
  std::condition_variable wake_;
  bool last_window_closed_ INJECT_GUARDED_BY(mutex_) = false;
};

}  // namespace inject
