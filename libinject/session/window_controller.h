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

/// Opens windows on the thread that asks (a launch right after cudaProfilerStart must be seen), and closes
/// them: the asking thread marks the edge, our own does the rest. What the trigger decides is done here.
class WindowController {
 public:
  /// Where CUPTI is attached: on the calling thread (inside cuInit or a callback), or on ours while the
  /// calling one waits, a second at most.
  enum class AttachOn : std::uint8_t { kCalling, kOurs };
  enum class Opened : std::uint8_t { kYes, kIsOpen, kByItself, kNoMore, kEnding, kFailed };

  // Longest time that a program's thread waits for CUPTI to be attached. If launches go through our hooks, it
  // takes about 10 ms; with 16 threads that bypassed all hooks, CUPTI's own lock starved for 2.6 … 61 s
  // (H200, CUDA 13.0).
  static constexpr Nanoseconds kMaxOpening = 1'000'000'000;
  /// … and less where it is known that our thread is held up.
  static Nanoseconds most_opening();
  // A program that reopens within this time brackets its iterations: CUPTI stays attached across the gap.
  static constexpr Nanoseconds kStayAttached = 1'000'000'000;

  explicit WindowController(SessionParts& parts) : parts_(parts) {}

  // The trigger's events.
  void profiler_start(bool in_callback) noexcept INJECT_EXCLUDES(session_mutex);
  void profiler_stop(bool in_callback) noexcept INJECT_EXCLUDES(session_mutex);
  void ranges_changed() noexcept INJECT_EXCLUDES(session_mutex);
  void follow_ranges(AttachOn thread) noexcept INJECT_REQUIRES(session_mutex);
  void signalled() noexcept INJECT_EXCLUDES(session_mutex);
  /// For a window that somebody asks for outside the trigger: opened under the name `reason`, or why not.
  Opened request(const char* reason) noexcept INJECT_EXCLUDES(session_mutex);
  /// False if none was open.
  bool stop() noexcept INJECT_EXCLUDES(session_mutex);

  /// `at`: the edge's time, where it was taken before; 0 is now.
  bool open(const std::string& reason, AttachOn thread, Nanoseconds at = 0) noexcept
      INJECT_REQUIRES(session_mutex);
  bool begin(const std::string& reason, Nanoseconds at = 0) INJECT_REQUIRES(session_mutex);
  void close(Nanoseconds at = 0) noexcept INJECT_REQUIRES(session_mutex);
  /// The window that is open ends there. CUPTI stays as it is until close(): the launches that follow are
  /// named (record/code_places.h).
  void begin_naming(Nanoseconds at, LaunchNames names) noexcept INJECT_REQUIRES(session_mutex);

  bool may_open_another() const noexcept INJECT_REQUIRES(session_mutex);
  bool none_left() const noexcept INJECT_REQUIRES(session_mutex);
  /// The program, or injectctl, has asked for a window outside the trigger.
  bool asked() const INJECT_REQUIRES(session_mutex) { return asked_; }
  /// Continues "… before a window opened".
  std::string why_none() INJECT_REQUIRES(session_mutex);

  // Our own thread's.
  Nanoseconds next_wake() const INJECT_REQUIRES(session_mutex);
  /// Inside cuInit, where no other thread creates a context, which attaching CUPTI would spoil, or
  /// initialises NVML: attaches CUPTI for a window that opens soon after, and opens the one that is to begin
  /// with cuInit.
  void step_initialization() noexcept INJECT_REQUIRES(session_mutex);
  void step_clock() INJECT_REQUIRES(session_mutex);
  /// Attaches CUPTI for a window that somebody waits for, and opens it.
  void attach_pending() INJECT_REQUIRES(session_mutex);
  /// … ahead of one; one that is asked for meanwhile opens as soon as CUPTI is attached.
  void attach_ahead() INJECT_REQUIRES(session_mutex);
  /// The window for which CUPTI was attached early does not open: CUPTI is detached as after a window. If one
  /// does open later, it attaches CUPTI again.
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
  std::uint64_t clock_request_ INJECT_GUARDED_BY(session_mutex) = 0;  // the latest that the clock has made …
  bool clock_stopped_ INJECT_GUARDED_BY(session_mutex) = false;       // … was stopped before it had begun
  // When CUPTI was attached ahead of a window that has not opened yet; 0: it was not.
  Nanoseconds attached_ahead_at_ INJECT_GUARDED_BY(session_mutex) = 0;
};

}  // namespace inject
