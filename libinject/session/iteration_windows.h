// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libinject/base/mutex.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/session/iteration_tracker.h"
#include "libinject/session/iteration_trigger.h"
#include "libinject/session/session_state.h"

namespace inject {

struct SessionParts;

/// When to search for training iterations, and the windows that open and close with them. The tracker
/// (session/iteration_tracker.h) finds iterations, and the trigger decides which window follows; here both
/// are connected to the watch, which stops the program's thread at the right launch.
class IterationWindows {
 public:
  explicit IterationWindows(SessionParts& parts) : parts_(parts) {}

  /// For `iter:` and `auto`: searches in the hooks, or in CUPTI's callbacks if hooks would see no launch.
  void arm() noexcept INJECT_REQUIRES(session_mutex);
  /// `in_windows`: the source does not see what runs outside of windows.
  void start_search(SignSource source, bool in_windows = false) noexcept INJECT_REQUIRES(session_mutex);
  void stop_search() noexcept INJECT_REQUIRES(session_mutex);
  bool searching() const INJECT_REQUIRES(session_mutex) { return source_ != SignSource::kNone; }
  /// Searching in CUPTI's launch callbacks, which have to stay on for that.
  bool searching_in_callbacks() const INJECT_REQUIRES(session_mutex) {
    return source_ == SignSource::kCallbacks;
  }
  /// Searching so that a window can open at an iteration.
  bool searching_for_window() const noexcept INJECT_REQUIRES(session_mutex);
  /// After the last window: steps without CUPTI are still being timed, for a limited time.
  bool may_time_steps() const INJECT_REQUIRES(session_mutex);
  /// The program may have taken over (`auto`): then the search stops.
  void follow_trigger() noexcept INJECT_REQUIRES(session_mutex);
  /// CUPTI, in whose callbacks iterations were searched for, is being released.
  void on_callbacks_lost() INJECT_REQUIRES(session_mutex);

  // In windows of any other trigger, iterations are only told apart.
  void begin_window_search() noexcept INJECT_REQUIRES(session_mutex);
  void end_window_search() noexcept INJECT_REQUIRES(session_mutex);

  /// The window that is open or pending ends, whoever closes it.
  void on_window_end() noexcept INJECT_REQUIRES(session_mutex);
  /// Opens the window that is pending, of iterations or not.
  void begin_pending() INJECT_REQUIRES(session_mutex);
  /// The watch has counted `count` boundaries and reached one where a window opens, closes, or is about to.
  /// Called on the program's thread, before the launch that begins the iteration.
  void at_boundary(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept
      INJECT_EXCLUDES(session_mutex);

  // Called on our own thread.
  /// After each pass: takes over what the tracker has found.
  void update(const FoundIterations& found);
  /// Any thread.
  bool found() const noexcept { return any_found_.load(std::memory_order_relaxed); }
  void step() INJECT_REQUIRES(session_mutex);
  Nanoseconds next_wake(Nanoseconds time) const INJECT_REQUIRES(session_mutex);
  /// CUPTI is to be attached ahead of a window.
  bool wants_attachment() const INJECT_REQUIRES(session_mutex) { return attach_wanted_; }

  /// The process is exiting: processes the last signs. Releases session_mutex in between.
  void end() INJECT_REQUIRES(session_mutex);
  /// True if iterations timed after the last window are in no file yet.
  bool has_timed_after_window() const INJECT_REQUIRES(session_mutex);
  /// Typical duration of an iteration, 0 if none are known.
  Nanoseconds typical_duration() const INJECT_REQUIRES(session_mutex) { return known_.typical_duration; }
  /// Where signs come from, for run.json. Any thread.
  const char* source_name() const noexcept {
    return shown_source_.load() == SignSource::kHooks ? "hooks" : "callbacks";
  }
  /// Trigger::why_none(). Releases session_mutex in between, because the answer belongs to the pipeline.
  std::string why_none() INJECT_REQUIRES(session_mutex);

 private:
  struct Edge {
    bool opened;
    std::uint64_t count;
    std::uint32_t window;
  };

  void plan(std::uint64_t soonest) INJECT_REQUIRES(session_mutex);
  void stop_watch_at(std::uint64_t iteration) noexcept INJECT_REQUIRES(session_mutex);
  std::uint64_t number_of(std::uint64_t count) const INJECT_REQUIRES(session_mutex) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(count) + *offset_);
  }
  /// Number of the first iteration that has not begun.
  std::uint64_t next_number() const INJECT_REQUIRES(session_mutex);
  bool keep_timing() INJECT_REQUIRES(session_mutex);
  void try_callbacks() INJECT_REQUIRES(session_mutex);
  void warn_nothing_found() INJECT_REQUIRES(session_mutex);
  void look_for_frameworks() INJECT_REQUIRES(session_mutex);
  /// Whether watching PyTorch's failed allocations is still to be set up; may be, after a window; may be,
  /// now.
  bool is_to_watch_memory_errors() const;
  bool may_watch_after_window(Nanoseconds time) const INJECT_REQUIRES(session_mutex);
  bool may_watch_memory_errors(Nanoseconds time) const INJECT_REQUIRES(session_mutex);
  void watch_memory_errors() INJECT_REQUIRES(session_mutex);
  void end_overdue_naming() INJECT_REQUIRES(session_mutex);
  void renumber_window() INJECT_REQUIRES(session_mutex);
  /// A window of iterations is requested, or begins, at this time.
  void note_asked(Nanoseconds time) INJECT_REQUIRES(session_mutex);
  bool begin_naming(Nanoseconds time) INJECT_REQUIRES(session_mutex);
  void open_at_boundary(std::uint64_t count, Nanoseconds time, bool in_callback)
      INJECT_REQUIRES(session_mutex);
  void record_edges() INJECT_REQUIRES(session_mutex);
  /// The trigger of `iter:` and `auto`; called only for those.
  IterationTrigger& trigger() const;

