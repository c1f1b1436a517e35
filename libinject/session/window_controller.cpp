// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/window_controller.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/file_work.h"
#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/base/shared_region.h"
#include "libinject/base/text.h"
#include "libinject/capture/driver.h"
#include "libinject/capture/hooks/known_matmuls.h"
#include "libinject/capture/python/program_python.h"
#include "libinject/record/control.h"
#include "libinject/record/memory_use.h"
#include "libinject/record/processor_time.h"
#include "libinject/session/session_parts.h"
#include "libinject/session/signal_trigger.h"

namespace inject {

namespace {

// CUPTI is attached this much before a window that opens by the clock, so that the first launches in it are
// not slower.
constexpr Nanoseconds kClockLead = 100 * kMillisecond;
// If a window opens this soon after the program's cuInit, CUPTI is attached inside cuInit: next, most
// programs call nvmlInit and create the first context, which our thread can't keep apart from attaching.
constexpr Nanoseconds kInitializationLead = kSecond;
// The part of kMaxOpening for starting the sampling of hardware metrics.
constexpr Nanoseconds kMaxMetricsStart = 700 * kMillisecond;
constexpr const char* kStuck =
    "CUPTI does not return from a call: windows can neither be opened nor closed until it does";
// How long a requested window waits for its memory and folder, if somebody waits for it: 15 to 40 ms, or 50
// to 100 if the CPUs are busy. In a window that does not wait, the program's threads are the first to touch
// that memory.
constexpr Nanoseconds kMaxPreparing = 200 * kMillisecond;
constexpr Nanoseconds kWaitSlice = 20 * kMillisecond;
constexpr Nanoseconds kUnusedPatience = 5 * kSecond;  // plus four iterations

std::uint64_t device_bit(std::uint32_t device) {
  return device < MemoryUse::kDevices ? std::uint64_t{1} << device : 0;
}

}  // namespace

TriggerState WindowController::state() const {
  const SessionState& state = parts_.state;
  TriggerState seen;
  seen.time = now() - parts_.base;
  seen.next = parts_.log.opened() + 1;
  seen.next_request = state.requests + 1;
  seen.request = state.pending() || state.open() ? state.requests : 0;
  seen.pending = state.pending();
  seen.window = state.open() ? state.window : state.pending() ? seen.next : 0;
  if (state.open()) seen.window_begin = parts_.log.span(state.window).begin - parts_.base;
  seen.lead = kClockLead + (parts_.options.metrics ? parts_.cupti.sampler().start_time() : 0);
  seen.collecting = state.collecting;
  seen.iterations_found = parts_.iterations.found();
  return seen;
}

bool WindowController::may_open_another() const noexcept {
  if (parts_.state.concluding) return false;
  if (parts_.arbiter.resumes_always()) return true;
  const std::uint32_t most = parts_.options.window.max_windows;
  return !parts_.trigger->has_quota() || most == 0 || parts_.state.begun < most;
}

bool WindowController::none_left() const noexcept {
  if (parts_.options.window.kind == WindowKind::kLaunch) return !parts_.launches.armed();
  return parts_.trigger->exhausted(may_open_another());
}

bool WindowController::reopens() const noexcept {
  return parts_.state.ended_at != 0 && now() - parts_.state.ended_at < kStayAttached;
}

bool WindowController::open(const std::string& reason, AttachOn thread, Nanoseconds at) noexcept {
  SessionState& state = parts_.state;
  // CUPTI is being released for one of the program's clients.
  if (thread == AttachOn::kOurs)
    state.wait_changed(kMaxOpening, [this] { return !parts_.arbiter.yielding(); });
  if (state.naming()) close();
  if (!state.idle() || state.ending() || !may_open_another()) return false;
  PmSampler& sampler = parts_.cupti.sampler();
  // If the program's context is not a primary one, only its thread knows the device. Not in a callback.
  if (parts_.options.metrics && thread == AttachOn::kOurs) sampler.note_devices(device_bit(current_device()));
  state.stay_attached = reopens();
  if (!parts_.worker.ensure()) return false;
  try {
    // Also if CUPTI is attached and our thread is just ending the sampling for the window before.
    const bool sampled = !sampler.starting() || parts_.cupti.sampler_hangs();  // or its calls hang
    const bool attached = parts_.cupti.tracer().level() == TracerLevel::kActivity && sampled;
    if (!state.armed || state.attaching || state.stopping || (!attached && thread == AttachOn::kOurs))
      return start_pending(reason, thread);
    parts_.arbiter.raise(TracerLevel::kActivity, thread == AttachOn::kOurs);
    ++state.requests;
    return begin(reason, at);
  } catch (...) {
    if (state.pending()) {
      state.set_idle();
      state.changed.notify_all();
    }
    parts_.once.no_memory_for("no window is opened");
    return false;
  }
}

// A program does not wait twice for the same file.
Nanoseconds WindowController::most_opening() {
  return FileWork::keeps_waiting(kMaxOpening) ? 0 : kMaxOpening;
}

// Has our thread attach CUPTI and open the window; this one waits, unless it is in a callback.
bool WindowController::start_pending(std::string reason, AttachOn thread) {
  SessionState& state = parts_.state;
  state.set_pending(std::move(reason));
  const std::uint64_t request = state.requests;
  state.pending_waited = thread == AttachOn::kOurs;
  state.wake.notify_one();
  if (state.pending_waited) wait_pending(request);
  return state.is_request(request);
}

void WindowController::wait_pending(std::uint64_t request) {
  SessionState& state = parts_.state;
  const auto done = [&state, request]() INJECT_REQUIRES(session_mutex) {
    return !state.pending() || !state.is_request(request);
  };
  const auto attached = [&state, &done]()
                            INJECT_REQUIRES(session_mutex) { return done() || state.pending_attached; };
  // If CUPTI hangs while the previous window is being ended, one wait is enough.
  if (state.stopping && parts_.once.said(OnceLog::Topic::kStuck)) return;
  if (state.wait_changed(most_opening(), attached)) {
    // If the folder is slow, the window does not wait for it. If CUPTI is being attached again because the
    // program has finalized it, the window waits for that.
    if (!state.wait_changed(kMaxPreparing, done) && state.attaching) state.wait_changed(kMaxOpening, done);
    if (!done() && !state.attaching) {
      parts_.iterations.begin_pending();
      state.changed.notify_all();
    }
  } else {
    if (state.stopping) {
      if (parts_.once.first(OnceLog::Topic::kStuck)) state.warn(kStuck);
      return;
    }
    if (FileWork::keeps_waiting(kMaxOpening)) {
      if (parts_.once.first(OnceLog::Topic::kSlowFolder))
        state.warn("the output folder is slow: files are still being written after " + in_ms(kMaxOpening) +
                   ": the program continues, and windows open once they are");
      return;
    }
    state.warn(state.settling ? "earlier windows are still being processed after " + in_ms(kMaxOpening) +
                                    ": the program continues, and the window opens once they are done"
               : parts_.cupti.tracer().level() == TracerLevel::kActivity
                   ? "hardware metrics are still not being sampled after " + in_ms(kMaxOpening) +
                         ": the program continues, and the window opens once sampling starts or has failed"
                   : "CUPTI is still not attached after " + in_ms(kMaxOpening) +
                         ": it waits for running kernels, or for threads whose launches no hook sees; the "
                         "program continues, and the window opens once it is");
  }
}

bool WindowController::begin(const std::string& reason, Nanoseconds at) {
  SessionState& state = parts_.state;
  Tracer& tracer = parts_.cupti.tracer();
  if (!parts_.arbiter.yielding()) tracer.resume_activity();
  parts_.cupti.forgive_detach();
  parts_.core.set_tick_period();
  const std::uint32_t window =
      parts_.log.open(reason, at == 0 ? now() : at, parts_.core.threads.host_drops());
  state.set_open(window);
  if (tracer.level() < TracerLevel::kActivity || parts_.arbiter.yielding()) {
    const std::string& why = parts_.cupti.untraced();
    parts_.log.note_untraced(window, why.empty() ? "CUPTI could not be attached" : why);
  }
  parts_.iterations.begin_window_search();
  parts_.cupti.sampler().note_window(parts_.log.span(window).begin);
  ++state.begun;
  attached_ahead_at_ = 0;
  // The window first, then the hooks' switch: a hook that sees the switch on sees the window, too.
  current_window.store(window, std::memory_order_release);
  control_word.fetch_or(kControlRecord, std::memory_order_release);
  // This wakes a thread, which may preempt this one.
  parts_.host.window_begins(window, parts_.log.span(window).begin);
  state.wake.notify_one();
  return true;
}

void WindowController::close(Nanoseconds at) noexcept {
  SessionState& state = parts_.state;
  if (state.idle()) return;
  parts_.iterations.on_window_end();
  if (state.pending()) {
    state.set_idle();
    state.changed.notify_all();
    return;
  }
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlRecord), std::memory_order_release);
  current_window.store(0, std::memory_order_release);
  const Nanoseconds time = now();
  if (state.naming()) {
    if (state.ending()) {
      forget_launch_names();
    } else {
      name_launches({});
      reading_is_due(false);
    }
  } else {
    end_window(at == 0 ? time : at);
  }
  state.set_idle();
  parts_.iterations.end_window_search();
  state.collect_from(time);
  state.wake.notify_one();
}

