// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <string>

#include "libinject/base/mutex.h"
#include "libinject/base/time.h"
#include "libinject/capture/launch_place.h"
#include "libinject/session/session_state.h"
#include "libinject/session/trigger.h"

namespace inject {

struct SessionParts;

/// Opens windows on the requesting thread (a launch right after cudaProfilerStart must be seen), and closes
/// them: the requesting thread marks the edge, our own does the rest. Carries out what the trigger decides.
class WindowController {
 public:
  /// Where CUPTI is attached: on the calling thread (inside cuInit or a callback), or on ours while the
  /// caller waits, at most a second.
  enum class AttachOn : std::uint8_t { kCalling, kOurs };
  enum class Opened : std::uint8_t { kYes, kIsOpen, kByItself, kNoMore, kEnding, kFailed };

  // Longest time that a program thread waits for CUPTI to be attached. If launches go through our hooks,
  // attaching takes about 10 ms; with 16 threads that bypassed all hooks, CUPTI's own lock starved for 2.6 …
  // 61 s (H200, CUDA 13.0).
  static constexpr Nanoseconds kMaxOpening = kSecond;
  /// That, or less if our thread is known to be held up.
  static Nanoseconds most_opening();
  // A program that reopens within this time brackets its iterations: CUPTI stays attached across the gap.
  static constexpr Nanoseconds kStayAttached = kSecond;

  explicit WindowController(SessionParts& parts) : parts_(parts) {}

  // The trigger's events.
  void profiler_start(bool in_callback) noexcept INJECT_EXCLUDES(session_mutex);
  void profiler_stop(bool in_callback) noexcept INJECT_EXCLUDES(session_mutex);
  void ranges_changed() noexcept INJECT_EXCLUDES(session_mutex);
  void follow_ranges(AttachOn thread) noexcept INJECT_REQUIRES(session_mutex);
  void signalled() noexcept INJECT_EXCLUDES(session_mutex);
  /// Requests a window outside the trigger: opens it under the name `reason`, or returns why not.
  Opened request(const char* reason) noexcept INJECT_EXCLUDES(session_mutex);
  /// False if none was open.
  bool stop() noexcept INJECT_EXCLUDES(session_mutex);

  /// `at`: time of the edge, if it was taken earlier; 0: now.
  bool open(const std::string& reason, AttachOn thread, Nanoseconds at = 0) noexcept
      INJECT_REQUIRES(session_mutex);
  bool begin(const std::string& reason, Nanoseconds at = 0) INJECT_REQUIRES(session_mutex);
  void close(Nanoseconds at = 0) noexcept INJECT_REQUIRES(session_mutex);
  /// The open window ends at `at`. CUPTI stays as it is until close(): the launches that follow are named
  /// (record/code_places.h).
  void begin_naming(Nanoseconds at, LaunchNames names) noexcept INJECT_REQUIRES(session_mutex);

  bool may_open_another() const noexcept INJECT_REQUIRES(session_mutex);
  bool none_left() const noexcept INJECT_REQUIRES(session_mutex);
  /// True if the program, or injectctl, has requested a window outside the trigger.
  bool asked() const INJECT_REQUIRES(session_mutex) { return asked_; }
  /// Continues "… before a window opened".
  std::string why_none() INJECT_REQUIRES(session_mutex);

  // Called on our own thread.
  Nanoseconds next_wake() const INJECT_REQUIRES(session_mutex);
  /// Inside cuInit, where no other thread initialises NVML or creates a context, which attaching CUPTI would
  /// break: attaches CUPTI for a window that opens soon after, and opens the one that is to begin with
  /// cuInit.
  void step_initialization() noexcept INJECT_REQUIRES(session_mutex);
  void step_clock() INJECT_REQUIRES(session_mutex);
  /// Attaches CUPTI for a window that somebody waits for, and opens it.
  void attach_pending() INJECT_REQUIRES(session_mutex);
  /// Attaches CUPTI ahead of a window; one that is requested in between opens as soon as CUPTI is attached.
  void attach_ahead() INJECT_REQUIRES(session_mutex);
  /// The window for which CUPTI was attached early does not open: CUPTI is detached as after a window. If the
  /// window opens later, it attaches CUPTI again.
  void step_unused_attachment() noexcept INJECT_REQUIRES(session_mutex);
  bool attached_ahead() const INJECT_REQUIRES(session_mutex) { return attached_ahead_at_ != 0; }

 private:
  void end_window(Nanoseconds end) noexcept INJECT_REQUIRES(session_mutex);
  TriggerState state() const INJECT_REQUIRES(session_mutex);
  bool apply(TriggerAction action, const std::string& reason, AttachOn thread) noexcept
      INJECT_REQUIRES(session_mutex);
  void warn_stuck() noexcept;
  bool start_pending(std::string reason, AttachOn thread) INJECT_REQUIRES(session_mutex);
  void wait_pending(std::uint64_t request) INJECT_REQUIRES(session_mutex);
  void open_by_clock() INJECT_REQUIRES(session_mutex);
  void attach(Nanoseconds sampling) INJECT_REQUIRES(session_mutex);
  void wait_sampling(Nanoseconds most) INJECT_EXCLUDES(session_mutex);
  void prepare_first() INJECT_REQUIRES(session_mutex);
  bool reopens() const noexcept INJECT_REQUIRES(session_mutex);

  SessionParts& parts_;
  bool asked_ INJECT_GUARDED_BY(session_mutex) = false;
  std::uint64_t clock_request_ INJECT_GUARDED_BY(session_mutex) = 0;  // the latest request made by the clock
  bool clock_stopped_ INJECT_GUARDED_BY(session_mutex) = false;       // it was stopped before it had begun
  // When CUPTI was attached ahead of a window that has not opened yet; 0: it was not.
  Nanoseconds attached_ahead_at_ INJECT_GUARDED_BY(session_mutex) = 0;
};

}  // namespace inject
