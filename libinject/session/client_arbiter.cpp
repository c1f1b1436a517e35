// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/client_arbiter.h"

#include <algorithm>
#include <ctime>
#include <mutex>
#include <string>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/gate.h"
#include "libinject/capture/loaded_objects.h"
#include "libinject/record/control.h"
#include "libinject/session/session_parts.h"

namespace inject {

namespace {

constexpr Nanoseconds kMaxLockWait = WindowController::kMaxOpening;
// How long a client waits for us to release CUPTI. It takes milliseconds, unless a flush waits behind a
// running kernel.
constexpr Nanoseconds kMaxYield = 5 * kSecond;
// The part of that which may be spent waiting for the records of work that is still running.
constexpr Nanoseconds kYieldPatience = 500 * kMillisecond;
// Clients that unsubscribe usually finalize CUPTI next.
constexpr Nanoseconds kResumeAfter = 200 * kMillisecond;

const char* action_of(ForeignCall call) noexcept {
  switch (call) {
    case ForeignCall::kSubscribe:
      return " subscribes to CUPTI";
    case ForeignCall::kRegisterBuffers:
      return " registers activity buffers with CUPTI";
    case ForeignCall::kRegisterClock:
      return " registers a clock with CUPTI";
    case ForeignCall::kEnableActivity:
      return " switches CUPTI's activity on";
    case ForeignCall::kFinalize:
      return " finalizes CUPTI";
  }
  return "";
}

std::string client_name() {
  const std::string name = foreign_client.name();
  return name.empty() ? "the program" : name;
}

}  // namespace

bool ClientArbiter::raise(TracerLevel level, bool may_gate) noexcept {
  try {
    std::string refusal;
    if (!may_attach()) {
      refusal =
          client_name() + (foreign_client.has_buffers()
                               ? " has registered activity buffers with CUPTI, and is not done with them"
                               : " is about to use CUPTI itself");
    }
    return parts_.cupti.raise(level, may_gate, refusal);
  } catch (...) {
    parts_.once.no_memory_for("no device activity is recorded");
    return false;
  }
}

bool ClientArbiter::may_attach() const noexcept {
  return !yielding() && foreign_client.lets_attach();
}

bool ClientArbiter::detach(bool sampler_out, ContextWait contexts, bool has_context) noexcept {
  // Finalize at any cost if a client is waiting for CUPTI, or after the last window.
  const bool spare_none = yielding() || parts_.windows.none_left();
  // If no further window is to come, CUPTI is released at once, and stays initialised if the program has no
  // context.
  const bool may_finalize = may_finalize_ && (has_context || !parts_.state.concluding);
  const bool detached = parts_.cupti.detach({sampler_out, spare_none, may_finalize, contexts, has_context});
  if (detached) parts_.state.changed.notify_all();
  return detached;
}

// If the program's own modules import cudaProfilerStart, our hook sees it. Otherwise (Numba, JAX, a static
// runtime) CUPTI has to be subscribed for these two calls alone, at no cost on the launch path.
void ClientArbiter::watch_profiler_calls() noexcept {
  watch_profiler_calls_ = !process_imports("cudaProfilerStart") && raise(TracerLevel::kProfilerCalls, false);
}

// If one of the program's clients is active: not before it has left.
void ClientArbiter::resume_profiler_calls() noexcept {
  if (watch_profiler_calls_ && !parts_.state.concluding && may_attach() && !foreign_client.has_subscriber())
    raise(TracerLevel::kProfilerCalls, true);
}

// Releases the lock while waiting, for other threads that need it.
bool ClientArbiter::stop_sampler() noexcept {
  const PmSampler& sampler = parts_.cupti.sampler();
  if (!sampler.running() && !sampler.still_on()) return true;
  const SessionUnlock unlocked(parts_.state);
  return parts_.cupti.stop_sampler();
}

void ClientArbiter::on_call(ForeignCall call) noexcept {
  try {
    if (call == ForeignCall::kFinalize) parts_.cupti.suspend_sampler();
    if (!lock_session_within(kMaxLockWait)) return;
    SessionState& state = parts_.state;
    const SessionLock lock(state, std::adopt_lock);
    if (state.ending()) return;
    // A window for which CUPTI has been attached opens first, because somebody waits for it.
    const auto attached = [&state]() INJECT_REQUIRES(session_mutex) {
      return !state.attaching && !state.stopping && !(state.pending() && state.pending_attached);
    };
    if (!state.wait_changed(WindowController::kMaxOpening, attached)) {
      state.warn(client_name() + action_of(call) +
                 " while libinject is attaching it: one of the two will have no device activity");
      return;
    }
    if (parts_.cupti.tracer().level() != TracerLevel::kDetached) yield_cupti(call);
  } catch (...) {
    // Out of memory for a message, or for yielding: CUPTI decides.
  }
}

// Our own thread collects what CUPTI has for us and detaches it (step_yield); the client's thread waits for
// that.
void ClientArbiter::yield_cupti(ForeignCall call) {
  SessionState& state = parts_.state;
  Tracer& tracer = parts_.cupti.tracer();
  close_windows(client_name() + action_of(call));
  may_finalize_ = call != ForeignCall::kFinalize;
  yield_since_ = now();
  yielding_.store(true, std::memory_order_release);
  // If no window has been open, there is nothing to collect, and possibly no thread of ours.
  if (parts_.worker.running() || (state.collecting && parts_.worker.ensure())) {
    state.wake.notify_one();
    state.wait_changed(kMaxYield, [&]() INJECT_REQUIRES(session_mutex) {
      return tracer.level() == TracerLevel::kDetached || state.ending();
    });
  }
  if (tracer.level() != TracerLevel::kDetached && !state.ending()) {
    const bool sampler_out = stop_sampler();
    // Our thread may be inside CUPTI, whose calls hang at times.
    if (!state.stopping && !state.attaching && !state.ending()) {
      tracer.stop_activity();
      tracer.flush(true);
      detach(sampler_out);
    }
    if (tracer.level() != TracerLevel::kDetached)
      state.warn("CUPTI is still held by libinject, whose last window is not collected yet");
  }
  yielding_.store(false, std::memory_order_release);
  may_finalize_ = true;
  state.changed.notify_all();
}

// Ends whatever CUPTI is attached for.
void ClientArbiter::close_windows(const std::string& why) {
  SessionState& state = parts_.state;
  state.stay_attached = false;
  const bool launches = parts_.launches.armed();
  if (launches) parts_.launches.note();
  const std::uint32_t window = open_window(current_window.load(std::memory_order_acquire));
  if (window != 0) parts_.log.note_ended_by(window, why);
  parts_.iterations.on_callbacks_lost();
  if (launches) {
    parts_.launches.end();
    if (window == 0) state.warn("no further window opens, as launches can't be counted: " + why);
  } else {
    if (state.open() && parts_.options.window.kind == WindowKind::kAlways && !parts_.windows.asked())
      resume_always_ = true;
    parts_.windows.close();
  }
  if (window != 0) {
    state.warn(str_format("window {} closed early and CUPTI released: {}", window, why));
  } else {
    state.info("CUPTI is released: " + why +
               (watch_profiler_calls_
                    ? "; cuProfilerStart opens no window until the other client has released CUPTI"
                    : ""));
  }
}

// On our own thread, while the client's thread waits.
void ClientArbiter::step_yield() {
  const Tracer& tracer = parts_.cupti.tracer();
  if (!yielding() || tracer.level() == TracerLevel::kDetached) return;
  if (!collect_for_client() || !yielding()) return;
  const bool sampler_out = stop_sampler();
  if (!yielding()) return;
  if (detach(sampler_out) && tracer.finalized()) parts_.cupti.buffers().reclaim_outstanding();
  parts_.state.changed.notify_all();
}

// As long as activity is on, flushing does not wait for running kernels. What has not arrived in time is
// collected by a forced flush, which returns records without times.
bool ClientArbiter::collect_for_client() {
  SessionState& state = parts_.state;
  Tracer& tracer = parts_.cupti.tracer();
  const Nanoseconds since = yield_since_;
  // A launch that began inside the window may not have reached CUPTI yet.
  const auto launching = [&] {
    return now() - since < Collector::kLaunchReturns && parts_.core.threads.any_launching();
  };
  // A graph launch has many records: take another pass after the first have arrived.
  for (int complete = 0; tracer.level() == TracerLevel::kActivity;) {
    Pipeline::Outstanding outstanding;
    {
      const SessionUnlock unlocked(state);
      tracer.flush(false);
      outstanding = parts_.collector.pass(true);
      sleep_for(kMillisecond);
    }
    if (!yielding() || state.ending()) return false;
    if (!launching() && outstanding.launches == 0 && ++complete > (outstanding.graphs ? 1 : 0)) break;
    if (now() - since > kYieldPatience || Tracer::failed()) break;
  }
  {
    const LaunchGate gate(true);
    tracer.stop_activity();
  }
  const SessionUnlock unlocked(state);
  tracer.flush(true);
  parts_.collector.pass(true);
  return true;
}

void ClientArbiter::on_finalized(bool done) noexcept {
  const bool locked = lock_session_within(kMaxLockWait);
  if (!locked) {
    // The thread that attaches CUPTI next will forget it; nothing is sampled before that.
    if (done) {
      parts_.cupti.owe_forgetting();
    } else if (parts_.options.metrics) {
      parts_.cupti.sampler().resume();
    }
    return;
  }
  SessionState& state = parts_.state;
  const SessionLock lock(state, std::adopt_lock);
  if (done && (state.attaching || state.stopping)) {
    parts_.cupti.owe_forgetting();
  } else if (done) {
    parts_.cupti.forget(state.open());
  } else if (parts_.options.metrics) {
    PmSampler& sampler = parts_.cupti.sampler();
    sampler.resume();
    Tracer& tracer = parts_.cupti.tracer();
    if (state.open() && tracer.level() == TracerLevel::kActivity) sampler.start(tracer.api());
  }
}

void ClientArbiter::on_profiler(bool initialize) noexcept {
  parts_.cupti.yield_sampler(initialize);
}

// Windows attach CUPTI by themselves. What remains is to watch the profiler API again, and to reopen an
// `always` window.
void ClientArbiter::on_left(bool for_good) noexcept {
  if (!lock_session_within(kMaxLockWait)) return;
  SessionState& state = parts_.state;
  const SessionLock lock(state, std::adopt_lock);
  if (state.ending() || state.concluding || !state.idle()) return;
  if (!watch_profiler_calls_ && !resume_always_) return;
  resume_at_ = now() + (for_good ? 0 : kResumeAfter);
  if (parts_.worker.ensure()) state.wake.notify_one();
}

Nanoseconds ClientArbiter::next_wake(Nanoseconds time) const {
  return resume_at_ == 0 ? Trigger::kNever : std::max(resume_at_, time);
}

void ClientArbiter::step_resume() {
  SessionState& state = parts_.state;
  if (resume_at_ == 0 || now() < resume_at_ || state.collecting || state.ending()) return;
  resume_at_ = 0;
  // The client has come back: we will be notified again when it leaves.
  if (foreign_client.has_subscriber() || !may_attach()) return;
  if (!state.idle() || state.concluding) return;
  if (std::exchange(resume_always_, false)) {
    state.set_pending("always");
    parts_.windows.attach_pending();
  } else if (watch_profiler_calls_) {
    raise(TracerLevel::kProfilerCalls, true);
  }
}

}  // namespace inject