void WindowController::end_window(Nanoseconds end) noexcept {
  const std::uint32_t window = parts_.state.window;
  // Whether the program thread that arrives here has computed or waited since its last call, for the causes
  // of idle time. Our own threads have no state.
  if (ThreadState* thread = ThreadRegistry::current_if_any(); thread != nullptr)
    publish_processor_time(*thread, window, end);
  parts_.log.end(window, end);
  parts_.cupti.sampler().note_window_end(end);
  parts_.host.window_ends(window, end);
}

void WindowController::begin_naming(Nanoseconds at, LaunchNames names) noexcept {
  SessionState& state = parts_.state;
  current_window.store(state.window | kNamingWindow, std::memory_order_release);
  end_window(at);
  state.phase = SessionState::Phase::kNaming;
  name_launches(names);
  if (names.operators && names.stacks)
    expect_memory_reading(INJECT_HAVE_NCCL && (parts_.options.hooks & kHookNccl) != 0);
}

bool WindowController::apply(TriggerAction action, const std::string& reason, AttachOn thread) noexcept {
  SessionState& state = parts_.state;
  switch (action) {
    case TriggerAction::kClose:
      close();
      break;
    case TriggerAction::kReopen:
      close();
      [[fallthrough]];
    case TriggerAction::kOpen:
      return open(reason, thread);
    case TriggerAction::kWait:
      state.wait_changed(most_opening(),
                         [&state]() INJECT_REQUIRES(session_mutex) { return !state.pending(); });
      break;
    case TriggerAction::kAttach:
    case TriggerAction::kNone:
      break;
  }
  return false;
}

