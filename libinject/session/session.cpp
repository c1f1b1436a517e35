// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/session.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "libinject/base/caller_state.h"
#include "libinject/base/clock.h"
#include "libinject/base/loader_use.h"
#include "libinject/base/log.h"
#include "libinject/base/out_path.h"
#include "libinject/base/process.h"
#include "libinject/base/text.h"
#include "libinject/base/unwinder.h"
#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/cupti/holder.h"
#include "libinject/capture/driver.h"
#include "libinject/capture/gate.h"
#include "libinject/capture/loaded_objects.h"
#include "libinject/model/job_place.h"
#include "libinject/record/control.h"
#include "libinject/record/internal_thread.h"
#include "libinject/record/memory_use.h"
#include "libinject/session/signal_trigger.h"

namespace inject {

constinit SessionCompanions session_companions;

namespace {

// The ring holds a quarter of a second of a launch-bound thread's records; CUPTI's buffers fill in some 16 ms
// each.
constexpr Nanoseconds kDrainInterval = 5 * kMillisecond;
// While iterations are looked for and no window is open: a boundary is recognised by the watch, not by us.
constexpr Nanoseconds kSearchInterval = 20 * kMillisecond;
// … and before they are found, so that few of them pass meanwhile.
constexpr Nanoseconds kFirstSearchInterval = 2 * kMillisecond;
constexpr Nanoseconds kCollectInterval = 2 * kMillisecond;
// The records of a launch, many if it is a graph's, come together: within this time if CUPTI is flushed
// meanwhile.
constexpr Nanoseconds kRecordsCome = 1'000'000'000;
// Records that have not come this long after the last window's end are not waited for any longer.
constexpr Nanoseconds kCollectDeadline = 30 * kSecond;
// A program's end waits for this and no longer. Where ThreadSanitizer watches every access, ours and CUPTI's,
// the same work takes as much longer.
#if defined(__SANITIZE_THREAD__)
constexpr Nanoseconds kPace = 10;
#else
constexpr Nanoseconds kPace = 1;
#endif
constexpr Nanoseconds kExitCollectDeadline = kPace * 2 * kSecond;
constexpr Nanoseconds kExitLockWait = kPace * 2 * kSecond;
constexpr Nanoseconds kExitDeadline = kPace * 5 * kSecond;
// … where a timeline is to be made of what has come: some 3 s of a processor for a million kernels that it
// has not had before.
constexpr Nanoseconds kExitTimelineDeadline = 4 * kExitDeadline;
// How long writing waits for a reading of the devices' memory at a window's end.
constexpr Nanoseconds kReadingWait = 20 * kMillisecond;
// Our thread stays this long for the next window: what it has freed is used again by it alone, as malloc
// keeps threads apart, and windows that open every few seconds would each come by another part of the heap.
constexpr Nanoseconds kLinger = 5 * kSecond;
constexpr Nanoseconds kNever = ~Nanoseconds{0};
// `time:` windows: CUPTI is attached this much earlier, so that the first launches in them are not slower.
constexpr Nanoseconds kTimeLead = 100 * kMillisecond;
// `launch:`: activity is switched on this many launches ahead of the window's first one.
constexpr std::uint64_t kLaunchLead = 20'000;
// `auto`, when the program does not call the profiler API.
constexpr Nanoseconds kAutoDelay = 20 * kSecond;
constexpr Nanoseconds kAutoDuration = 5 * kSecond;

constexpr const char* kNoMemory = "profiling is off: out of memory";
constexpr const char* kUnfinished =
    "the device has not finished what was launched in the last window: its records are missing";

constinit std::atomic<Session*> the_session{nullptr};
constinit std::atomic<int> session_state{0};  // 0 not made, 1 being made, 2 made, 3 off

WindowSpec scheduled(const WindowSpec& spec) {
  if (spec.kind != WindowKind::kAuto) return spec;
  WindowSpec timed;
  timed.kind = WindowKind::kTime;
  timed.start = kAutoDelay;
  timed.count = kAutoDuration;
  return timed;
}

void on_callback_start() noexcept {
  // The hook comes after the call, and can wait for CUPTI and the sampling of metrics.
  if (this_thread_starts_profiler) return;
  const CallerState caller;
  if (Session* session = Session::get()) session->profiler_start(true);
}
void on_callback_stop() noexcept {
  const CallerState caller;
  if (Session* session = Session::get()) session->profiler_stop(true);
}
void on_ranges_changed() noexcept {
  const CallerState caller;
  if (Session* session = Session::get()) session->ranges_changed();
}
void on_signal_came() noexcept {
  if (Session* session = Session::get()) session->signalled();
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

}  // namespace

Session::Session(Core& core)
    : core_(core),
      options_(core.configuration.options),
      base_(now()),
      base_utc_(realtime()),
      pid_(getpid()),
      cupti_(options_, once_, {&on_callback_start, &on_callback_stop}, [] { std::atexit(&on_exit_handler); }),
      device_reader_(windows_),
      pipeline_(options_,
                {core, windows_, buffers_, tracer_, sampler_, [this] { note_launch_windows(); },
                 [this](RunInfo& run) { complete_run_info(run); },
                 [this] { return searched_source_ == SignSource::kHooks ? "hooks" : "callbacks"; }},
                {base_, base_utc_}),
      schedule_(scheduled(options_.window)),
      occurrences_(options_.window),
      signal_count_(options_.window),
      trigger_text_(to_string(options_.window)),
      launch_windows_(launch_trigger, windows_, trigger_text_) {}

Session* Session::get() noexcept {
  Session* session = the_session.load(std::memory_order_acquire);
  // A vfork child runs on its parent's memory without any fork handler: it is not the process that made the
  // session.
  return session != nullptr && session->pid_ == getpid() ? session : nullptr;
}

Session* Session::start() noexcept {
  int fresh = 0;
  if (!session_state.compare_exchange_strong(fresh, 1, std::memory_order_acq_rel)) return get();
  try {
    Core* core = Core::get();
    if (core == nullptr) {
      session_state.store(3, std::memory_order_release);
      if (!is_secure_execution()) Log::error_without_allocation(kNoMemory);
      return nullptr;
    }
    const Options& options = core->configuration.options;
    Log::open(options.log_level, options.log_file.empty() ? "" : expand_option_path(options.log_file));
    for (const std::string& warning : core->configuration.warnings) Log::warn(warning);
    if (!core->configuration.error.empty()) {
      Log::error(core->configuration.error);
      session_state.store(3, std::memory_order_release);
      return nullptr;
    }
    if (options.window.kind == WindowKind::kOff) {
      session_state.store(3, std::memory_order_release);
      return nullptr;
    }
    if (!core->threads.usable())
      Log::warn("calls and ranges are not recorded: there is no memory for the state of threads");
    if (const std::string others = others_in_place(); !others.empty()) Log::info(others);
    prepare_unwinder();
    auto* session = new Session(*core);  // leaked on purpose
    recorded_groups.store(group_mask(options.hooks), std::memory_order_release);
    plans_watched.store((options.hooks & kHookCudnn) != 0, std::memory_order_release);
    record_plain_calls.store(options.api != ApiStatistics::kOff, std::memory_order_release);
    record_inner_calls.store(options.api == ApiStatistics::kFull, std::memory_order_release);
    the_session.store(session, std::memory_order_release);
    find_current_device();
    if ((options.hooks & kHookCudart) != 0) memory_use.start();
    pthread_atfork(&LoaderUse::before_fork, &LoaderUse::after_fork, &on_fork_child);
    std::atexit(&on_exit_handler);
    std::at_quick_exit(&on_exit_handler);
    at_python_exit(&on_exit_handler);
    if (session_companions.made != nullptr) session_companions.made(*session);
    session->arm();
    if (session_companions.armed != nullptr) session_companions.armed(*session);
    session_state.store(2, std::memory_order_release);
    return session;
  } catch (...) {
    session_state.store(3, std::memory_order_release);
    Log::error_without_allocation(kNoMemory);
    return nullptr;
  }
}

void Session::on_exit_handler() noexcept {
  Session* session = get();
  if (session == nullptr) return;
  session->finish();
  // Also where there was nothing to write, and for good, as CUPTI may be in the midst of being attached: its
  // own exit handlers come next.
  if (session->options_.metrics) session->cupti_.suspend_sampler();
  if (session_companions.exiting != nullptr) session_companions.exiting();
}

// Only the thread that forked lives in the child, CUDA does not work there, and CUPTI must not be touched:
// the child is as if we had never been there. A child that executes another program starts anew.
void Session::on_fork_child() noexcept {
  LoaderUse::after_fork_in_child();
  control_word.store(0, std::memory_order_relaxed);
  current_window.store(0, std::memory_order_relaxed);
  plans_watched.store(false, std::memory_order_relaxed);
  memory_use.stop();
  ThreadRegistry::publish(nullptr);
  if (the_session.load(std::memory_order_relaxed) != nullptr && session_companions.forked != nullptr)
    session_companions.forked();
  the_session.store(nullptr, std::memory_order_relaxed);
  SignalTrigger::leave_child();
}

bool Session::arm() noexcept {
  std::unique_lock lock(mutex_);
  const WindowKind kind = options_.window.kind;
  if (kind == WindowKind::kAuto || kind == WindowKind::kApi) {
    // Where the program's own modules import cudaProfilerStart, our hook sees it. Elsewhere (Numba, JAX, a
    // static runtime) CUPTI has to be subscribed, for these two calls alone: no cost on the launch path.
    watch_profiler_calls_ = !process_imports("cudaProfilerStart");
    if (watch_profiler_calls_ && !raise_tracer(TracerLevel::kProfilerCalls, false))
      watch_profiler_calls_ = false;
  }
  switch (kind) {
    case WindowKind::kAlways:
      return open_window(lock, "always", AttachOn::kCalling);
    case WindowKind::kLaunch:
      launch_armed_ = raise_tracer(TracerLevel::kLaunches, false);
      if (!launch_armed_) return false;
      launch_trigger.start = options_.window.start;
      launch_trigger.length = options_.window.count;
      launch_trigger.every = options_.window.every;
      launch_trigger.most_windows = options_.window.max_windows != 0 ? options_.window.max_windows
                                    : options_.window.every != 0     ? std::uint64_t{1} << 31
                                                                     : 1;
      launch_trigger.counting.store(true, std::memory_order_release);
      start_search(SignSource::kCallbacks);
      step_launch_trigger();
      return ensure_worker();
    case WindowKind::kIteration:
    case WindowKind::kAuto:
      arm_search();
      return ensure_worker();
    case WindowKind::kTime:
      return ensure_worker();
    case WindowKind::kNvtx:
      core_.nvtx_trigger.listen(&on_ranges_changed);
      follow_ranges(lock, AttachOn::kCalling);
      return true;
    case WindowKind::kSignal:
      return SignalTrigger::arm(options_.window.signal, &on_signal_came);
    default:
      return true;
  }
}

bool Session::ensure_worker() noexcept {
  if (worker_running_) return true;
  const int failed = start_internal_thread(&worker_entry, this);
  worker_running_ = failed == 0;
  if (failed != 0 && once_.first(OnceLog::Topic::kNoThread)) {
    std::array<char, 128> line;
    std::snprintf(line.data(), line.size(), "no window can be opened: a thread can't be started (%s)",
                  std::strerror(failed));
    Log::error(line.data());
  }
  return worker_running_;
}

void* Session::worker_entry(void* session) noexcept {
  enter_internal_thread();
  ThreadRegistry::register_barrier();
  try {
    static_cast<Session*>(session)->work();
  } catch (...) {
    static_cast<Session*>(session)->give_up();
  }
  return nullptr;
}

// Our thread has run out of memory. What is on disk stays; nobody waits for the rest.
void Session::give_up() noexcept {
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlRecord), std::memory_order_release);
  current_window.store(0, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  worker_running_ = wanted_ = closing_ = dirty_ = false;
  open_ = 0;
  finishing_ = finished_ = true;
  changed_.notify_all();
  sampler_.stop(0);
  Log::error("profiling has stopped: out of memory");
}

Nanoseconds Session::time_lead() const noexcept {
  return kTimeLead + (options_.metrics ? sampler_.start_time() : 0);
}

// Whether windows open by the clock: of `auto` only where no iterations have been found in time.
bool Session::timed() const noexcept {
  if (finishing_ || concluding_) return false;
  if (options_.window.kind == WindowKind::kTime) return true;
  return options_.window.kind == WindowKind::kAuto && !api_called_ && !found_.lock && !search_over_;
}

Nanoseconds Session::next_wake() const {
  const Nanoseconds time = now();
  if (wanted_ || lead_wanted_ || yield_wanted_.load(std::memory_order_relaxed)) return time;
  if (closing_ && !(stay_attached_ && open_ == 0)) return time + kCollectInterval;
  Nanoseconds wake = kNever;
  // The program may reopen; where CUPTI is not attached nothing else wakes us for that window's settlement.
  if (closing_) wake = std::max(last_stop_ + kStayAttached, time + kCollectInterval);
  if (open_ != 0 || tracer_.level() == TracerLevel::kActivity || launch_armed_)
    wake = std::min(wake, time + kDrainInterval);
  if (search_source_ != SignSource::kNone) {
    wake =
        std::min(wake, time + (found_.lock || found_.events == 0 ? kSearchInterval : kFirstSearchInterval));
  }
  if (timed()) {
    Schedule ahead = schedule_;
    if (const auto window = ahead.next(time - base_)) {
      const Nanoseconds begin = base_ + window->begin;
      // Attached ahead of it, once (step_schedule).
      wake = std::min(
          wake, attached_for_ == window->begin + 1 || begin < time_lead() ? begin : begin - time_lead());
    }
  }
  if (resume_at_ != 0) wake = std::min(wake, std::max(resume_at_, time));
  if (dirty_) wake = std::min(wake, last_write_ + write_interval());
  return wake;
}

void Session::work() {
  std::unique_lock lock(mutex_);
  bool lingered = false;
  while (!finished_) {
    if (!finishing_) {
      const Nanoseconds wake = next_wake();
      if (wake == kNever) {
        // Nothing to do before the next window: there is a thread only while one is needed.
        if (lingered || no_window_left()) {
          worker_running_ = false;
          return;
        }
        lingered = wake_.wait_for(lock, std::chrono::nanoseconds(kLinger)) == std::cv_status::timeout;
        continue;
      }
      lingered = false;
      const Nanoseconds time = now();
      if (wake > time) wake_.wait_for(lock, std::chrono::nanoseconds(wake - time));
    } else if (ending_search_) {
      wake_.wait_for(lock, std::chrono::nanoseconds(kMillisecond));
      continue;
    }
    step(lock);
  }
  worker_running_ = false;
}

void Session::step_schedule(std::unique_lock<std::mutex>& lock) {
  const WindowKind kind = options_.window.kind;
  if (kind != WindowKind::kTime && !(kind == WindowKind::kAuto && !api_called_)) return;
  const Nanoseconds position = now() - base_;
  if (open_ != 0) {
    if (open_ != pipeline_.clock_window()) return;
    const RangeTracker::Span span = windows_.span(open_);
    if (now() >= span.begin + scheduled(options_.window).count) close_window();
    return;
  }
  if (!timed()) return;
  const auto window = schedule_.next(position);
  if (!window || position + time_lead() < window->begin) return;
  if (position < window->begin) {
    if (closing_ || attached_for_ == window->begin + 1) return;
    attached_for_ = window->begin + 1;
    attach_lead(lock);
    return;
  }
  wanted_reason_ = to_string(scheduled(options_.window));
  wanted_ = true;
  stay_attached_ = last_stop_ != 0 && now() - last_stop_ < kStayAttached;
  attach_wanted(lock);
  if (open_ == 0) return;
  pipeline_.set_clock_window(open_);
  schedule_.advance();
  // Of `auto` this is the one window: iterations that are found from here on are too late for theirs.
  if (kind == WindowKind::kAuto) search_over_ = true;
}

// Enters the windows that the launch callback has opened and closed by itself.
void Session::note_launch_windows() {
  const std::lock_guard one_at_a_time(launch_windows_mutex_);
  if (launch_trigger.counting.load(std::memory_order_acquire)) launch_windows_.note();
}

void Session::end_launch_windows() {
  launch_trigger.counting.store(false, std::memory_order_release);
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlRecord), std::memory_order_release);
  current_window.store(0, std::memory_order_release);
  {
    const std::lock_guard one_at_a_time(launch_windows_mutex_);
    launch_windows_.finish(now());
  }
  launch_armed_ = false;
  stop_search();
  last_stop_ = now();
  collect_since_ = 0;
  closing_ = true;
}