  SessionParts& parts_;
  FoundIterations found_;  // used only by our own thread
  std::atomic<bool> any_found_{false};
  FoundIterations known_ INJECT_GUARDED_BY(session_mutex);               // a copy for all threads
  std::optional<std::int64_t> offset_ INJECT_GUARDED_BY(session_mutex);  // number minus the watch's count
  SignSource source_ INJECT_GUARDED_BY(session_mutex) = SignSource::kNone;
  std::atomic<SignSource> shown_source_{SignSource::kNone};  // the same, kept after the search is over
  Nanoseconds since_ INJECT_GUARDED_BY(session_mutex) = 0;
  Nanoseconds frameworks_sought_ INJECT_GUARDED_BY(session_mutex) = 0;
  std::uint64_t seen_changes_ INJECT_GUARDED_BY(session_mutex) = 0;
  bool tried_callbacks_ INJECT_GUARDED_BY(session_mutex) = false;
  bool callbacks_lost_ INJECT_GUARDED_BY(session_mutex) = false;
  bool window_search_ INJECT_GUARDED_BY(session_mutex) = false;  // the search is on only for the open window
  bool window_searched_ INJECT_GUARDED_BY(session_mutex) = false;  // it has been on for a window before
  bool attach_wanted_ INJECT_GUARDED_BY(session_mutex) = false;
  bool renumber_ INJECT_GUARDED_BY(session_mutex) =
      false;  // the iterations were found anew while a window of them was open
  // Iterations that ran without CUPTI up to the end of the last window.
  std::optional<std::uint64_t> timed_before_ INJECT_GUARDED_BY(session_mutex);
  Nanoseconds naming_since_ INJECT_GUARDED_BY(session_mutex) = 0;
  bool memory_errors_watched_ = false;  // used only by our thread
  Nanoseconds memory_errors_asked_ INJECT_GUARDED_BY(session_mutex) = 0;
  bool named_ INJECT_GUARDED_BY(session_mutex) = false;          // launches of an iteration have been named
  std::string late_ INJECT_GUARDED_BY(session_mutex);            // logged when the planned window opens
  std::uint64_t asked_at_ INJECT_GUARDED_BY(session_mutex) = 0;  // the watch's count at the request
  Nanoseconds asked_time_ INJECT_GUARDED_BY(session_mutex) = 0;
  bool asked_in_callback_ INJECT_GUARDED_BY(session_mutex) = false;
  // For the recording of the search:
  std::vector<Edge> edges_ INJECT_GUARDED_BY(session_mutex);
  std::uint32_t recorded_window_ INJECT_GUARDED_BY(session_mutex) = 0;  // whose begin is among them
};

}  // namespace inject