void WindowController::profiler_start(bool in_callback) noexcept {
  if (!lock_session(in_callback)) {
    if (in_callback) {
      Log::warn("a cudaProfilerStart came while CUPTI was being detached and opened no window");
    } else {
      warn_stuck();
    }
    return;
  }
  const SessionLock lock(parts_.state, std::adopt_lock);
  const TriggerAction action = parts_.trigger->profiler_start(state());
  parts_.iterations.follow_trigger();
  apply(action, "api", in_callback ? AttachOn::kCalling : AttachOn::kOurs);
}

void WindowController::profiler_stop(bool in_callback) noexcept {
  if (!lock_session(in_callback)) {
    if (!in_callback) warn_stuck();
    return;
  }
  const SessionLock lock(parts_.state, std::adopt_lock);
  apply(parts_.trigger->profiler_stop(state()), {}, AttachOn::kCalling);
}

void WindowController::ranges_changed() noexcept {
  // Bounded: the range may be in a host function, which CUPTI waits for while our thread detaches it.
  if (!lock_session_within(kMaxOpening)) {
    Log::warn("an NVTX range opened or closed while CUPTI was being detached; windows did not follow it");
    return;
  }
  const SessionLock lock(parts_.state, std::adopt_lock);
  follow_ranges(AttachOn::kOurs);
}

void WindowController::follow_ranges(AttachOn thread) noexcept {
  const TriggerAction action =
      parts_.trigger->ranges_changed(parts_.core.nvtx_trigger.open_ranges(), state());
  const bool opened = apply(action, parts_.trigger_text, thread);
  if (action == TriggerAction::kOpen) parts_.trigger->requested(opened ? parts_.state.requests : 0);
}

