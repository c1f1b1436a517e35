// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/collector.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/host_io.h"
#include "libinject/base/log.h"
#include "libinject/base/text.h"
#include "libinject/capture/driver.h"
#include "libinject/capture/gate.h"
#include "libinject/capture/python/program_python.h"
#include "libinject/record/control.h"
#include "libinject/session/session_parts.h"

namespace inject {

namespace {

// The records of a launch (many for a graph) arrive together, within this time if CUPTI is flushed in
// between.
constexpr Nanoseconds kRecordsCome = kSecond;
// CUPTI delivers a buffer when it is full, which takes long if little is launched; until then, its contents
// are lost if the process is killed.
constexpr Nanoseconds kFlushInterval = kSecond;
// At the program's end, late records are waited for no longer than this.
constexpr Nanoseconds kExitCollectDeadline = Collector::kExitPace * 2 * kSecond;
// How long writing waits for the readings at a window's end.
constexpr Nanoseconds kReadingWait = 20 * kMillisecond;
// The same for the last write.
constexpr Nanoseconds kLastReadingWait = kSecond;

}  // namespace

Pipeline::Outstanding Collector::pass(bool hold_signs) {
  Pipeline::Locked pipeline(parts_.pipeline);
  pipeline.pass(hold_signs);
  parts_.iterations.update(pipeline.tracker().found());
  return pipeline.outstanding();
}

void Collector::keep_records(std::uint32_t window) {
  const Nanoseconds time = now();
  // A window that has ended is saved as far as it has been recorded, as if it were collected at once.
  const bool ended = window != kept_window_ && is_naming(window);
  if (window != kept_window_ && !ended) kept_at_ = time;
  kept_window_ = window;
  if (!parts_.options.recover || (!ended && time - kept_at_ < kFlushInterval)) return;
  kept_at_ = time;
  parts_.cupti.tracer().flush(false);
  Pipeline::Locked(parts_.pipeline).writer().keep_run_state();
}

Nanoseconds Collector::write_interval() const {
  return parts_.state.flushing != 0 ? RunWriter::kInterval : parts_.pipeline.write_interval();
}

bool Collector::write_due() const {
  return now() - last_write_ >= write_interval();
}

Nanoseconds Collector::next_wake() const {
  if (writing_) return put_ ? now() : Trigger::kNever;  // the file thread wakes us
  return parts_.state.unwritten ? last_write_ + write_interval() : Trigger::kNever;
}

// Has all files written. Nobody waits for the folder; what is requested in between is written afterwards.
void Collector::write_files(const char* state, std::uint32_t until) {
  files_until_ = std::max(until, written_until_);
  const bool closed = std::strcmp(state, "closed") == 0;
  // The first write is run.json alone, which does not delay the tables.
  if (std::exchange(wrote_, true) || closed) last_write_ = now();
  // Cleared before they are prepared: what is set from here on is for the next write.
  parts_.state.unwritten = false;
  writing_ = true;
  bool to_put = false;
  {
    const SessionUnlock unlocked(parts_.state);
    to_put = prepare_files(state);
  }
  put_ = !to_put;
  to_say_ = closed ? std::exchange(unsaid_, 0) : 0;
  if (to_put) {
    const SessionUnlock unlocked(parts_.state);
    parts_.pipeline.put_files(files_, [this] { note_put(); });
  }
  if (put_) finish_files();
}

// False if there is nothing to write.
bool Collector::prepare_files(const char* state) {
  Pipeline::Locked pipeline(parts_.pipeline);
  files_ = {};
  if (!pipeline.writer().may_write()) return false;
  files_ = pipeline.writer().prepare(state);
  return true;
}

void Collector::note_put() noexcept {
  const SessionLock lock(parts_.state);
  put_ = true;
  parts_.state.wake.notify_one();
}

void Collector::finish_files() {
  SessionState& state = parts_.state;
  {
    const SessionUnlock unlocked(state);
    Pipeline::Locked(parts_.pipeline).writer().finish(files_);
  }
  if (const std::uint32_t window = std::exchange(to_say_, 0); window != 0) {
    const char* folder = parts_.pipeline.shown_folder();
    if (folder != nullptr) parts_.once.first(OnceLog::Topic::kFolder);
    state.info(str_format("window {} closed; {}", window,
                          folder == nullptr ? std::string("no files are written") : files_are_in(folder)));
  }
  written_until_ = files_until_;
  writing_ = put_ = false;
  state.changed.notify_all();
}

void Collector::step(std::uint32_t current) {
  SessionState& state = parts_.state;
  if (Tracer::failed() && parts_.once.first(OnceLog::Topic::kCuptiFailed)) {
    state.warn(
        "CUPTI has stopped with a fatal error and finalized itself: device activity is missing from here on");
  }
  log_open_window(current);
  if (put_) finish_files();
  // A reader must be able to tell that a window was cut off.
  if (current != 0 && (current_window.load(std::memory_order_acquire) & ~kNamingWindow) == current &&
      parts_.pipeline.closed_on_disk() && !state.ending() && !writing_ && write_due()) {
    write_files("open", settled_until());
  }
  if (may_detach_owed() && has_context() && may_detach_owed()) detach(true, true);
  if (state.collecting && !state.open() && !state.naming()) {
    if (parts_.log.opened() != 0 && parts_.windows.none_left()) parts_.callbacks.last_window_closed();
    if (!state.stay_attached || state.ending() || now() - state.ended_at >= WindowController::kStayAttached) {
      collect();
    } else {
      state.unwritten = parts_.log.opened() != 0;
    }
  }
  if (state.unwritten && !state.pending() && !state.ending() && !writing_ && write_due())
    write_meanwhile(current);
  if (state.stage == SessionState::Stage::kEnding && !state.collecting) {
    {
      const SessionUnlock unlocked(state);
      write_last();
    }
    writing_ = put_ = false;  // the write in progress is not finished any more
    state.unwritten = false;
    state.stage = SessionState::Stage::kEnded;
    state.changed.notify_all();
  }
}

// CUPTI has stayed subscribed after the last window that needed it.
bool Collector::may_detach_owed() const {
  const SessionState& state = parts_.state;
  return parts_.cupti.detach_owed() && state.idle() && !state.collecting &&
         !parts_.windows.attached_ahead() && !parts_.launches.armed() && !state.ending() &&
         !parts_.cupti.sampler().running();
}

// True if the program has a context. Releases the lock meanwhile.
bool Collector::has_context() {
  const SessionUnlock unlocked(parts_.state);
  ContextHold::wait_for_creations();
  // There may be a context that the driver can't be queried about.
  return Tracer::saw_work() || !devices_in_use().empty();
}

void Collector::log_open_window(std::uint32_t current) {
  const Nanoseconds time = now();
  if (current <= logged_open_ || time - last_logged_ < kSecond || parts_.log.opened() < current) return;
  last_logged_ = time;
  logged_open_ = current;
  parts_.state.info(str_format("window {} opened ({})", current, parts_.log.reason(current)));
}

// Writes files of windows that are not settled: one is open, or the program may reopen.
void Collector::write_meanwhile(std::uint32_t current) {
  SessionState& state = parts_.state;
  const bool active = state.collecting || current != 0;
  std::uint32_t arrived = 0;
  {
    const SessionUnlock unlocked(state);
    const Nanoseconds until = now() - kRecordsCome;
    if (active) parts_.cupti.tracer().flush(false);
    pass();
    if (active) {
      Pipeline::Locked pipeline(parts_.pipeline);
      pipeline.settle_times(until);
      arrived = parts_.log.ended_by(until);
      if (const std::uint32_t waiting = pipeline.first_waiting_window(); waiting != 0)
        arrived = std::min(arrived, waiting - 1);
    }
  }
  write_files(active ? "open" : "closed", std::max(arrived, settled_until()));
}

// All windows that have ended, unless some are still being collected.
std::uint32_t Collector::settled_until() const {
  return parts_.state.collecting ? 0 : parts_.log.ended_by(now());
}

// A window may open and end while the lock is released: then activity is on again, and remaining records are
// taken by the collection that follows that window.
bool Collector::reopened(Nanoseconds since) const {
  const SessionState& state = parts_.state;
  return !state.idle() || state.collect_since != since;
}

// One step of collecting the windows that have ended: first no new records are produced, then those on their
// way are taken until CUPTI has returned every buffer; after that, the program runs at full speed again.
void Collector::collect() {
  SessionState& state = parts_.state;
  if (!stop_activity()) return;
  const Nanoseconds since = state.collect_since;
  const Late late = take_late_records(since);
  if (late == Late::kToCome) return;
  const bool sampler_out = parts_.arbiter.stop_sampler();
  // CUPTI must not be finalized while a thread is creating a context, which stays inside CUPTI for long.
  const bool context = state.ending() || has_context();
  if (reopened(since)) return;
  const Nanoseconds detached = leave_cupti(sampler_out, context);
  {
    const SessionUnlock unlocked(state);
    pass();
    Pipeline::Locked pipeline(parts_.pipeline);
    std::uint32_t last = 0;
    {
      const SessionLock relocked(state);
      // If a window has begun since, its launches are still to be waited for.
      if (reopened(since)) return;
      // The latest that has ended; those of `launch:` open and end by themselves.
      const std::vector<std::uint32_t> ended = parts_.log.closing();
      last = ended.empty() ? 0 : ended.front();
      pipeline.begin_settling();
      state.settling = true;
    }
    // Without the lock, because a large window takes long. Everything taken so far belongs to those windows.
    pipeline.settle(late == Late::kDelivered, detached, last);
  }
  state.settling = false;
  // Another window may have ended since.
  if (state.collect_since == since) state.collecting = false;
  // The window may have been over before this thread looked.
  if (state.idle() && !state.ending()) log_open_window(parts_.log.opened());
  if (logged_open_ > logged_closed_ && state.idle() && !state.ending())
    logged_closed_ = unsaid_ = logged_open_;
  // If the requested window was stopped before it began, there is nothing to write.
  if (parts_.log.opened() == 0) return;
  state.unwritten = !state.ending();  // the end writes once more
  // Somebody may be waiting for the next window: then step() writes, once it has opened.
  if (!state.ending() && state.idle() && !writing_ && write_due()) write_settled();
}

// False as long as a launch of the window, or the call that ended it, is on its way to CUPTI.
bool Collector::stop_activity() {
  SessionState& state = parts_.state;
  if (state.collect_since != 0) return true;
  const Nanoseconds time = now();
  const bool awaited = (time - state.ended_at < kLaunchReturns && parts_.core.threads.any_launching()) ||
                       (time - state.ended_at < (state.ending() ? kLaunchReturns : kProfilerStopReturns) &&
                        Tracer::thread_inside());
  if (awaited) {
    const SessionUnlock unlocked(state);
    sleep_for(200 * kMicrosecond);
    return false;
  }
  // Activity is not switched while a context is being created. `stopping`, which others wait for, is not set
  // yet.
  if (!state.ending()) {
    const Nanoseconds ended = state.ended_at;
    {
      const SessionUnlock unlocked(state);
      ContextHold::wait_for_creations();
    }
    if (!state.idle() || state.ending() || state.ended_at != ended) return false;
  }
  const Nanoseconds since = now();
  state.collect_since = since;
  const LaunchGate gate(!state.ending());
  // Without the lock: cuptiActivityDisable hangs in some versions, and the program must go on. No other
  // thread calls CUPTI in the meantime: windows are left to this thread.
  state.stopping = true;
  {
    const ContextWait contexts = state.ending() ? ContextWait::kNo : ContextWait::kMay;
    const SessionUnlock unlocked(state);
    parts_.cupti.tracer().stop_activity(contexts);
  }
  state.stopping = false;
  state.changed.notify_all();
  return !reopened(since);
}

Collector::Late Collector::take_late_records(Nanoseconds since) {
  SessionState& state = parts_.state;
  Tracer& tracer = parts_.cupti.tracer();
  const ActivityBuffers& buffers = parts_.cupti.buffers();
  const Nanoseconds ended = state.ended_at;
  Nanoseconds flush_begin = 0;
  Nanoseconds flush_end = 0;
  Pipeline::Outstanding outstanding;
  {
    const SessionUnlock unlocked(state);
    flush_begin = now();
    tracer.flush(false);
    flush_end = now();
    outstanding = pass(true);
  }
  if (reopened(since)) return Late::kToCome;
  state.log(LogLevel::kDebug,
            str_format("collecting for {}: flush took {}, {} buffers and {} launches outstanding",
                       in_ms(flush_end - ended), in_ms(flush_end - flush_begin), buffers.outstanding(),
                       outstanding.launches));
  if (tracer.level() != TracerLevel::kDetached && !Tracer::failed() && !tracer.holds()) {
    state.warn("another client has finalized CUPTI: device activity not yet delivered is missing");
    parts_.cupti.forget(state.open());
  }
  // All buffers returned: nothing is on its way. If kernels launched after the window's end keep a buffer,
  // one record per launch is enough, except for graphs: one launch, many records.
  const bool delivered = buffers.outstanding() == 0 && !Tracer::failed();
  const bool complete = tracer.level() < TracerLevel::kActivity || buffers.outstanding() == 0 ||
                        (outstanding.launches == 0 && !outstanding.graphs);
  const Nanoseconds deadline = state.ending() ? kExitCollectDeadline : kDeadline;
  if (!complete && now() - since < deadline && !Tracer::failed()) return Late::kToCome;
  if (!complete) {
    if (!Tracer::failed()) state.warn(kUnfinished);
    {
      const SessionUnlock unlocked(state);
      tracer.flush(true);
      pass(true);
    }
    if (reopened(since)) return Late::kToCome;
  }
  return delivered ? Late::kDelivered : Late::kMissing;
}

// Detaches CUPTI unless it is still needed; returns the time of that, 0 if it stays.
Nanoseconds Collector::leave_cupti(bool sampler_out, bool has_context) {
  SessionState& state = parts_.state;
  const bool searching =
      parts_.iterations.searching_in_callbacks() && !state.concluding &&
      (parts_.iterations.searching_for_window() || !parts_.options.iteration_record.empty());
  if (state.ending()) return 0;
  if (searching && !Tracer::failed()) {
    // Iterations are counted in the callbacks: if CUPTI were attached anew, some would be missed.
    parts_.cupti.keep_launches();
    return 0;
  }
  if (parts_.launches.armed()) return 0;
  const Nanoseconds detached = detach(sampler_out, has_context);
  if (Tracer::saw_graphs() && parts_.once.first(OnceLog::Topic::kGraphsKeepCupti)) {
    state.warn(
        "CUPTI is not finalized because the program uses CUDA graphs, which would fail if it were: launches "
        "remain about 0.4 us slower");
  }
  return detached;
}

// Returns the time of detaching, 0 if CUPTI stays.
Nanoseconds Collector::detach(bool sampler_out, bool has_context) {
  if (!parts_.arbiter.detach(sampler_out, ContextWait::kMay, has_context)) return 0;
  const Nanoseconds detached = now();
  // Before a new attachment takes buffers: a finalized CUPTI does not return its buffers.
  if (parts_.cupti.tracer().finalized()) parts_.cupti.buffers().reclaim_outstanding();
  parts_.arbiter.resume_profiler_calls();
  return detached;
}

std::string Collector::files_are_in(const std::string& folder) const {
  if (!parts_.pipeline.files_incomplete()) return "files are in " + folder;
  // Don't name the folder if it has been moved away.
  return "not all files could be written" +
         (parts_.pipeline.folder_in_place() ? "; those written are in " + folder : "");
}

void Collector::write_settled() {
  {
    const SessionUnlock unlocked(parts_.state);
    parts_.devices.wait(kReadingWait);
    parts_.host.wait(kReadingWait);
  }
  write_files("closed", settled_until());
}

void Collector::write_last() {
  parts_.devices.wait(kLastReadingWait);
  parts_.devices.stop();
  parts_.host.wait(kLastReadingWait);
  parts_.host.stop();
  Pipeline::Locked pipeline(parts_.pipeline);
  write_last(pipeline);
}

void Collector::write_last(Pipeline::Locked& pipeline) {
  // The thread may be one of the program's.
  const QuietSignals quiet;
  const bool shown = pipeline.writer().write_last();
  const std::string& folder = pipeline.writer().folder();
  if (!shown && !folder.empty() && parts_.once.first(OnceLog::Topic::kFolder))
    Log::info(files_are_in(folder));
}

void Collector::complete_run_info(RunInfo& run) {
  parts_.devices.add_links(run.devices);
  run.energy = parts_.devices.energy();
  parts_.cupti.add_overhead(run.overhead);
  run.overhead.device_readings = parts_.devices.time();
  run.host_windows = parts_.host.windows();
  run.host_readings = parts_.host.readings();
  run.memory_purposes = memory_reading();
}

}  // namespace inject
