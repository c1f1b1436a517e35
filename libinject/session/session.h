// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libinject/capture/hooks/observers.h"
#include "libinject/model/run_info.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/session/cupti_attachment.h"
#include "libinject/session/device_reader.h"
#include "libinject/session/iteration_planner.h"
#include "libinject/session/launch_windows.h"
#include "libinject/session/occurrences.h"
#include "libinject/session/once_log.h"
#include "libinject/session/pipeline.h"
#include "libinject/session/schedule.h"

namespace inject {

class Session;

/// What goes along with a session and stands above it; entry/ fills it in before there is one. Each may be
/// null.
struct SessionCompanions {
  /// The session has been made; no window is open.
  void (*made)(Session& session) noexcept = nullptr;
  /// It waits for its first window, or has opened it.
  void (*armed)(Session& session) noexcept = nullptr;
  /// No window is open, and none will open any more. With the session's lock.
  void (*last_window_closed)() noexcept = nullptr;
  /// All files are written, and the process exits.
  void (*exiting)() noexcept = nullptr;
  /// In the child of a fork, where there is nothing of us any more.
  void (*forked)() noexcept = nullptr;
};
extern SessionCompanions session_companions;

/// One profiled process, from CUDA's initialisation to its end; read this first. Wires sources (hooks, CUPTI,
/// NVTX), rings, statistics and output, and decides when the sources are on.
///
/// Windows open on the thread that asks (a launch right after cudaProfilerStart must be seen) and close on
/// our own: the asking thread only marks the edge. A window's life:
///   open → closing (activity stopped, late records collected) → settled (CUPTI detached, files written)
/// A program that brackets every iteration reopens within a second; from its second window on CUPTI stays
/// attached across such gaps, and files are written once a second.
///
/// Two locks: `mutex_` guards the state of windows and of CUPTI's attachment and is held for milliseconds at
/// most; the pipeline has its own, which is never taken with `mutex_` held, but the other way round.
///
/// Made once and leaked: hooks and callbacks may come until the process is gone.
class Session {
 public:
  /// CUDA is being initialised, or the program asks for a window: makes the session on the first call.
  static Session* start() noexcept;
  /// The session, if it has been made, is not switched off and this is the process that made it.
  static Session* get() noexcept;

  /// The program called the profiler API, through a hook or (`in_callback`) seen by CUPTI.
  void profiler_start(bool in_callback) noexcept;
  void profiler_stop(bool in_callback) noexcept;

  /// NVTX ranges that open windows have opened or closed (NvtxTrigger::open_ranges).
  void ranges_changed() noexcept;
  /// The signal that toggles windows came; on our own thread.
  void signalled() noexcept;

  /// include/inject/inject.h. False if no window could be opened, or none was open.
  bool user_start() noexcept;
  bool user_stop() noexcept;
  /// Waits until what is closed so far is on disk, ten seconds at most.
  bool user_flush() noexcept;
  /// For a window that somebody asks for outside the trigger: opened under the name `reason`, or why not.
  enum class Opened : std::uint8_t { kYes, kIsOpen, kByItself, kNoMore, kEnding, kFailed };
  Opened request_window(const char* reason) noexcept;
  bool is_open() const noexcept { return current_window.load(std::memory_order_acquire) != 0; }

