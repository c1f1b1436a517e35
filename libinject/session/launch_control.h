// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string>

#include "libinject/base/mutex.h"
#include "libinject/session/launch_windows.h"
#include "libinject/session/schedule.h"
#include "libinject/session/session_state.h"

namespace inject {

struct SessionParts;

/// `launch:`, whose windows the launch callback opens and closes by itself (record/launch_trigger.h): keeps
/// CUPTI's activity on around them, and enters them into the log.
class LaunchControl {
 public:
  explicit LaunchControl(SessionParts& parts);

  /// Attaches CUPTI and starts to count. False if it can't be attached.
  bool arm() noexcept INJECT_REQUIRES(session_mutex);
  bool armed() const INJECT_REQUIRES(session_mutex) { return armed_; }
  void step() INJECT_REQUIRES(session_mutex);
  /// Stops counting: the window that is open ends.
  void end() INJECT_REQUIRES(session_mutex);

  /// Enters new edges into the log. Any thread.
  void note();

 private:
  bool all_noted();
  void tell_host_reader() INJECT_REQUIRES(windows_mutex_);

  SessionParts& parts_;
  Schedule schedule_;
  bool armed_ INJECT_GUARDED_BY(session_mutex) = false;
  Mutex windows_mutex_;  // innermost lock
  LaunchWindows windows_ INJECT_GUARDED_BY(windows_mutex_);
  // The window whose edges are reported to the host reader next, and whether its begin has been.
  std::uint32_t host_window_ INJECT_GUARDED_BY(windows_mutex_) = 1;
  bool host_told_ INJECT_GUARDED_BY(windows_mutex_) = false;
};

}  // namespace inject
