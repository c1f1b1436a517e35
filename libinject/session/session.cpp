// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/session.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "libinject/base/caller_state.h"
#include "libinject/base/clock.h"
#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/file_work.h"
#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/base/out_path.h"
#include "libinject/base/process.h"
#include "libinject/base/unwinder.h"
#include "libinject/capture/cupti/holder.h"
#include "libinject/capture/driver.h"
#include "libinject/capture/launch_place.h"
#include "libinject/capture/loaded_objects.h"
#include "libinject/capture/torch/loader_fetch.h"
#include "libinject/capture/torch/step_listener.h"
#include "libinject/model/job_place.h"
#include "libinject/record/internal_thread.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/record/memory_use.h"
#include "libinject/record/torch_memory.h"
#include "libinject/session/signal_trigger.h"

namespace inject {

constinit SessionCompanions session_companions;

namespace {

// The program's end waits no longer than this.
constexpr Nanoseconds kExitLockWait = Collector::kExitPace * 2 * kSecond;
constexpr Nanoseconds kExitDeadline = Collector::kExitPace * 5 * kSecond;
// The same if a timeline is to be made of what has arrived: some 3 s of processor time for a million kernels
// that it has not had before.
constexpr Nanoseconds kExitTimelineDeadline = 4 * kExitDeadline;
// The additional share of that if our own thread is stuck in CUPTI and has not reached the files.
constexpr unsigned kRestShare = 5;
constexpr Nanoseconds kFlushDeadline = 10 * kSecond;
constexpr Nanoseconds kConcludeInterval = 5 * kMillisecond;

constexpr const char* kNoMemory = "profiling is off: out of memory";
constexpr const char* kFilesIncomplete = "the files are not complete";

constinit std::atomic<Session*> the_session{nullptr};
enum class Making : std::uint8_t { kNot, kBegun, kDone, kOff };
constinit std::atomic<Making> making{Making::kNot};

void last_window_closed() {
  if (session_companions.last_window_closed != nullptr) session_companions.last_window_closed();
}

Nanoseconds exit_deadline(const Options& options) {
  return (options.trace & kTraceChrome) != 0 ? kExitTimelineDeadline : kExitDeadline;
}

std::uint32_t group_mask(std::uint8_t hooks) {
  std::uint32_t mask = 1u << static_cast<unsigned>(FunctionGroup::kDriver);
  const auto take = [&](HookGroups option, FunctionGroup group) {
    if ((hooks & option) != 0) mask |= 1u << static_cast<unsigned>(group);
  };
  take(kHookCudart, FunctionGroup::kCudart);
  take(kHookCublas, FunctionGroup::kCublas);
  take(kHookCublasLt, FunctionGroup::kCublasLt);
  take(kHookCudnn, FunctionGroup::kCudnn);
  take(kHookNccl, FunctionGroup::kNccl);
  return mask;
}

void open_log(const Options& options) {
  Log::open(options.log_level, options.log_file.empty() ? "" : expand_option_path(options.log_file));
}

// Logs why nothing is profiled, unless the options forbid it, to the log file if they name one. Unless the
// window is off, memory or address space is short, so nothing is kept that is not needed for this.
void say_why_no_core() noexcept {
  try {
    const ParseResult parsed = parse_options(environ);
    const Options& options = parsed.options;
    if (options.window.kind == WindowKind::kOff) {
      open_log(options);
      for (const std::string& warning : parsed.warnings) Log::warn(warning);
      return;
    }
    if (options.log_level > LogLevel::kError) return;
    if (!options.log_file.empty()) open_log(options);
  } catch (...) {
    // Out of memory: use stderr.
  }
  Log::error_without_allocation(Core::why_none());
}

// False if there is nothing to profile.
bool read_configuration(Core& core) {
  const Options& options = core.configuration.options;
  open_log(options);
  for (const std::string& warning : core.configuration.warnings) Log::warn(warning);
  if (!core.configuration.error.empty()) {
    Log::error(core.configuration.error + "; profiling is off");
    return false;
  }
  if (!core.threads.usable())
    Log::warn("calls and ranges are not recorded: there is no memory for the state of threads");
  if (const std::string others = others_in_place(); !others.empty()) Log::info(others);
  return true;
}

}  // namespace

Session::Session(Core& core)
    : parts_(core, {{&on_profiler_start, &on_profiler_stop},
                    &on_iteration_stop,
                    [] { std::atexit(&on_exit_handler); },
                    &last_window_closed}) {}

Session* Session::get() noexcept {
  Session* session = the_session.load(std::memory_order_acquire);
  // A child of vfork() or clone() has run no fork handler: it is not the process that created the session.
  return session != nullptr && session->process_.is_this() ? session : nullptr;
}

Session* Session::start(bool in_initialization) noexcept {
  Making fresh = Making::kNot;
  if (!making.compare_exchange_strong(fresh, Making::kBegun, std::memory_order_acq_rel)) return get();
  try {
    Core* core = Core::get_or_wait();
    if (core == nullptr && !is_secure_execution()) say_why_no_core();
    if (core == nullptr || !read_configuration(*core)) {
      making.store(Making::kOff, std::memory_order_release);
      return nullptr;
    }
    const Options& options = core->configuration.options;
    prepare_unwinder();
    wipe_control_in_children();
    auto* session = new Session(*core);  // leaked on purpose
    recorded_groups.store(group_mask(options.hooks), std::memory_order_release);
    plans_watched.store((options.hooks & kHookCudnn) != 0, std::memory_order_release);
    record_plain_calls.store(options.api != ApiStatistics::kOff, std::memory_order_release);
    record_inner_calls.store(options.api == ApiStatistics::kFull, std::memory_order_release);
    short_calls_together.store(
        options.api == ApiStatistics::kCuda && options.trace == 0 && (options.hooks & kHookCudart) != 0,
        std::memory_order_release);
    the_session.store(session, std::memory_order_release);
    find_driver_functions();
    if ((options.hooks & kHookCudart) != 0) memory_use.start();
    if ((options.hooks & kHookTorch) != 0) torch_memory.start();
    DynamicLoaderGuard::count_in_this_process();  // a forked child may be the first to have a session
    pthread_atfork(&DynamicLoaderGuard::before_fork, &DynamicLoaderGuard::after_fork, &on_fork_child);
    std::atexit(&on_exit_handler);
    std::at_quick_exit(&on_exit_handler);
    at_python_exit(&on_exit_handler);
    if (session_companions.made != nullptr) session_companions.made(*session);
    // Before the program goes on, because it may step at once.
    if ((options.hooks & kHookTorch) != 0 && options.window.kind != WindowKind::kOff) listen_to_steps();
    session->arm(in_initialization);
    if (session_companions.armed != nullptr) session_companions.armed(*session);
    making.store(Making::kDone, std::memory_order_release);
    return session;
  } catch (...) {
    making.store(Making::kOff, std::memory_order_release);
    Log::error_without_allocation(kNoMemory);
    return nullptr;
  }
}

void Session::on_profiler_start() noexcept {
  // The hook is called after the call, and can wait for CUPTI and the sampling of metrics.
  if (this_thread_starts_profiler) return;
  const CallerState caller;
  if (Session* session = get()) session->profiler_start(true);
}

void Session::on_profiler_stop() noexcept {
  const CallerState caller;
  if (Session* session = get()) session->profiler_stop(true);
}

void Session::on_iteration_stop(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept {
  if (in_callback) inside_cupti.fetch_add(1, std::memory_order_seq_cst);
  if (Session* session = get()) session->parts_.iterations.at_boundary(count, time, in_callback);
  if (in_callback) inside_cupti.fetch_sub(1, std::memory_order_release);
}

void Session::on_ranges_changed() noexcept {
  const CallerState caller;
  if (Session* session = get()) session->parts_.windows.ranges_changed();
}

void Session::on_signal() noexcept {
  if (Session* session = get()) session->parts_.windows.signalled();
}

void Session::on_exit_handler() noexcept {
  const CallerState caller;
  Session* session = get();
  if (session == nullptr) return;
  session->finish();
  // Also if there was nothing to write, and permanently, because CUPTI may be in the middle of being
  // attached: its own exit handlers come next.
  if (session->options().metrics) session->parts_.cupti.suspend_sampler();
  if (session_companions.exiting != nullptr) session_companions.exiting();
}

// Only the forking thread exists in the child, CUDA does not work there, and CUPTI must not be touched: the
// child behaves as if libinject had never been loaded. A child that executes another program starts anew.
void Session::on_fork_child() noexcept {
  DynamicLoaderGuard::after_fork_in_child();
  control_word.store(0, std::memory_order_relaxed);
  current_window.store(0, std::memory_order_relaxed);
  plans_watched.store(false, std::memory_order_relaxed);
  iteration_watch.source.store(SignSource::kNone, std::memory_order_relaxed);
  forget_launch_names();
  ContextHold::forget();
  memory_use.stop();
  torch_memory.stop();
  fetching_thread.store(0, std::memory_order_relaxed);
  ThreadRegistry::publish(nullptr);
  if (the_session.load(std::memory_order_relaxed) != nullptr && session_companions.forked != nullptr)
    session_companions.forked();
  the_session.store(nullptr, std::memory_order_relaxed);
  SignalTrigger::leave_child();
}

bool Session::arm(bool in_initialization) noexcept {
  using AttachOn = WindowController::AttachOn;
  const SessionLock lock(parts_.state);
  parts_.state.armed = true;
  parts_.state.wake.notify_one();  // another thread may have requested a window already
  if (parts_.trigger->wants_profiler_calls()) parts_.arbiter.watch_profiler_calls();
  switch (options().window.kind) {
    case WindowKind::kAlways:
      return parts_.windows.open("always", AttachOn::kCalling);
    case WindowKind::kLaunch:
      return parts_.launches.arm();
    case WindowKind::kIteration:
    case WindowKind::kAuto:
      parts_.iterations.arm();
      return parts_.worker.ensure();
    case WindowKind::kTime:
      if (!parts_.worker.ensure()) return false;
      if (in_initialization) parts_.windows.step_initialization();
      return true;
    case WindowKind::kNvtx:
      parts_.core.nvtx_trigger.listen(&on_ranges_changed);
      parts_.windows.follow_ranges(AttachOn::kCalling);
      return true;
    case WindowKind::kSignal:
      return SignalTrigger::arm(options().window.signal, &on_signal);
    default:
      return true;
  }
}

bool Session::user_flush() noexcept {
  SessionState& state = parts_.state;
  if (!lock_session(false)) return false;
  const SessionLock lock(state, std::adopt_lock);
  const bool timed = parts_.iterations.has_timed_after_window() && !state.collecting && !state.ending();
  if (timed) state.unwritten = true;
  ++state.flushing;
  state.wake.notify_one();
  // If further windows open, so often that there is always something left to write, the files need only have
  // those that have closed by now. (Those of `launch:` are entered into the log later than they close, and
  // what was timed after a window is not in it.)
  const std::uint32_t last = parts_.log.ended_by(now());
  const auto others_follow = [&, this]() INJECT_REQUIRES(session_mutex) {
    return !timed && !parts_.launches.armed() && parts_.log.opened() > last;
  };
  const auto written = [&, this]() INJECT_REQUIRES(session_mutex) {
    return (!state.collecting && !state.unwritten && !parts_.collector.writing()) ||
           (others_follow() && parts_.collector.written_until() >= last);
  };
  // After the end, nobody writes what is left.
  state.wait_changed(kFlushDeadline, [&, this]() INJECT_REQUIRES(session_mutex) {
    const bool done = written() || state.ended();
    // What is being written may lack that window.
    if (!done && others_follow() && !parts_.collector.writing() && !state.ending()) state.unwritten = true;
    return done;
  });
  --state.flushing;
  return written();
}

Session::Status Session::status() {
  Status status;
  const SessionState& state = parts_.state;
  const SessionLock lock(parts_.state);
  status.window = open_window(current_window.load(std::memory_order_acquire));
  status.state = state.ending() || state.concluding   ? "finished"
                 : status.window != 0                 ? "open"
                 : state.collecting || state.naming() ? "closing"
                 : parts_.windows.none_left()         ? "finished"
                                                      : "waiting";
  status.reason = status.window == 0 ? "" : parts_.log.reason(status.window);
  status.opened = std::max(parts_.log.opened(), status.window);
  status.trigger = parts_.trigger_text;
  if (const char* folder = parts_.pipeline.shown_folder()) status.folder = folder;
  for (const WindowInfo& window : parts_.log.copy()) status.losses.add(window.losses);
  status.losses.add(parts_.log.losses_outside());
  status.base = base();
  return status;
}

// Processes what the last launches tell about iterations.
void Session::end_search() noexcept {
  try {
    parts_.iterations.end();
  } catch (...) {
    // Out of memory: the last iteration is missing.
  }
}

void Session::finish() noexcept {
  const CallerState caller;
  const Nanoseconds begin = now();
  try {
    // If exit is called in a signal handler, the thread that holds the lock may be this one.
    if (!lock_session_within(exit_locked_out_.load(std::memory_order_relaxed) ? 0 : kExitLockWait))
      return finish_locked_out(begin);
    Rest rest = Rest::kNothing;
    {
      const SessionLock lock(parts_.state, std::adopt_lock);
      if (!begin_exit()) return;
      rest = end(begin);
    }
    write_rest(rest, begin);
  } catch (...) {
    parts_.once.no_memory_for(kFilesIncomplete);  // what was written before remains
  }
}

// CUPTI does not return from a call on the thread that detaches it, which holds the lock. All records of the
// last window have arrived by then. Once, because there are several exit handlers.
void Session::finish_locked_out(Nanoseconds begin) {
  if (exit_locked_out_.exchange(true, std::memory_order_relaxed)) return;
  if (!parts_.cupti.inside() || parts_.log.opened() == 0) return;
  Log::warn("CUPTI does not return from a call: the last files are written without it");
  write_rest(Rest::kRecordsAndFiles, begin);
}

// False if there is nothing to write, or another thread has written it.
bool Session::begin_exit() {
  SessionState& state = parts_.state;
  if (state.ending()) {
    // Our own thread may be writing for INJECT_AFTER.
    state.wait_changed(kExitDeadline,
                       [&state]() INJECT_REQUIRES(session_mutex) { return !state.concluding; });
    return false;
  }
  state.stage = SessionState::Stage::kEndingSearch;
  parts_.windows.close();
  if (parts_.launches.armed()) parts_.launches.end();
  if (parts_.iterations.searching()) end_search();
  state.stage = SessionState::Stage::kEnding;
  parts_.pipeline.be_patient_with_files();
  SignalTrigger::look();
  if (parts_.log.opened() != 0) return true;
  // Our own thread has nothing to write either.
  state.stage = SessionState::Stage::kEnded;
  state.wake.notify_one();
  state.changed.notify_all();
  state.warn("the program ended before a window opened (INJECT_WINDOW=" + parts_.trigger_text + ")" +
             parts_.windows.why_none() + "; to profile the whole run, set INJECT_WINDOW=always");
  discard_folder();
  return false;
}

// CUPTI was attached ahead of a window, and the folder created, but no window has opened.
void Session::discard_folder() {
  if (parts_.pipeline.shown_folder() == nullptr) return;
  const SessionUnlock unlocked(parts_.state);
  Pipeline::Locked pipeline(parts_.pipeline, kExitLockWait);
  if (pipeline.owns_lock()) pipeline.writer().discard_folder();
}

// Why the last files are missing. Nothing can be said about a single file, because the writing thread is
// still at work.
std::string Session::slow_folder(Nanoseconds waited) const {
  const char* folder = parts_.pipeline.shown_folder();
  if (folder == nullptr) return "the output folder does not respond: no files are written (INJECT_OUT)";
  const unsigned files = FileWork::files();
  return str_format("the output folder is slow: {} written after {} s; {}",
                    files == 0 ? std::string("no files are")
                               : str_format("{} of {} files are", FileWork::files_done(), files),
                    waited / kSecond,
                    parts_.pipeline.keeps_records()
                        ? str_format("injectctl recover {} makes them", folder)
                        : str_format("the others in {} are out of date or missing", folder));
}

// Writes the last records and files, on our own thread if possible: a folder may be slow, or never respond.
// Returns what was not done; that is done without the lock, which a stuck thread may hold by then.
Session::Rest Session::end(Nanoseconds begin) {
  SessionState& state = parts_.state;
  if (parts_.worker.ensure()) {
    state.wake.notify_one();
    const Nanoseconds until = begin + exit_deadline(options());
    const Nanoseconds time = now();
    if (state.wait_changed(until > time ? until - time : 0,
                           [&state]() INJECT_REQUIRES(session_mutex) { return state.ended(); }))
      return Rest::kNothing;
    if (FileWork::lasts()) {
      state.warn(slow_folder(exit_deadline(options())));
      state.stage = SessionState::Stage::kEnded;
      return Rest::kSummary;
    }
    state.warn(state.settling ? "the last windows are still being added up: the tables lack them; injectctl "
                                "recover makes the tables of what has been recorded"
                              : Collector::kUnfinished);
  }
  state.stage = SessionState::Stage::kEnded;
  return Rest::kRecordsAndFiles;
}

// Our own thread has not reached the last files. They are written by another thread of ours, because their
// folder may never respond: the exit waits for that thread too, for a limited time.
void Session::write_rest(Rest rest, Nanoseconds begin) {
  if (rest == Rest::kSummary) parts_.pipeline.write_early_summary();
  if (rest != Rest::kRecordsAndFiles) return;
  const bool started = start_internal_thread(&rest_entry, this) == 0;
  parts_.devices.stop();
  parts_.host.stop();
  if (!started) return write_records_and_files();
  // Counted in pauses, not by the clock: a stopped process writes nothing.
  constexpr Nanoseconds kPause = 5 * kMillisecond;
  const Nanoseconds most = exit_deadline(options()) / kRestShare;
  for (Nanoseconds waited = 0; waited < most && !rest_written_.load(std::memory_order_acquire);
       waited += kPause)
    sleep_for(kPause);
  if (rest_written_.load(std::memory_order_acquire)) return;
  const char* folder = parts_.pipeline.shown_folder();
  if (FileWork::lasts() || folder == nullptr) {
    Log::warn(slow_folder(now() - begin));
  } else {
    Log::warn("the last records are still being added up: the files lack them" +
              (parts_.pipeline.keeps_records() ? str_format("; injectctl recover {} makes them", folder)
                                               : std::string()));
  }
  parts_.pipeline.write_early_summary();
}

void* Session::rest_entry(void* session) noexcept {
  enter_internal_thread();
  auto* self = static_cast<Session*>(session);
  self->write_records_and_files();
  self->rest_written_.store(true, std::memory_order_release);
  return nullptr;
}

void Session::write_records_and_files() noexcept {
  try {
    Pipeline::Locked pipeline(parts_.pipeline, std::try_to_lock);
    if (!pipeline.owns_lock()) return;
    pipeline.writer().ensure_folder();
    pipeline.pass();
    pipeline.begin_settling();
    pipeline.settle(false, 0);
    parts_.collector.write_last(pipeline);
  } catch (...) {
    parts_.once.no_memory_for(kFilesIncomplete);  // what was written before remains
    parts_.pipeline.stop_files();
  }
}

Session::Conclusion Session::conclude(bool timed_out) noexcept {
  SessionState& state = parts_.state;
  const SessionLock lock(state);
  if (state.ending()) return Conclusion::kExiting;
  if (!timed_out && (!state.idle() || !parts_.windows.none_left())) return Conclusion::kNotYet;
  if (!timed_out && parts_.iterations.may_time_steps()) return Conclusion::kSoon;
  try {
    state.concluding = true;
    parts_.windows.close();
    if (parts_.launches.armed()) parts_.launches.end();
    if (parts_.iterations.searching()) parts_.iterations.stop_search();
    // If CUPTI is just being attached, it would stay attached.
    constexpr Nanoseconds kMost = Collector::kDeadline + kSecond;
    const Nanoseconds deadline = now() + kMost;
    const bool attached = state.wait_changed(
        kMost, [&state]() INJECT_REQUIRES(session_mutex) { return !state.attaching || state.ending(); });
    // No window has been open, and CUPTI is attached to search for one.
    if (attached && parts_.cupti.tracer().level() > TracerLevel::kDetached && !state.collecting &&
        !state.ending())
      state.collect_from(now());
    // As after any window, including the late records and CUPTI's detachment; the program goes on meanwhile,
    // and may reach its own end.
    if (state.collecting && !state.ending() && parts_.worker.ensure()) {
      state.wake.notify_one();
      while (state.collecting && !state.ending() && now() < deadline) state.wait_changed(kConcludeInterval);
    }
    if (state.ending()) {
      state.concluding = false;
      state.changed.notify_all();
      return Conclusion::kExiting;
    }
    state.stage = SessionState::Stage::kEnding;
    if (parts_.log.opened() == 0) {
      state.stage = SessionState::Stage::kEnded;  // our own thread has nothing to write either
      state.unwritten = false;
      discard_folder();
      state.warn(std::string(timed_out ? "INJECT_TIMEOUT expired" : "the window was stopped") +
                 " before a window opened (INJECT_WINDOW=" + parts_.trigger_text + ")" +
                 (timed_out ? parts_.windows.why_none() : std::string()));
    } else {
      const Nanoseconds begin = now();
      const Rest rest = end(begin);
      const SessionUnlock unlocked(state);
      write_rest(rest, begin);
    }
    state.stage = SessionState::Stage::kEnded;
  } catch (...) {
    parts_.once.no_memory_for(kFilesIncomplete);  // what follows the outputs happens nonetheless
  }
  state.concluding = false;
  state.changed.notify_all();
  return Conclusion::kDone;
}

}  // namespace inject
