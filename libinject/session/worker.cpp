// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/worker.h"

#include <algorithm>

#include "libinject/base/clock.h"
#include "libinject/base/log.h"
#include "libinject/capture/driver.h"
#include "libinject/capture/launch_place.h"
#include "libinject/model/code_place.h"
#include "libinject/record/control.h"
#include "libinject/record/internal_thread.h"
#include "libinject/session/session_parts.h"

namespace inject {

namespace {

// The ring holds a quarter of a second of a launch-bound thread's records; CUPTI's buffers fill in some 16 ms
// each.
constexpr Nanoseconds kDrainInterval = 5 * kMillisecond;
constexpr Nanoseconds kCollectInterval = 2 * kMillisecond;
// How often to check whether CUPTI, which has stayed, can be detached.
constexpr Nanoseconds kDetachInterval = 500 * kMillisecond;
// How often a thread's Python stack is read while launches are named.
constexpr Nanoseconds kStackInterval = kMillisecond;
// How long the thread waits for the next window. malloc keeps threads apart: if windows open every few
// seconds, each new thread would take memory from another part of the heap.
constexpr Nanoseconds kWorkerLinger = 5 * kSecond;

}  // namespace

bool Worker::ensure() noexcept {
  if (running_) return true;
  const int failed = start_internal_thread(&entry, this);
  running_ = failed == 0;
  if (failed != 0 && parts_.once.first(OnceLog::Topic::kNoThread)) {
    parts_.state.log(LogLevel::kError, ThreadProblem("no window can be opened", failed).text());
  }
  return running_;
}

void* Worker::entry(void* worker) noexcept {
  enter_internal_thread();
  ThreadRegistry::register_barrier();
  try {
    static_cast<Worker*>(worker)->work();
  } catch (...) {
    static_cast<Worker*>(worker)->give_up();
  }
  return nullptr;
}

// Out of memory. What is on disk stays; the rest is given up.
void Worker::give_up() noexcept {
  const auto stop_recording = [] {
    control_word.fetch_and(~static_cast<std::uint32_t>(kControlRecord), std::memory_order_release);
    current_window.store(0, std::memory_order_release);
  };
  stop_recording();
  parts_.pipeline.stop_files();  // no file is half-written when the process ends
  SessionState& state = parts_.state;
  const SessionLock lock(state);
  stop_recording();  // a window may have opened in between
  running_ = state.collecting = state.unwritten = false;
  state.set_idle();
  state.stage = SessionState::Stage::kEnded;
  state.changed.notify_all();
  parts_.cupti.sampler().stop(0);
  Log::error("profiling has stopped: out of memory");
}

Nanoseconds Worker::next_wake() const {
  const SessionState& state = parts_.state;
  const Nanoseconds time = now();
  if (state.pending() || parts_.iterations.wants_attachment() || parts_.arbiter.yielding()) return time;
  if (state.naming()) return time + kStackInterval;
  const bool may_reopen = state.stay_attached && !state.open();
  if (state.collecting && !may_reopen) return time + kCollectInterval;
  Nanoseconds wake = Trigger::kNever;
  // If CUPTI is not attached, nothing else wakes us to settle the window if it does not reopen.
  if (state.collecting)
    wake = std::max(state.ended_at + WindowController::kStayAttached, time + kCollectInterval);
  if (state.open() || parts_.cupti.tracer().level() == TracerLevel::kActivity || parts_.launches.armed())
    wake = std::min(wake, time + kDrainInterval);
  if (parts_.cupti.detach_owed()) wake = std::min(wake, time + kDetachInterval);
  wake = std::min(wake, parts_.iterations.next_wake(time));
  wake = std::min(wake, parts_.windows.next_wake());
  wake = std::min(wake, parts_.arbiter.next_wake(time));
  return std::min(wake, parts_.collector.next_wake());
}

void Worker::work() {
  SessionState& state = parts_.state;
  const SessionLock lock(state);
  bool lingered = false;
  while (!state.ended()) {
    if (!state.armed && !state.ending()) {
      state.wait_wake(kWorkerLinger);
      continue;
    }
    if (!state.ending()) {
      const Nanoseconds wake = next_wake();
      if (wake == Trigger::kNever) {
        // Nothing to do before the next window.
        if (!parts_.collector.writing() && (lingered || parts_.windows.none_left())) break;
        lingered = !state.wait_wake(kWorkerLinger);
        continue;
      }
      lingered = false;
      const Nanoseconds time = now();
      if (wake > time) state.wait_wake(wake - time);
    } else if (state.stage == SessionState::Stage::kEndingSearch) {
      state.wait_wake(kMillisecond);
      continue;
    }
    step();
  }
  running_ = false;
}

void Worker::step() {
  SessionState& state = parts_.state;
  parts_.arbiter.step_yield();
  parts_.cupti.forget_if_owed(state.open());
  if (parts_.launches.armed()) parts_.launches.step();
  if (state.pending()) parts_.windows.attach_pending();
  parts_.windows.step_clock();
  parts_.arbiter.step_resume();
  parts_.windows.step_unused_attachment();
  if (state.ending() && (state.open() || state.naming())) parts_.windows.close();
  if (parts_.log.lacks_memory()) parts_.devices.read_edges();
  // Threads that launch before the window also take CUPTI's buffers.
  const bool attached_ahead =
      state.idle() && !state.collecting && parts_.cupti.tracer().level() == TracerLevel::kActivity;
  // A thread started inside the window would read too late for a short one.
  parts_.host.tend(attached_ahead);
  // Before the first records are taken, even if the window has ended already, because they go into files in
  // the folder. (Without the pipeline's lock: the exiting thread may create the folder meanwhile, when it
  // takes the last records.)
  const bool first_window =
      parts_.log.opened() != 0 && !parts_.pipeline.has_files() && !parts_.pipeline.folder_failed();
  const std::uint32_t recorded = current_window.load(std::memory_order_acquire);
  {
    const SessionUnlock unlocked(state);
    if (first_window) {
      find_driver_functions();  // if no cuInit has called us
      Pipeline::Locked(parts_.pipeline).writer().may_write();
    }
    if (recorded != 0 || attached_ahead) parts_.cupti.reclaim_idle_buffers(parts_.core.threads.gone());
    if (recorded != 0) parts_.collector.keep_records(recorded);
    const std::optional<StackSample> stack = is_naming(recorded) ? sample_stack() : std::nullopt;
    parts_.collector.pass();
    if (stack) Pipeline::Locked(parts_.pipeline).add_stack(*stack);
  }
  parts_.iterations.step();
  parts_.collector.step(recorded & ~kNamingWindow);
}

}  // namespace inject
