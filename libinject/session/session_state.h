// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <condition_variable>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/base/log.h"
#include "libinject/base/mutex.h"
#include "libinject/base/time.h"

namespace inject {

/// Guards all decisions about windows and CUPTI's attachment. Held for milliseconds; up to 0.3 s if a thread
/// does not leave CUPTI while it is being released, and longer if one starts to create a context just then. A
/// process has one session, so this is global, and Clang's thread-safety analysis sees that its parts use the
/// same lock. Never take the pipeline's lock with this one held; the other way round is allowed.
extern Mutex session_mutex;

/// The progress of the run and of its current window.
struct SessionState {
  enum class Stage : std::uint8_t {
    kRunning,
    kEndingSearch,  ///< the process exits, or INJECT_AFTER acts; the last iteration signs are collected
    kEnding,        ///< the last records are collected, and the files written
    kEnded,
  };
  enum class Phase : std::uint8_t {
    kIdle,
    kPending,  ///< somebody has requested a window, and CUPTI is being attached for it
    kOpen,
    kNaming,  ///< it has ended; the launches of the iterations after it are named
  };

  /// Session::arm() has run. Before that our thread does nothing, and CUPTI is not attached.
  bool armed INJECT_GUARDED_BY(session_mutex) = false;
  Stage stage INJECT_GUARDED_BY(session_mutex) = Stage::kRunning;
  Phase phase INJECT_GUARDED_BY(session_mutex) = Phase::kIdle;
  std::uint32_t window INJECT_GUARDED_BY(session_mutex) = 0;  ///< the one that is open
  std::uint64_t requests INJECT_GUARDED_BY(session_mutex) =
      0;  ///< windows requested; the last is pending or open
  std::string pending_reason INJECT_GUARDED_BY(session_mutex);     ///< of the pending window
  bool pending_waited INJECT_GUARDED_BY(session_mutex) = false;    ///< the requesting thread waits for it
  bool pending_attached INJECT_GUARDED_BY(session_mutex) = false;  ///< CUPTI is attached for it
  std::uint32_t begun INJECT_GUARDED_BY(session_mutex) = 0;     ///< windows that were opened by the session
  bool concluding INJECT_GUARDED_BY(session_mutex) = false;     ///< a thread is in Session::conclude()
  bool attaching INJECT_GUARDED_BY(session_mutex) = false;      ///< our thread attaches CUPTI, unlocked
  bool stopping INJECT_GUARDED_BY(session_mutex) = false;       ///< our thread stops activity, unlocked
  bool stay_attached INJECT_GUARDED_BY(session_mutex) = false;  ///< the program reopens within a second
  bool collecting INJECT_GUARDED_BY(session_mutex) = false;     ///< windows have ended, records to come
  Nanoseconds ended_at INJECT_GUARDED_BY(session_mutex) = 0;    ///< when the last of them ended
  Nanoseconds collect_since INJECT_GUARDED_BY(session_mutex) = 0;  ///< when activity was stopped; 0: not yet
  bool settling INJECT_GUARDED_BY(session_mutex) = false;          ///< our thread adds up windows, unlocked
  bool unwritten INJECT_GUARDED_BY(session_mutex) = false;         ///< the files lack what has been settled
  std::uint32_t flushing INJECT_GUARDED_BY(session_mutex) = 0;     ///< threads waiting for the files

  std::condition_variable wake;     ///< for our thread
  std::condition_variable changed;  ///< from our thread: something that others wait for is done

  bool idle() const INJECT_REQUIRES(session_mutex) { return phase == Phase::kIdle; }
  bool pending() const INJECT_REQUIRES(session_mutex) { return phase == Phase::kPending; }
  bool open() const INJECT_REQUIRES(session_mutex) { return phase == Phase::kOpen; }
  bool naming() const INJECT_REQUIRES(session_mutex) { return phase == Phase::kNaming; }
  bool ending() const INJECT_REQUIRES(session_mutex) { return stage >= Stage::kEndingSearch; }
  bool ended() const INJECT_REQUIRES(session_mutex) { return stage == Stage::kEnded; }