// Whether the log has all that the launch callback has counted.
bool Session::launch_windows_noted() {
  const std::lock_guard one_at_a_time(launch_windows_mutex_);
  return launch_windows_.up_to_date();
}

// Activity is on around the windows; the callbacks, which count, all the time until the last one is over.
void Session::step_launch_trigger() {
  note_launch_windows();
  const std::uint64_t count = launch_trigger.count.load(std::memory_order_acquire);
  Schedule ahead = schedule_;
  const auto window = ahead.next(count);
  const bool over =
      !window ||
      (options_.window.max_windows != 0 &&
       count >= launch_trigger.start + (launch_trigger.most_windows - 1) * launch_trigger.every +
                    launch_trigger.length) ||
      (launch_trigger.every == 0 && count > launch_trigger.start + launch_trigger.length);
  if (over) {
    // The thread that launched last may have to say when yet. Nothing is counted to any window meanwhile.
    if (finishing_ || launch_windows_noted()) end_launch_windows();
    return;
  }
  if (count + kLaunchLead >= window->begin) {
    raise_tracer(TracerLevel::kActivity, worker_running_);
    tracer_.resume_activity();
    closing_ = false;
  } else if (tracer_.activity_on() && !closing_) {
    last_stop_ = now();
    collect_since_ = 0;
    closing_ = true;
    control_word.fetch_and(~static_cast<std::uint32_t>(kControlRecord), std::memory_order_seq_cst);
    // Far from a window as we were: the next one may have opened since.
    if (current_window.load(std::memory_order_seq_cst) != 0)
      control_word.fetch_or(kControlRecord, std::memory_order_release);
  }
}