void WindowController::signalled() noexcept {
  const SessionLock lock(parts_.state);
  if (parts_.state.ending()) return;
  apply(parts_.trigger->signalled(state()), parts_.trigger_text, AttachOn::kOurs);
}

// The lock could not be acquired.
void WindowController::warn_stuck() noexcept {
  if (parts_.once.first(OnceLog::Topic::kStuck)) Log::warn(kStuck);
}

WindowController::Opened WindowController::request(const char* reason) noexcept {
  if (!lock_session(false)) {
    warn_stuck();
    return Opened::kFailed;
  }
  const SessionLock lock(parts_.state, std::adopt_lock);
  if (parts_.state.ending() || parts_.state.concluding) return Opened::kEnding;
  if (parts_.launches.armed()) return Opened::kByItself;
  if (!parts_.state.idle() && !parts_.state.naming()) return Opened::kIsOpen;
  if (!may_open_another()) return Opened::kNoMore;
  asked_ = true;
  parts_.trigger->take_over();
  parts_.iterations.follow_trigger();
  if (!open(reason, AttachOn::kOurs)) return Opened::kFailed;
  parts_.arbiter.resume_nothing();
  return Opened::kYes;
}

bool WindowController::stop() noexcept {
  if (!lock_session(false)) {
    warn_stuck();
    return false;
  }
  const SessionLock lock(parts_.state, std::adopt_lock);
  if (parts_.state.idle()) return false;
  const bool open = !parts_.state.naming();
  if (parts_.state.pending() && parts_.state.requests == clock_request_) clock_stopped_ = true;
  close();
  return open;
}

Nanoseconds WindowController::next_wake() const {
  if (parts_.state.ending() || parts_.state.concluding) return Trigger::kNever;
  const Nanoseconds wake = parts_.trigger->next_wake(state());
  return wake == Trigger::kNever ? wake : parts_.base + wake;
}

void WindowController::step_initialization() noexcept {
  try {
    const Nanoseconds start = parts_.options.window.start;
    if (start > kInitializationLead) return;
    if (start != 0) {
      if (parts_.arbiter.may_attach()) parts_.arbiter.raise(TracerLevel::kActivity, false);
      return;
    }
    if (parts_.trigger->evaluate(state()) != TriggerAction::kOpen) return;
    if (!open(parts_.trigger->reason(), AttachOn::kCalling)) return;
    parts_.trigger->opened(parts_.state.window);
    parts_.pipeline.set_clock_window(parts_.state.window);
  } catch (...) {
    parts_.once.no_memory_for("no window is opened");
  }
}

void WindowController::step_clock() {
  SessionState& state = parts_.state;
  if (state.ending() || state.concluding) return;
  switch (parts_.trigger->evaluate(this->state())) {
    case TriggerAction::kClose:
      close();
      break;
    case TriggerAction::kAttach:
      attach_ahead();
      break;
    case TriggerAction::kOpen:
      open_by_clock();
      break;
    default:
      break;
  }
}

void WindowController::open_by_clock() {
  SessionState& state = parts_.state;
  state.set_pending(parts_.trigger->reason());
  const std::uint64_t request = state.requests;
  clock_request_ = request;
  clock_stopped_ = false;
  state.stay_attached = reopens();
  attach_pending();
  // The program may have stopped this window before it began, and may have opened its own by now.
  if (state.open() && state.is_request(request)) {
    parts_.trigger->opened(state.window);
    parts_.pipeline.set_clock_window(state.window);
  } else if (clock_stopped_) {
    parts_.trigger->opened(0);
    if (none_left()) parts_.callbacks.last_window_closed();
  }
}

