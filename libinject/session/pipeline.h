// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "libinject/base/lock_within.h"
#include "libinject/capture/cupti/tracer.h"
#include "libinject/capture/launch_place.h"
#include "libinject/capture/metrics/pm_sampler.h"
#include "libinject/config/options.h"
#include "libinject/pipeline/drain.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/buffers.h"
#include "libinject/record/core.h"
#include "libinject/session/drain_sources.h"
#include "libinject/session/iteration_tracker.h"
#include "libinject/session/metric_router.h"
#include "libinject/session/run_writer.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// The path from the records to the files: sources, drain, statistics, iterations, hardware samples, writer.
/// One lock guards all of it, and the only way in is an object that holds it:
///
///     Pipeline::Locked pipeline(pipeline_);
///     pipeline.pass();
///
/// The lock is taken by our own thread, and by the exiting one should ours be stuck in a flush behind a
/// kernel that never ends. It is never taken with the session's own lock held; the other way round is
/// allowed.
class Pipeline {
 public:
  struct Sources {
    Core& core;
    WindowLog& windows;
    const ProfiledTimes& profiled;
    ActivityBuffers& buffers;
    Tracer& tracer;
    PmSampler& sampler;
    /// Enters windows that have opened by themselves (`launch:`) into the log.
    std::function<void()> note_windows;
    /// Adds what is kept outside the pipeline: CUPTI, devices' links, the time attaching took.
    std::function<void(RunInfo&)> complete;
    /// The source of iteration signs: `hooks` or `callbacks`.
    std::function<const char*()> search_source;
  };

  Pipeline(const Options& options, const Sources& sources, RunWriter::Clock clock);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// What has not arrived for the launches in windows.
  struct Outstanding {
    std::size_t launches = 0;
    bool graphs = false;  ///< some were graph launches: one launch, many records
  };

  class Locked {
   public:
    explicit Locked(Pipeline& pipeline) : pipeline_(pipeline), lock_(pipeline.mutex_) {}
    Locked(Pipeline& pipeline, std::try_to_lock_t)
        : pipeline_(pipeline), lock_(pipeline.mutex_, std::try_to_lock) {}
    /// Waits at most this long: for program threads, because ours may write files with the lock held.
    Locked(Pipeline& pipeline, Nanoseconds most)
        : pipeline_(pipeline), lock_(lock_within(pipeline.mutex_, most)) {}
    /// False after std::try_to_lock, or a timeout, if it was not acquired: nothing else may be called then.
    bool owns_lock() const noexcept { return lock_.owns_lock(); }

    /// Processes everything that is published and completed so far. `hold_signs`: the evaluation of signs is
    /// deferred, and nothing waits for it.
    void pass(bool hold_signs = false) { pipeline_.pass(hold_signs); }
    /// No more records will arrive for the windows up to `last` that have ended. begin_settling() notes what
    /// may not belong to a window that opens after that. `delivered`: Drain::settle().
    void begin_settling() {
      pipeline_.tracker_.settle();
      pipeline_.sources_.note_activity_drops();
    }
    void settle(bool delivered, Nanoseconds detached, std::uint32_t last = kAllWindows) {
      pipeline_.settle(delivered, detached, last);
    }
    /// What a program thread was doing, while launches are named.
    void add_stack(const StackSample& sample) {
      pipeline_.statistics_.add_stack(sample.thread, sample.time, sample.stack);
    }
    /// Drain::settle_times().
    void settle_times(Nanoseconds until) { pipeline_.drain_.settle_times(until); }

    /// Drain::first_waiting_window().
    std::uint32_t first_waiting_window() const { return pipeline_.drain_.first_waiting_window(); }
    Outstanding outstanding() const { return {pipeline_.drain_.waiting(), pipeline_.drain_.saw_graphs()}; }
    IterationTracker& tracker() { return pipeline_.tracker_; }
    RunWriter& writer() { return pipeline_.writer_; }

   private:
    Pipeline& pipeline_;
    std::unique_lock<std::mutex> lock_;
  };

  // Any thread, without the lock:
  void restart_search(std::uint64_t first_sign, Nanoseconds time, bool in_windows = false) noexcept {
    tracker_.restart(first_sign, time, in_windows);
  }
  bool search_restarting() const noexcept { return tracker_.restarting(); }
  SearchGaps& search_gaps() noexcept { return tracker_.gaps(); }
  void hold_iteration(Nanoseconds came, Nanoseconds opened) { tracker_.hold(came, opened); }
  void set_window_asked(Nanoseconds time) noexcept { tracker_.set_window_asked(time); }
  std::uint32_t clock_window() const noexcept { return tracker_.clock_window(); }
  void set_clock_window(std::uint32_t window) noexcept { tracker_.set_clock_window(window); }
  bool clock_ended_search() const noexcept { return tracker_.clock_ended(); }
  std::uint64_t unprofiled_iterations() const noexcept { return tracker_.unprofiled(); }
  void set_clock_ended_search(bool ended) noexcept { tracker_.set_clock_ended(ended); }
  void put_files(RunWriter::Prepared& files, const std::function<void()>& done) noexcept {
    writer_.put_behind(files, done);
  }
  void stop_files() noexcept { writer_.stop(); }
  void be_patient_with_files() noexcept { writer_.be_patient(); }
  const char* shown_folder() const noexcept { return writer_.shown_folder(); }
  bool has_files() const noexcept { return writer_.has_files(); }
  bool folder_in_place() const noexcept { return writer_.folder_in_place(); }
  bool folder_failed() const noexcept { return writer_.folder_failed(); }
  bool files_incomplete() const noexcept { return writer_.incomplete(); }
  bool keeps_records() const noexcept { return writer_.keeps_records(); }
  void write_early_summary() noexcept { writer_.write_early_summary(); }
  bool closed_on_disk() const noexcept { return writer_.closed_on_disk(); }
  Nanoseconds write_interval() const noexcept { return writer_.interval(); }

 private:
  void pass(bool hold_signs);
  void settle(bool delivered, Nanoseconds detached, std::uint32_t last);
  void enter_windows();
  void take_samples();
  void route_samples(Nanoseconds until);

  const Options& options_;
  Core& core_;
  WindowLog& windows_;
  Tracer& tracer_;
  PmSampler& sampler_;
  std::function<void()> note_windows_;
  std::mutex mutex_;
  Statistics statistics_;
  Drain drain_;
  DrainSources sources_;
  IterationTracker tracker_;
  RunWriter writer_;
  MetricRouter router_;
  std::atomic<Nanoseconds> processor_time_{0};
};

}  // namespace inject