// Our own thread.
Pipeline::Outstanding Session::pass(bool hold_signs) {
  Pipeline::Locked pipeline(pipeline_);
  pipeline.pass(hold_signs);
  found_.update(pipeline.tracker().found());
  return pipeline.outstanding();
}

void Session::step(std::unique_lock<std::mutex>& lock) {
  step_yield(lock);
  if (cupti_.take_owed_forgetting()) cupti_.forget(open_ != 0);
  if (launch_armed_) step_launch_trigger();
  if (wanted_) attach_wanted(lock);
  step_schedule(lock);
  step_resume(lock);
  if (lead_since_ != 0) step_lead();
  if (finishing_ && open_ != 0) close_window();
  if (windows_.lacks_memory()) device_reader_.read_edges();
  // Before the first records are taken, also where the window has ended already: they go into files in there.
  // (Without the pipeline's lock: the exiting thread may make the folder meanwhile, as it takes the last
  // records.)
  const bool first_window =
      windows_.opened() != 0 && pipeline_.shown_folder() == nullptr && !pipeline_.folder_failed();
  const std::uint32_t current = current_window.load(std::memory_order_acquire);
  lock.unlock();
  if (first_window) {
    find_current_device();  // where no cuInit has called us
    Pipeline::Locked pipeline(pipeline_);
    if (pipeline.writer().may_write() && current != 0) pipeline.writer().write("open");
  }
  if (current != 0) cupti_.reclaim_idle_buffers(core_.threads.gone());
  if (current != 0) keep_records(current);
  pass();
  lock.lock();

  step_search(lock);
  if (Tracer::failed() && once_.first(OnceLog::Topic::kCuptiFailed)) {
    Log::warn(
        "CUPTI has stopped with a fatal error and finalized itself: device activity is missing from here on");
  }
  const Nanoseconds time = now();
  if (current > said_open_ && time - last_said_ >= kSecond && windows_.opened() >= current) {
    last_said_ = time;
    said_open_ = current;
    Log::info("window " + std::to_string(current) + " is open (" + windows_.reason(current) + ")");
  }
  if (current != 0 && pipeline_.closed_on_disk() && !finishing_ && time - last_write_ >= write_interval()) {
    // A reader must be able to tell that a later window, too, was cut off.
    lock.unlock();
    write_files("open");
    lock.lock();
    last_write_ = now();
  }
  if (cupti_.detach_owed() && open_ == 0 && !closing_ && !wanted_ && lead_since_ == 0 && !launch_armed_ &&
      !finishing_ && !sampler_.running()) {
    detach_tracer(true, true);
  }
  if (closing_ && open_ == 0) {
    if (windows_.opened() != 0 && no_window_left()) {
      if (session_companions.last_window_closed != nullptr) session_companions.last_window_closed();
    }
    if (!stay_attached_ || finishing_ || now() - last_stop_ >= kStayAttached) {
      collect(lock);
    } else {
      dirty_ = true;
    }
  }
  if (dirty_ && !wanted_ && !finishing_ && now() - last_write_ >= write_interval()) {
    const bool active = closing_ || current != 0;
    lock.unlock();
    if (active) tracer_.flush(false);
    pass();
    if (active) Pipeline::Locked(pipeline_).settle_times(now() - kRecordsCome);
    write_files(active ? "open" : "closed");
    lock.lock();
    dirty_ = false;
    last_write_ = now();
    changed_.notify_all();
  }
  if (finishing_ && !finished_ && !ending_search_ && !closing_) {
    lock.unlock();
    final_output();
    lock.lock();
    finished_ = true;
    changed_.notify_all();
  }
}