// Releases session_mutex while CUPTI is being attached; the requesting thread waits for a bounded time.
void WindowController::attach_pending() {
  SessionState& state = parts_.state;
  const std::uint32_t opened = parts_.log.opened();
  attach(kMaxMetricsStart);
  // Otherwise the program goes on meanwhile, and the window must open now.
  if (state.pending() && state.pending_waited && !state.ending()) {
    state.pending_attached = true;
    state.changed.notify_all();
    const Tracer& tracer = parts_.cupti.tracer();
    const bool attached = tracer.level() != TracerLevel::kDetached;
    prepare_first();
    // The waiting thread has begun it, or it was stopped and this is another one.
    if (state.pending() && !state.pending_attached) return;
    // The program has finalized CUPTI in between.
    if (attached && tracer.level() == TracerLevel::kDetached && state.pending() && !state.ending())
      attach(kMaxMetricsStart);
  }
  if (state.pending() && !state.ending()) {
    parts_.iterations.begin_pending();
  } else if (parts_.log.opened() == opened) {
    // Stopped before it had begun: CUPTI is not needed now.
    if (state.pending()) state.set_idle();
    state.collect_from(now());
  }
  state.changed.notify_all();
}

void WindowController::attach_ahead() {
  SessionState& state = parts_.state;
  if (!state.idle() || state.ending()) return;
  // A client may have released CUPTI by the time the window opens.
  if (parts_.cupti.tracer().level() < TracerLevel::kActivity && parts_.arbiter.may_attach()) attach(kSecond);
  attached_ahead_at_ = now();
  if (state.pending() && !state.ending()) parts_.iterations.begin_pending();
  state.changed.notify_all();
  if (!state.ending()) prepare_first();
}

// Prepares the first window's memory and folder. Releases session_mutex: windows do not wait for a disk.
void WindowController::prepare_first() {
  SessionState& state = parts_.state;
  if (parts_.pipeline.shown_folder() != nullptr || parts_.pipeline.folder_failed()) return;
  parts_.devices.read_edges();
  const SessionUnlock unlocked(state);
  const Nanoseconds begin = now();
  // The first use of each page costs a thread a microsecond or two: ours should pay, not the program's. This
  // includes memory that will move into the file, as CUPTI's buffers do not while they are in use.
  for (const std::span<std::uint8_t> memory :
       {parts_.core.ring.used_first(), parts_.cupti.buffers().used_first(), parts_.core.shapes.used_first(),
        known_matmul_memory()})
    warm_pages(memory.data(), memory.size());
  find_driver_functions();  // if no cuInit has called us
  Pipeline::Locked(parts_.pipeline).writer().prepare_folder();
  state.log(LogLevel::kDebug, "memory and files for the first window took " + in_ms(now() - begin));
}

void WindowController::step_unused_attachment() noexcept {
  if (attached_ahead_at_ == 0) return;
  SessionState& state = parts_.state;
  const bool unused = state.idle() && !state.collecting && !state.ending() &&
                      parts_.cupti.tracer().level() == TracerLevel::kActivity;
  if (!unused || now() - attached_ahead_at_ < kUnusedPatience + 4 * parts_.iterations.typical_duration())
    return;
  attached_ahead_at_ = 0;
  state.collect_from(now());
}

// Releases session_mutex while attaching; tries again if the program has finalized CUPTI in between.
void WindowController::attach(Nanoseconds sampling) {
  constexpr int kMaxAttempts = 3;
  SessionState& state = parts_.state;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    state.attaching = true;
    {
      const SessionUnlock unlocked(state);
      parts_.arbiter.raise(TracerLevel::kActivity, true);
      wait_sampling(sampling);
    }
    state.attaching = false;
    state.changed.notify_all();
    if (!parts_.cupti.forget_if_owed(state.open())) return;
  }
}

// Threads go on recording in the meantime.
void WindowController::wait_sampling(Nanoseconds most) {
  if (!parts_.options.metrics) return;
  const Nanoseconds deadline = now() + most;
  while (!parts_.cupti.sampler().wait_started(kWaitSlice) && now() < deadline) parts_.collector.pass(true);
}

std::string WindowController::why_none() {
  switch (parts_.options.window.kind) {
    case WindowKind::kLaunch:
      return str_format(": it launched {} kernels", launch_trigger.count.load(std::memory_order_acquire));
    case WindowKind::kNvtx:
      return ": " + parts_.core.nvtx_trigger.why_none(parts_.core.names);
    case WindowKind::kSignal:
      return SignalTrigger::why_none();
    case WindowKind::kAuto:
    case WindowKind::kIteration:
      return parts_.iterations.why_none();
    default:
      return parts_.trigger->why_none(state());
  }
}

}  // namespace inject
