// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "libinject/base/mutex.h"
#include "libinject/base/time.h"
#include "libinject/capture/hooks/observers.h"
#include "libinject/config/options.h"
#include "libinject/model/run_info.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/session/session_parts.h"

namespace inject {

class Session;

/// Callbacks to layers above the session; entry/ sets them before there is a session. Each may be
/// null.
struct SessionCompanions {
  /// The session has been made; no window is open.
  void (*made)(Session& session) noexcept = nullptr;
  /// The session waits for its first window, or has opened it.
  void (*armed)(Session& session) noexcept = nullptr;
  /// No window is open, and no further one will open. With session_mutex.
  void (*last_window_closed)() noexcept = nullptr;
  /// All files are written, and the process is exiting.
  void (*exiting)() noexcept = nullptr;
  /// In the child of a fork, where libinject no longer does anything.
  void (*forked)() noexcept = nullptr;
};
extern SessionCompanions session_companions;

/// One profiled process, from CUDA's initialisation to its end; read this first. Its parts are in
/// session_parts.h: the pipeline connects the sources (hooks, CUPTI, NVTX) to rings, statistics and files;
/// the trigger decides when windows open, the controller opens them, the collector does what follows their
/// end, and the arbiter takes turns with other users of CUPTI. A window's life:
///   pending → open → collecting (activity stopped, late records) → settled (CUPTI detached, files written)
///
/// Created once and leaked: hooks and callbacks may be called until the process is gone.
class Session {
 public:
  using Opened = WindowController::Opened;

  /// CUDA is being initialised, or the program requests a window: creates the session on the first call.
  /// `in_initialization`: inside the program's first cuInit.
  static Session* start(bool in_initialization = false) noexcept;
  /// The session, if it has been created, is not switched off, and belongs to this process; else null.
  static Session* get() noexcept;

  /// The program called the profiler API, through a hook or (`in_callback`) seen by CUPTI.
  void profiler_start(bool in_callback) noexcept { parts_.windows.profiler_start(in_callback); }
  void profiler_stop(bool in_callback) noexcept { parts_.windows.profiler_stop(in_callback); }
  /// Called by include/inject/inject.h. False if no window could be opened, or none was open.
  bool user_start() noexcept { return request_window("inject_start") == Opened::kYes; }
  bool user_stop() noexcept { return parts_.windows.stop(); }
  /// Waits until everything closed so far is on disk, ten seconds at most.
  bool user_flush() noexcept;
  /// Requests a window outside the trigger: opens it under the name `reason`, or returns why not.
  Opened request_window(const char* reason) noexcept { return parts_.windows.request(reason); }
  bool is_open() const noexcept { return open_window(current_window.load(std::memory_order_acquire)) != 0; }
  /// The program's own clients of CUPTI.
  ClientArbiter& arbiter() noexcept { return parts_.arbiter; }

  struct Status {
    const char* state = "";  ///< open, closing, waiting for a window, finished
    std::uint32_t window = 0;
    std::string reason;  ///< of the open window
    std::uint32_t opened = 0;
    std::string trigger;
    std::string folder;
    Losses losses;
    Nanoseconds base = 0;
  };
  Status status();

  /// The process is exiting: closes, collects for two seconds at most, writes. Runs once.
  void finish() noexcept;

  /// The last window has closed, or INJECT_TIMEOUT is over: closes, collects, writes, and opens no further
  /// window. `kSoon`: steps without CUPTI are still being timed; call again.
  enum class Conclusion : std::uint8_t { kDone, kNotYet, kSoon, kExiting };
  Conclusion conclude(bool timed_out) noexcept;
  const Options& options() const noexcept { return parts_.options; }
  /// Time of CUDA's initialisation.
  Nanoseconds base() const noexcept { return parts_.base; }

 private:
  explicit Session(Core& core);
  bool arm(bool in_initialization) noexcept;
  void end_search() noexcept INJECT_REQUIRES(session_mutex);
  void finish_locked_out(Nanoseconds begin) INJECT_EXCLUDES(session_mutex);
  bool begin_exit() INJECT_REQUIRES(session_mutex);
  void discard_folder() INJECT_REQUIRES(session_mutex);
  enum class Rest : std::uint8_t { kNothing, kSummary, kRecordsAndFiles };
  /// `begin`: when this thread started to wait.
  Rest end(Nanoseconds begin) INJECT_REQUIRES(session_mutex);
  std::string slow_folder(Nanoseconds waited) const;
  void write_rest(Rest rest, Nanoseconds begin) INJECT_EXCLUDES(session_mutex);
  void write_records_and_files() noexcept INJECT_EXCLUDES(session_mutex);
  static void* rest_entry(void* session) noexcept;

  static void on_exit_handler() noexcept;
  static void on_fork_child() noexcept;
  static void on_profiler_start() noexcept;
  static void on_profiler_stop() noexcept;
  static void on_iteration_stop(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept;
  static void on_ranges_changed() noexcept;
  static void on_signal() noexcept;

  const OwnProcess process_;
  SessionParts parts_;
  std::atomic<bool> rest_written_{false};
  std::atomic<bool> exit_locked_out_{false};
};

}  // namespace inject
