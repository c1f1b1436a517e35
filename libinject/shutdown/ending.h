// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <condition_variable>

#include "libinject/base/mutex.h"
#include "libinject/config/options.h"
#include "libinject/model/records.h"

namespace inject {

class Session;

/// What follows once the last window has closed, or INJECT_TIMEOUT is over: INJECT_AFTER. On a thread of its
/// own, so that it comes to pass even where the session's is stuck in a flush behind a kernel that never
/// ends; there is none with the defaults. Never destroyed.
class Ending {
 public:
  /// `base`: CUDA's initialisation.
  Ending(const Options& options, Nanoseconds base) : options_(options), base_(base) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  /// `before_end`: called before this ends the process past its exit handlers.
  void start(Session& session, void (*before_end)() noexcept) noexcept;
  /// No window is open, and none will open any more. From any thread, with the session's lock.
  void note_last_window() noexcept;

 private:
  static void* entry(void* ending) noexcept;
  void run();
  /// True once the time is over, false after the last window, or if that was some time ago and is to be
  /// looked at again `soon`.
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