// One step of collecting the windows that have ended: first no new records, then those that are on their way,
// until CUPTI has given every buffer back; then bare speed again.
void Session::collect(std::unique_lock<std::mutex>& lock) {
  const Nanoseconds time = now();
  if (collect_since_ == 0) {
    if (time - last_stop_ < kLaunchReturns && core_.threads.any_launching()) {
      lock.unlock();
      const timespec pause{0, 200'000};
      nanosleep(&pause, nullptr);
      lock.lock();
      return;
    }
    collect_since_ = time;
    const LaunchGate gate(!finishing_);
    tracer_.stop_activity();
  }
  const Nanoseconds since = collect_since_;
  // A window may open while the lock is released, and end: then activity is on again, and what is still to
  // come comes with the collection that follows it.
  const auto reopened = [&] { return open_ != 0 || wanted_ || collect_since_ != since; };
  lock.unlock();
  const Nanoseconds flush_begin = now();
  tracer_.flush(false);
  const Nanoseconds flush_end = now();
  const Pipeline::Outstanding outstanding = pass(true);
  lock.lock();
  if (reopened()) return;
  Log::debug("collecting for " + in_ms(flush_end - last_stop_) + ": flush took " +
             in_ms(flush_end - flush_begin) + ", " + std::to_string(buffers_.outstanding()) +
             " buffers and " + std::to_string(outstanding.launches) + " launches outstanding");
  if (tracer_.level() != TracerLevel::kDetached && !Tracer::failed() && !tracer_.holds()) {
    Log::warn("somebody has finalized CUPTI: device activity that it had not delivered is missing");
    cupti_.forget(open_ != 0);
  }
  // Every buffer back: nothing is on its way. Where kernels launched after the window's end keep a buffer, a
  // record for every launch will do, but for graphs: one launch, many records.
  const bool delivered = buffers_.outstanding() == 0 && !Tracer::failed();
  const bool complete = tracer_.level() < TracerLevel::kActivity || buffers_.outstanding() == 0 ||
                        (outstanding.launches == 0 && !outstanding.graphs);
  const Nanoseconds deadline = finishing_ ? kExitCollectDeadline : kCollectDeadline;
  if (!complete && now() - collect_since_ < deadline && !Tracer::failed()) return;
  if (!complete) {
    if (!Tracer::failed()) Log::warn(kUnfinished);
    lock.unlock();
    tracer_.flush(true);
    pass(true);
    lock.lock();
    if (reopened()) return;
  }
  const bool sampler_out = stop_sampler_unlocked(lock);
  if (reopened()) return;
  Nanoseconds detached = 0;
  if (!finishing_ && search_source_ == SignSource::kCallbacks && !concluding_ && !Tracer::failed() &&
      (searching_for_window() || !options_.iteration_record.empty())) {
    // Iterations are counted by what the callbacks tell: attached anew, they would miss some.
    tracer_.keep_launches();
  } else if (!finishing_ && !launch_armed_) {
    if (detach_tracer(true, sampler_out)) detached = now();
    if (Tracer::saw_graphs() && once_.first(OnceLog::Topic::kGraphsKeepCupti)) {
      Log::warn(
          "CUPTI is not finalized because the program uses CUDA graphs, which would not survive it: launches "
          "stay some 0.4 us slower");
    }
    // Before a new attachment takes buffers: a finalized CUPTI does not give these back.
    if (tracer_.finalized()) buffers_.reclaim_outstanding();
    // Where a client of the program's is at work, once that has left.
    if (watch_profiler_calls_ && !concluding_ && may_attach() && !foreign_client.has_subscriber()) {
      raise_tracer(TracerLevel::kProfilerCalls, false);
    }
  }
  lock.unlock();
  pass();
  {
    Pipeline::Locked pipeline(pipeline_);
    lock.lock();
    // The launches of a window that has begun since are still to be waited for.
    if (reopened()) return;
    pipeline.settle(delivered, detached);
  }
  const bool say = said_open_ > said_closed_ && open_ == 0 && !finishing_;
  if (say) said_closed_ = said_open_;
  closing_ = open_ != 0;
  dirty_ = !finishing_;  // written once more at the end
  if (finishing_ || now() - last_write_ < write_interval()) return;
  last_write_ = now();
  lock.unlock();
  device_reader_.wait(kReadingWait);
  write_files("closed");
  if (say) {
    const char* folder = pipeline_.shown_folder();
    if (folder != nullptr) once_.first(OnceLog::Topic::kFolder);
    Log::info("window " + std::to_string(said_closed_) + " is closed; " +
              (folder == nullptr ? std::string("no files are written")
                                 : std::string("the files are in ") + folder));
  }
  lock.lock();
  dirty_ = false;
  changed_.notify_all();
}

void Session::finish() noexcept {
  const CallerState caller;
  try {
    // Where exit is called in a signal handler, the thread that holds the lock may be this one.
    std::unique_lock lock = lock_within(kExitLockWait);
    if (!lock.owns_lock()) return;
    if (finishing_) {
      // Our own thread may be writing for INJECT_AFTER.
      changed_.wait_for(lock, std::chrono::nanoseconds(kExitDeadline), [this] { return !concluding_; });
      return;
    }
    finishing_ = true;
    close_window();
    if (launch_armed_) end_launch_windows();
    if (search_source_ != SignSource::kNone) {
      ending_search_ = true;
      try {
        end_search(lock);
      } catch (...) {
        // No memory: the last iteration is missing.
      }
      if (!lock.owns_lock()) lock.lock();
      ending_search_ = false;
    }
    SignalTrigger::look();
    if (windows_.opened() == 0) {
      // There is nothing to write, for our own thread either.
      finished_ = true;
      wake_.notify_one();
      changed_.notify_all();
      Log::warn("the program ended before a window opened (INJECT_WINDOW=" + trigger_text_ + ")" +
                why_no_window(lock) + "; INJECT_WINDOW=always profiles all of it");
      return;
    }
    end(lock);
  } catch (...) {
    once_.no_memory_for("the files are not complete");  // what was written before stays
  }
}

void Session::end(std::unique_lock<std::mutex>& lock) {
  if (!worker_running_ && !dirty_ && !closing_) {
    // Everything is on disk; what is left is the summary, and our thread has gone.
    lock.unlock();
    final_output();
    return;
  }
  if (ensure_worker()) {
    wake_.notify_one();
    const Nanoseconds deadline = (options_.trace & kTraceChrome) != 0 ? kExitTimelineDeadline : kExitDeadline;
    if (changed_.wait_for(lock, std::chrono::nanoseconds(deadline), [this] { return finished_; })) return;
    Log::warn(kUnfinished);
  }
  finished_ = true;
  lock.unlock();
  {
    Pipeline::Locked pipeline(pipeline_, std::try_to_lock);
    if (!pipeline.owns_lock()) return;
    pipeline.writer().ensure_folder();
    pipeline.pass();
    pipeline.settle(false, 0);
  }
  final_output();
}

Session::Conclusion Session::conclude(bool timed_out) noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (finishing_) return Conclusion::kExiting;
    if (!timed_out && (open_ != 0 || wanted_ || !no_window_left())) return Conclusion::kNotYet;
    concluding_ = true;
    close_window();
    if (launch_armed_) end_launch_windows();
    if (search_source_ != SignSource::kNone) stop_search();
    if (tracer_.level() > TracerLevel::kDetached && !closing_) {
      // No window has been open, and CUPTI is attached to look for one.
      last_stop_ = now();
      collect_since_ = 0;
      closing_ = true;
    }
    // As after any window, the late records and CUPTI's detachment included; the program goes on meanwhile,
    // and may come to its own end.
    if (closing_ && ensure_worker()) {
      wake_.notify_one();
      const Nanoseconds deadline = now() + kCollectDeadline + kSecond;
      while (closing_ && !finishing_ && now() < deadline)
        changed_.wait_for(lock, std::chrono::nanoseconds(kDrainInterval));
    }
    if (finishing_) {
      concluding_ = false;
      return Conclusion::kExiting;
    }
    finishing_ = true;
    if (windows_.opened() == 0) {
      finished_ = true;  // there is nothing to write, for our own thread either
      Log::warn("INJECT_TIMEOUT was over before a window opened (INJECT_WINDOW=" + trigger_text_ + ")" +
                why_no_window(lock));
    } else {
      end(lock);
    }
    if (!lock.owns_lock()) lock.lock();
    finished_ = true;
    concluding_ = false;
    changed_.notify_all();
    return Conclusion::kDone;
  } catch (...) {
    concluding_ = false;
    once_.no_memory_for("the files are not complete");
    return Conclusion::kDone;  // what follows the outputs comes nonetheless
  }
}

}  // namespace inject