  void set_pending(std::string reason) INJECT_REQUIRES(session_mutex) {
    pending_reason = std::move(reason);
    pending_waited = pending_attached = false;
    phase = Phase::kPending;
    ++requests;
  }
  /// True if the window that is pending, open or followed by naming is the one of this request. A thread that
  /// has waited has to check, because another thread may have ended that window and requested another.
  bool is_request(std::uint64_t request) const INJECT_REQUIRES(session_mutex) {
    return !idle() && requests == request;
  }
  void set_idle() INJECT_REQUIRES(session_mutex) {
    phase = Phase::kIdle;
    window = 0;
  }
  void set_open(std::uint32_t number) INJECT_REQUIRES(session_mutex) {
    phase = Phase::kOpen;
    window = number;
  }
  /// The records of what ended at `time` are to be collected.
  void collect_from(Nanoseconds time) INJECT_REQUIRES(session_mutex) {
    ended_at = time;
    collect_since = 0;
    collecting = true;
  }

  /// Writes the line when the lock is next released, so that no thread waits for a terminal with it held.
  /// Called by a thread that has the lock or takes it soon.
  void log(LogLevel level, std::string_view line) noexcept;
  void warn(std::string_view line) noexcept { log(LogLevel::kWarn, line); }
  void info(std::string_view line) noexcept { log(LogLevel::kInfo, line); }

  /// Waits for `wake` or `changed`, at most `most`; may return early. False on timeout.
  bool wait_wake(Nanoseconds most) noexcept INJECT_REQUIRES(session_mutex) { return wait(wake, most); }
  bool wait_changed(Nanoseconds most) noexcept INJECT_REQUIRES(session_mutex) { return wait(changed, most); }
  /// Waits until `done()`, at most `most`; returns the final value of done().
  template <typename Done>
  bool wait_changed(Nanoseconds most, Done done) noexcept INJECT_REQUIRES(session_mutex) {
    const Nanoseconds until = now() + most;
    for (Nanoseconds time = now(); !done() && time < until; time = now()) wait(changed, until - time);
    return done();
  }

 private:
  friend class SessionLock;
  friend class SessionUnlock;
  bool wait(std::condition_variable& condition, Nanoseconds most) noexcept INJECT_REQUIRES(session_mutex);
  std::vector<std::pair<LogLevel, std::string>> take_lines() noexcept;
  bool has_lines() noexcept;

  Mutex lines_mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_ INJECT_GUARDED_BY(lines_mutex_);
};

/// Holds session_mutex for its lifetime.
class INJECT_THREAD_ANNOTATION(scoped_lockable) SessionLock {
 public:
  explicit SessionLock(SessionState& state) INJECT_THREAD_ANNOTATION(acquire_capability(session_mutex));
  /// Takes over the lock that this thread holds.
  SessionLock(SessionState& state, std::adopt_lock_t) INJECT_REQUIRES(session_mutex) : state_(state) {}
  ~SessionLock() INJECT_THREAD_ANNOTATION(release_capability());
  SessionLock(const SessionLock&) = delete;
  SessionLock& operator=(const SessionLock&) = delete;

 private:
  SessionState& state_;
};

/// Releases session_mutex for its lifetime.
class INJECT_THREAD_ANNOTATION(scoped_lockable) SessionUnlock {
 public:
  explicit SessionUnlock(SessionState& state) INJECT_THREAD_ANNOTATION(release_capability(session_mutex));
  ~SessionUnlock() INJECT_THREAD_ANNOTATION(release_capability());
  SessionUnlock(const SessionUnlock&) = delete;
  SessionUnlock& operator=(const SessionUnlock&) = delete;
};

/// Tries for `most`, counted in pauses, not by the clock: a stopped process can't release the lock.
bool lock_session_within(Nanoseconds most) noexcept
    INJECT_THREAD_ANNOTATION(try_acquire_capability(true, session_mutex));
/// For a program thread: tries for a few seconds, because our thread may hold the lock while CUPTI hangs, but
/// only for milliseconds if another thread has waited in vain since the lock was last obtained. Inside one of
/// CUPTI's callbacks also only for milliseconds: CUPTI waits for its callbacks when it is being detached.
bool lock_session(bool in_callback) noexcept
    INJECT_THREAD_ANNOTATION(try_acquire_capability(true, session_mutex));

}  // namespace inject