  /// The watch has counted `count` boundaries (record/iteration_watch.h): where a window opens or closes, or
  /// is about to.
  void iteration_stop(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept;

  /// A client of the program's is about to take CUPTI, or part of it: closes the window that is open,
  /// collects and gives CUPTI up, within seconds, mostly milliseconds (session_cupti.cpp).
  void foreign_call(ForeignCall call) noexcept;
  /// The program has finalized CUPTI, or could not.
  void foreign_finalized(bool done) noexcept;
  /// It is done with something; `for_good`: with all.
  void foreign_left(bool for_good) noexcept;
  /// The program is about to initialise CUPTI's profiler itself, or to end that.
  void foreign_profiler(bool initialize) noexcept;

  struct Status {
    const char* state = "";  ///< open, closing, waiting for a window, finished
    std::uint32_t window = 0;
    std::string reason;  ///< of the window that is open
    std::uint32_t opened = 0;
    std::string trigger;
    std::string folder;
    Losses losses;
    Nanoseconds base = 0;
  };
  Status status();

  /// The process is exiting: closes, collects for two seconds at most, writes. Runs once.
  void finish() noexcept;

  /// The last window has closed, or INJECT_TIMEOUT is over: closes, collects, writes, and opens no window
  /// after that.
  enum class Conclusion : std::uint8_t { kDone, kNotYet, kExiting };
  Conclusion conclude(bool timed_out) noexcept;
  const Options& options() const noexcept { return options_; }
  /// CUDA's initialisation.
  Nanoseconds base() const noexcept { return base_; }

 private:
  explicit Session(Core& core);
  bool arm() noexcept;

  std::unique_lock<std::mutex> lock_in(bool in_callback) noexcept;
  std::unique_lock<std::mutex> lock_within(Nanoseconds wait) noexcept;

  // Windows. All with mutex_ held.
  /// Where CUPTI is attached: on the calling thread (inside cuInit or a callback), or on ours while the
  /// calling one waits, a second at most.
  enum class AttachOn : std::uint8_t { kCalling, kOurs };
  /// `at`: the edge's time, where it was taken before; 0 is now.
  bool open_window(std::unique_lock<std::mutex>& lock, const std::string& reason, AttachOn thread,
                   Nanoseconds at = 0) noexcept;
  bool begin_window(const std::string& reason, Nanoseconds at = 0);
  void close_window(Nanoseconds at = 0) noexcept;
  void follow_ranges(std::unique_lock<std::mutex>& lock, AttachOn thread) noexcept;
  bool may_open_another() const noexcept;
  bool no_window_left() const noexcept;
  std::string why_no_window(std::unique_lock<std::mutex>& lock);

  // CUPTI (session_cupti.cpp).
  bool raise_tracer(TracerLevel level, bool may_gate) noexcept;
  bool may_attach() const noexcept;
  bool detach_tracer(bool may_gate, bool sampler_out) noexcept;
  void wait_sampling(Nanoseconds most);
  void attach_wanted(std::unique_lock<std::mutex>& lock);
  void attach_unlocked(std::unique_lock<std::mutex>& lock, Nanoseconds sampling);
  bool stop_sampler_unlocked(std::unique_lock<std::mutex>& lock) noexcept;
  void yield_cupti(std::unique_lock<std::mutex>& lock, ForeignCall call);
  void step_yield(std::unique_lock<std::mutex>& lock);
  void step_resume(std::unique_lock<std::mutex>& lock);

  // Our own thread.
  bool ensure_worker() noexcept;
  static void* worker_entry(void* session) noexcept;
  void work();
  void give_up() noexcept;
  void step(std::unique_lock<std::mutex>& lock);
  void step_schedule(std::unique_lock<std::mutex>& lock);
  void step_launch_trigger();
  void note_launch_windows();
  void end_launch_windows();
  bool launch_windows_noted();
  void collect(std::unique_lock<std::mutex>& lock);
  /// `hold_signs`: what they tell of iterations waits, and nothing waits for it.
  Pipeline::Outstanding pass(bool hold_signs = false);
  Nanoseconds time_lead() const noexcept;
  bool timed() const noexcept;
  Nanoseconds next_wake() const;
  void end(std::unique_lock<std::mutex>& lock);

  // Iterations (session_iterations.cpp).
  bool searching_for_window() const noexcept;
  void arm_search() noexcept;
  void start_search(SignSource source) noexcept;
  void stop_search() noexcept;
  void begin_window_search() noexcept;
  void end_window_search() noexcept;
  void step_search(std::unique_lock<std::mutex>& lock);
  void plan_iterations(std::uint64_t soonest);
  void stop_watch_at(std::uint64_t iteration) noexcept;
  void note_iteration_edges(std::unique_lock<std::mutex>& lock);
  void renumber_window();
  void begin_wanted_window();
  std::string iterations_reason(std::uint64_t first) const;
  void end_iteration_window() noexcept;
  void step_lead() noexcept;
  void attach_lead(std::unique_lock<std::mutex>& lock);
  void end_search(std::unique_lock<std::mutex>& lock);
  std::string why_no_iterations(std::unique_lock<std::mutex>& lock);

  // Output.
  /// From one writing of the files to the next.
  Nanoseconds write_interval() const noexcept;
  void write_files(const char* state);
  void complete_run_info(RunInfo& run);
  void keep_records(std::uint32_t window);  // our own thread, in open windows
  void final_output();

  // Longest time that a program's thread waits for CUPTI to be attached. With launches that pass our hooks it
  // takes some 10 ms; with 16 threads that launch past every hook CUPTI's own lock starved for 2.6 … 61 s
  // (H200, CUDA 13.0).
  static constexpr Nanoseconds kMaxOpening = 1'000'000'000;
  // A program that reopens within this time brackets its iterations: CUPTI stays attached across the gap.
  static constexpr Nanoseconds kStayAttached = 1'000'000'000;
  // A launch that began inside the window may not have come to where CUPTI takes note of it: its thread may
  // have lost its processor in between. It is waited for, this long at most (a copy may block for longer),
  // before activity is switched off.
  static constexpr Nanoseconds kLaunchReturns = 20'000'000;

  static void on_exit_handler() noexcept;
  static void on_fork_child() noexcept;

  Core& core_;
  const Options& options_;
  const Nanoseconds base_;
  const std::uint64_t base_utc_;
  const int pid_;

  OnceLog once_;
  CuptiAttachment cupti_;
  // The same, for short.
  ActivityBuffers& buffers_{cupti_.buffers()};
  Tracer& tracer_{cupti_.tracer()};
  PmSampler& sampler_{cupti_.sampler()};
  WindowLog windows_;
  DeviceReader device_reader_;
  Pipeline pipeline_;
  std::uint32_t records_window_ = 0;  // our own thread's, like the next one
  Nanoseconds records_kept_ = 0;
  Schedule schedule_;
  Occurrences occurrences_;
  SignalCount signal_count_;
  const std::string trigger_text_;
  std::uint32_t range_window_ = 0;  // the window that NVTX ranges opened, or wait for

  mutable std::mutex mutex_;
  std::condition_variable wake_;     // for our own thread
  std::condition_variable changed_;  // from our own thread: a collection or a write is done
  bool worker_running_ = false;
  bool finishing_ = false;             // the process is exiting
  bool finished_ = false;              // … and everything is written
  bool ending_search_ = false;         // … but for what the last launches tell of iterations
  bool concluding_ = false;            // our own thread does the same for INJECT_AFTER: no window opens
  bool closing_ = false;               // windows have ended whose records are not all in
  bool stay_attached_ = false;         // the program reopens within a second
  bool api_called_ = false;            // the program drives the windows (auto)
  bool watch_profiler_calls_ = false;  // no hook sees the profiler API: CUPTI has to
  // A client of the program's waits for us to give CUPTI up …
  std::atomic<bool> yield_wanted_{false};
  Nanoseconds yield_since_ = 0;
  bool yield_finalizes_ = true;  // … but not where it is about to finalize it
  bool callbacks_lost_ = false;  // … and iterations were looked for in its callbacks
  bool resume_always_ = false;   // … and the window that it ended was to last always
  Nanoseconds resume_at_ = 0;    // we take our turn then; 0: there is nothing to resume
  bool launch_armed_ = false;
  bool wanted_ = false;     // a thread waits for a window
  bool attaching_ = false;  // our own thread attaches CUPTI, with mutex_ released
  std::string wanted_reason_;
  std::uint32_t open_ = 0;  // window that is open now
  std::uint32_t opened_total_ = 0;
  Nanoseconds last_stop_ = 0;
  Nanoseconds collect_since_ = 0;
  Nanoseconds last_said_ = 0;    // a line about a window
  std::uint32_t said_open_ = 0;  // the latest window that was said to be open
  std::uint32_t said_closed_ = 0;

  // Iterations, with mutex_ held but for what is said.
  struct IterationEdge {
    bool opened;
    std::uint64_t count;
    std::uint32_t window;
  };
  FoundIterations found_;  // our own thread's
  FoundIterations known_;  // a copy that whoever has mutex_ may read
  SignSource search_source_ = SignSource::kNone;
  std::atomic<SignSource> searched_source_{SignSource::kNone};  // the same, but for when it is over
  Nanoseconds search_since_ = 0;
  bool search_over_ = false;  // no further window is to be found
  bool tried_callbacks_ = false;
  bool window_search_ = false;     // on for the window that is open, no longer
  bool window_searched_ = false;   // it has been before
  bool iteration_window_ = false;  // the window that is open closes at a boundary
  bool lead_wanted_ = false;
  Nanoseconds lead_since_ = 0;       // CUPTI has been attached ahead of a window which has not opened yet
  std::mutex launch_windows_mutex_;  // innermost
  LaunchWindows launch_windows_;     // launch_windows_mutex_
  Nanoseconds attached_for_ = 0;     // `time:`: begin + 1 of the window that CUPTI was attached for
  std::string late_;                 // what is said when the window opens that has been planned
  std::uint64_t said_changes_ = 0;
  std::optional<std::int64_t> iteration_offset_;
  std::uint64_t open_at_ = IterationWatch::kNever;  // iterations
  std::uint64_t close_at_ = IterationWatch::kNever;
  std::uint64_t iterations_wanted_ = 0;
  std::vector<IterationEdge> iteration_edges_;
  std::uint32_t noted_window_ = 0;       // whose begin is among iteration_edges_
  std::uint64_t opening_count_ = 0;      // the watch's, where the window was asked for
  std::uint32_t iteration_windows_ = 0;  // that have been opened at a boundary
  bool renumber_ = false;                // iterations turned out to be others while one of these was open
  bool dirty_ = false;
  Nanoseconds last_write_ = 0;
  std::uint32_t flushing_ = 0;  // threads that wait for the files
};

}  // namespace inject
