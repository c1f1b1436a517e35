// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Session's side of CUPTI: attaching and detaching it, and taking turns with others who use it
// (docs/reliability.md). CUPTI itself refuses a second subscriber, and says who the first is; a window then
// opens with what the hooks alone can do. The program's own clients are seen by hooks as well
// (cupti/foreign_client.h): before a call of theirs that takes CUPTI is made, the window that is open is
// closed and CUPTI given up, and no window attaches it until they are done.
#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/log.h"
#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/gate.h"
#include "libinject/record/control.h"
#include "libinject/session/session.h"

namespace inject {

namespace {

// How much of kMaxOpening is for the sampling of hardware metrics to start.
constexpr Nanoseconds kMaxMetricsStart = 700 * kMillisecond;
constexpr Nanoseconds kWaitSlice = 20 * kMillisecond;
// A client of the program's waits so long for us to give CUPTI up. It is a matter of milliseconds, but for a
// flush that stands behind a running kernel.
constexpr Nanoseconds kMaxYield = 5 * kSecond;
// … and that much of it for the records of work that has been launched and has not ended.
constexpr Nanoseconds kYieldPatience = 500 * kMillisecond;
// Clients that unsubscribe mostly finalize CUPTI next.
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

bool Session::raise_tracer(TracerLevel level, bool may_gate) noexcept {
  try {
    std::string refusal;
    if (!may_attach()) {
      refusal =
          client_name() + (foreign_client.has_buffers()
                               ? " has registered activity buffers with CUPTI, and is not done with them"
                               : " is about to use CUPTI itself");
    }
    return cupti_.raise(level, may_gate, refusal);
  } catch (...) {
    once_.no_memory_for("no device activity is recorded");
    return false;
  }
}

// No client of the program's is at work, or waits for us to give CUPTI up.
bool Session::may_attach() const noexcept {
  return !yield_wanted_.load(std::memory_order_acquire) && foreign_client.lets_attach();
}

bool Session::detach_tracer(bool may_gate, bool sampler_out) noexcept {
  // Nothing is spared where a client of the program's waits for CUPTI, or after the last window.
  const bool spare_none = yield_wanted_.load(std::memory_order_acquire) || no_window_left();
  const bool detached = cupti_.detach({may_gate, sampler_out, spare_none, yield_finalizes_});
  if (detached) changed_.notify_all();
  return detached;
}

// What another thread asked for, with mutex_ released while CUPTI is being attached: who asked waits for a
// bounded time.
void Session::attach_wanted(std::unique_lock<std::mutex>& lock) {
  attach_unlocked(lock, kMaxMetricsStart);
  if (wanted_ && !finishing_) {
    wanted_ = false;
    begin_wanted_window();
  } else {
    // Stopped before it had begun: nobody needs CUPTI now.
    wanted_ = false;
    last_stop_ = now();
    collect_since_ = 0;
    closing_ = true;
  }
  changed_.notify_all();
}

// Threads go on recording meanwhile.
void Session::wait_sampling(Nanoseconds most) {
  if (!options_.metrics) return;
  for (const Nanoseconds deadline = now() + most; !sampler_.wait_started(kWaitSlice) && now() < deadline;)
    pass(true);
}

// With mutex_ released meanwhile; anew where the program has finalized CUPTI in between.
void Session::attach_unlocked(std::unique_lock<std::mutex>& lock, Nanoseconds sampling) {
  constexpr int kMaxAttempts = 3;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    attaching_ = true;
    lock.unlock();
    raise_tracer(TracerLevel::kActivity, true);
    wait_sampling(sampling);
    lock.lock();
    attaching_ = false;
    if (!cupti_.take_owed_forgetting()) return;
    cupti_.forget(open_ != 0);
  }
}

// Waiting is not for whoever wants mutex_ meanwhile.
bool Session::stop_sampler_unlocked(std::unique_lock<std::mutex>& lock) noexcept {
  if (!sampler_.running() && !sampler_.still_on()) return true;
  lock.unlock();
  const bool out = cupti_.stop_sampler();
  lock.lock();
  return out;
}

// A client of the program's is about to make `call`, on this thread, which may hold any lock of the program's
// and be in one of that client's own callbacks: every wait is bounded. The call is made in any case.
void Session::foreign_call(ForeignCall call) noexcept {
  try {
    if (call == ForeignCall::kFinalize) cupti_.suspend_sampler();
    std::unique_lock lock = lock_within(kMaxOpening);
    if (!lock.owns_lock() || finishing_) return;
    const auto attached = [this] { return !attaching_; };
    if (!changed_.wait_for(lock, std::chrono::nanoseconds(kMaxOpening), attached)) {
      Log::warn(client_name() + action_of(call) +
                " while libinject is attaching it: one of the two will have no device activity");
      return;
    }
    if (tracer_.level() != TracerLevel::kDetached) yield_cupti(lock, call);
  } catch (...) {
    // No memory to say so, or to give way: CUPTI has the last word.
  }
}

// Our own thread collects what CUPTI has for us and detaches it (step_yield); the client's waits for that.
void Session::yield_cupti(std::unique_lock<std::mutex>& lock, ForeignCall call) {
  stay_attached_ = false;
  const std::string why = client_name() + action_of(call);
  if (launch_armed_) note_launch_windows();
  const std::uint32_t window = current_window.load(std::memory_order_acquire);
  if (window != 0) windows_.note_ended_by(window, why);
  if (search_source_ == SignSource::kCallbacks && searching_for_window()) callbacks_lost_ = true;
  if (launch_armed_) {
    end_launch_windows();
    if (window == 0) Log::warn("no further window opens, as launches can't be counted: " + why);
  } else {
    if (open_ != 0 && options_.window.kind == WindowKind::kAlways && !api_called_) resume_always_ = true;
    close_window();
  }
  if (window != 0) {
    Log::warn("window " + std::to_string(window) + " is closed early and CUPTI given up: " + why);
  } else if (watch_profiler_calls_) {
    Log::info("CUPTI is given up: " + why + "; cuProfilerStart opens no window until it has let go");
  } else {
    Log::info("CUPTI is given up: " + why);
  }
  yield_finalizes_ = call != ForeignCall::kFinalize;
  yield_since_ = now();
  yield_wanted_.store(true, std::memory_order_release);
  // Where no window has been open there is nothing to collect, and may be no thread of ours.
  if (worker_running_ || (closing_ && ensure_worker())) {
    wake_.notify_one();
    changed_.wait_for(lock, std::chrono::nanoseconds(kMaxYield),
                      [this] { return tracer_.level() == TracerLevel::kDetached || finishing_; });
  }
  if (tracer_.level() != TracerLevel::kDetached && !finishing_) {
    tracer_.stop_activity();
    tracer_.flush(true);
    detach_tracer(true, stop_sampler_unlocked(lock));
    if (tracer_.level() != TracerLevel::kDetached)
      Log::warn("CUPTI is still held by libinject, whose last window is not collected yet");
  }
  yield_wanted_.store(false, std::memory_order_release);
  yield_finalizes_ = true;
  changed_.notify_all();
}

// Our own thread, while a client's waits. As long as activity is on, flushing does not wait for running
// kernels; what has not come in time is asked for by force, which returns records without times.
void Session::step_yield(std::unique_lock<std::mutex>& lock) {
  if (!yield_wanted_.load(std::memory_order_acquire) || tracer_.level() == TracerLevel::kDetached) return;
  const auto wanted = [this] { return yield_wanted_.load(std::memory_order_acquire); };
  // A launch that began inside the window may not have come to CUPTI yet.
  const auto launching = [this] {
    return now() - yield_since_ < kLaunchReturns && core_.threads.any_launching();
  };
  // A graph's launch is one, its records are many: once more after the first has come.
  for (int complete = 0; tracer_.level() == TracerLevel::kActivity;) {
    lock.unlock();
    tracer_.flush(false);
    const Pipeline::Outstanding outstanding = pass(true);
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
    lock.lock();
    if (!wanted() || finishing_) return;
    if (!launching() && outstanding.launches == 0 && ++complete > (outstanding.graphs ? 1 : 0)) break;
    if (now() - yield_since_ > kYieldPatience || Tracer::failed()) break;
  }
  {
    const LaunchGate gate(true);
    tracer_.stop_activity();
  }
  lock.unlock();
  tracer_.flush(true);
  pass(true);
  lock.lock();
  if (!wanted()) return;
  const bool sampler_out = stop_sampler_unlocked(lock);
  if (!wanted()) return;
  if (detach_tracer(true, sampler_out) && tracer_.finalized()) buffers_.reclaim_outstanding();
  changed_.notify_all();
}

void Session::foreign_finalized(bool done) noexcept {
  const std::unique_lock lock = lock_within(kMaxOpening);
  if (done && (!lock.owns_lock() || attaching_)) {
    // Whoever is about to attach CUPTI forgets it then; nothing is sampled before.
    cupti_.owe_forgetting();
    return;
  }
  if (done) {
    cupti_.forget(open_ != 0);
  } else if (options_.metrics) {
    sampler_.resume();
    if (lock.owns_lock() && open_ != 0 && tracer_.level() == TracerLevel::kActivity)
      sampler_.start(tracer_.api());
  }
}

void Session::foreign_profiler(bool initialize) noexcept {
  cupti_.yield_sampler(initialize);
}

// Windows attach CUPTI by themselves. What is left is to watch for the profiler API once more, and to go on
// with a window that was to last always. May be called in a callback of the client's.
void Session::foreign_left(bool for_good) noexcept {
  try {
    const std::unique_lock lock = lock_within(kMaxOpening);
    if (!lock.owns_lock() || finishing_ || concluding_ || open_ != 0 || wanted_) return;
    if (!watch_profiler_calls_ && !resume_always_) return;
    resume_at_ = now() + (for_good ? 0 : kResumeAfter);
    if (ensure_worker()) wake_.notify_one();
  } catch (...) {
    // No memory: the next window that is asked for tries by itself.
  }
}

// Our own thread.
void Session::step_resume(std::unique_lock<std::mutex>& lock) {
  if (resume_at_ == 0 || now() < resume_at_ || closing_ || finishing_) return;
  resume_at_ = 0;
  // It has come back: its next leaving is told as well.
  if (foreign_client.has_subscriber() || !may_attach()) return;
  if (open_ != 0 || wanted_ || concluding_) return;
  if (std::exchange(resume_always_, false)) {
    wanted_reason_ = "always";
    wanted_ = true;
    attach_wanted(lock);
  } else if (watch_profiler_calls_) {
    raise_tracer(TracerLevel::kProfilerCalls, true);
  }
}

}  // namespace inject
