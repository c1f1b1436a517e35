// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <string>

#include "libinject/base/mutex.h"
#include "libinject/base/time.h"
#include "libinject/model/run_info.h"
#include "libinject/session/pipeline.h"
#include "libinject/session/run_writer.h"
#include "libinject/session/session_state.h"

namespace inject {

struct SessionParts;

/// What follows the end of a window, on our own thread: activity is stopped and late records are collected;
/// then the window is settled, CUPTI detached and the files written. If a program brackets every iteration,
/// it reopens within a second: from its second window on, CUPTI stays attached across such gaps, and files
/// are written once a second.
class Collector {
 public:
  // A launch that began inside the window may not have reached CUPTI yet, because its thread may have been
  // preempted. Before activity is switched off, we wait for it, but at most this long (a copy may block for
  // longer).
  static constexpr Nanoseconds kLaunchReturns = 20 * kMillisecond;
  // The same for a thread inside cudaProfilerStop (Tracer::thread_inside); at exit, a launch's limit applies.
  static constexpr Nanoseconds kProfilerStopReturns = kSecond;
  // Records that have not arrived this long after the end of the last window are given up.
  static constexpr Nanoseconds kDeadline = 30 * kSecond;

  // Under ThreadSanitizer, which watches every access, ours and CUPTI's, work takes this many times as long.
#if defined(__SANITIZE_THREAD__)
  static constexpr Nanoseconds kExitPace = 10;
#else
  static constexpr Nanoseconds kExitPace = 1;
#endif
  static constexpr const char* kUnfinished =
      "the device has not finished what was launched in the last window: its records are missing";

  explicit Collector(SessionParts& parts) : parts_(parts) {}

  /// Sends everything that has arrived so far through the pipeline. `hold_signs`: Pipeline::Locked::pass().
  Pipeline::Outstanding pass(bool hold_signs = false) INJECT_EXCLUDES(session_mutex);
  /// While `window` is open: saves the contents of CUPTI's buffers in case the process is killed.
  void keep_records(std::uint32_t window) INJECT_EXCLUDES(session_mutex);
  /// After a pass during which `current` was open: collects, writes files, logs windows' state.
  void step(std::uint32_t current) INJECT_REQUIRES(session_mutex);
  Nanoseconds next_wake() const INJECT_REQUIRES(session_mutex);
  /// True if files are being put into the folder, or have been since the last step.
  bool writing() const INJECT_REQUIRES(session_mutex) {
    return writing_;
  }
  /// The files have all windows up to this one, with everything that belongs to them.
  std::uint32_t written_until() const INJECT_REQUIRES(session_mutex) {
    return written_until_;
  }
  /// Writes the last files. Any thread, once.
  void write_last(Pipeline::Locked& pipeline) INJECT_EXCLUDES(session_mutex);

  /// Adds what is kept outside the pipeline. Any thread, with the pipeline's lock.
  void complete_run_info(RunInfo& run);

 private:
  void write_last() INJECT_EXCLUDES(session_mutex);
  void log_open_window(std::uint32_t current) INJECT_REQUIRES(session_mutex);
  bool may_detach_owed() const INJECT_REQUIRES(session_mutex);
  bool has_context() INJECT_REQUIRES(session_mutex);
  void collect() INJECT_REQUIRES(session_mutex);
  bool stop_activity() INJECT_REQUIRES(session_mutex);
  enum class Late : std::uint8_t {
    kToCome,     ///< records are on their way, or another window has opened
    kDelivered,  ///< CUPTI has returned all its buffers
    kMissing,    ///< something has not arrived and is given up
  };
  Late take_late_records(Nanoseconds since) INJECT_REQUIRES(session_mutex);
  Nanoseconds leave_cupti(bool sampler_out, bool has_context) INJECT_REQUIRES(session_mutex);
  Nanoseconds detach(bool sampler_out, bool has_context) INJECT_REQUIRES(session_mutex);
  void write_settled() INJECT_REQUIRES(session_mutex);
  void write_meanwhile(std::uint32_t current) INJECT_REQUIRES(session_mutex);
  std::string files_are_in(const std::string& folder) const;
  bool reopened(Nanoseconds since) const INJECT_REQUIRES(session_mutex);
  Nanoseconds write_interval() const INJECT_REQUIRES(session_mutex);
  bool write_due() const INJECT_REQUIRES(session_mutex);
  /// `until`: the last window of which nothing is missing.
  void write_files(const char* state, std::uint32_t until) INJECT_REQUIRES(session_mutex);
  std::uint32_t settled_until() const INJECT_REQUIRES(session_mutex);
  bool prepare_files(const char* state) INJECT_EXCLUDES(session_mutex);
  void note_put() noexcept INJECT_EXCLUDES(session_mutex);
  void finish_files() INJECT_REQUIRES(session_mutex);

  SessionParts& parts_;
  Nanoseconds last_write_ INJECT_GUARDED_BY(session_mutex) = 0;
  Nanoseconds last_logged_ INJECT_GUARDED_BY(session_mutex) = 0;    // time of a line about a window
  std::uint32_t logged_open_ INJECT_GUARDED_BY(session_mutex) = 0;  // the latest window with such a line
  std::uint32_t logged_closed_ INJECT_GUARDED_BY(session_mutex) = 0;
  bool wrote_ INJECT_GUARDED_BY(session_mutex) = false;
  bool writing_ INJECT_GUARDED_BY(session_mutex) = false;
  bool put_ INJECT_GUARDED_BY(session_mutex) = false;  // the files being written are in the folder
  std::uint32_t written_until_ INJECT_GUARDED_BY(session_mutex) = 0;
  std::uint32_t files_until_ INJECT_GUARDED_BY(session_mutex) = 0;  // the same for files being written
  // The window to log as closed once files contain it: before those files are written, and while they are.
  std::uint32_t unsaid_ INJECT_GUARDED_BY(session_mutex) = 0;
  std::uint32_t to_say_ INJECT_GUARDED_BY(session_mutex) = 0;
  // Used only by our own thread:
  std::uint32_t kept_window_ = 0;
  Nanoseconds kept_at_ = 0;
  RunWriter::Prepared files_;  // owned by the file thread between write_files() and put_
};

}  // namespace inject
