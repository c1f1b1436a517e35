// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How the session's windows open and close, and who asks for that: the profiler's start and stop, NVTX
// ranges, a signal, the program itself and `injectctl`. The clock and iterations come by session.cpp's step()
// and session_iterations.cpp.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/lock_within.h"
#include "libinject/base/log.h"
#include "libinject/base/text.h"
#include "libinject/capture/driver.h"
#include "libinject/record/control.h"
#include "libinject/record/memory_use.h"
#include "libinject/record/processor_time.h"
#include "libinject/session/session.h"
#include "libinject/session/signal_trigger.h"

namespace inject {

namespace {

// Longest wait for our lock inside a CUPTI callback.
constexpr Nanoseconds kCallbackWait = 50 * kMillisecond;

std::uint64_t device_bit(std::uint32_t device) {
  return device < MemoryUse::kDevices ? std::uint64_t{1} << device : 0;
}

}  // namespace

bool Session::may_open_another() const noexcept {
  if (concluding_) return false;
  if (resume_always_) return true;
  const WindowSpec& spec = options_.window;
  // A schedule that does not repeat keeps to its one window by itself.
  if (spec.every == 0 && (spec.kind == WindowKind::kIteration || spec.kind == WindowKind::kTime)) return true;
  return spec.max_windows == 0 || opened_total_ < spec.max_windows;
}

bool Session::no_window_left() const noexcept {
  switch (options_.window.kind) {
    case WindowKind::kTime:
      return schedule_.done();
    case WindowKind::kAuto:
      return !api_called_ && (schedule_.done() || search_over_);
    case WindowKind::kIteration:
      return search_over_;
    case WindowKind::kLaunch:
      return !launch_armed_;
    default:
      return !may_open_another();
  }
}

bool Session::open_window(std::unique_lock<std::mutex>& lock, const std::string& reason, AttachOn thread,
                          Nanoseconds at) noexcept {
  // CUPTI is being given up for a client of the program's.
  if (yield_wanted_.load(std::memory_order_acquire) && thread == AttachOn::kOurs) {
    changed_.wait_for(lock, std::chrono::nanoseconds(kMaxOpening),
                      [this] { return !yield_wanted_.load(std::memory_order_acquire); });
  }
  if (open_ != 0 || wanted_ || finishing_ || !may_open_another()) return false;
  // Where the program's context is no primary one, its thread is the one that knows. Not in a callback.
  if (options_.metrics && thread == AttachOn::kOurs) sampler_.note_devices(device_bit(current_device()));
  stay_attached_ = last_stop_ != 0 && now() - last_stop_ < kStayAttached;
  if (!ensure_worker()) return false;
  try {
    // Also where CUPTI is attached and our thread is just ending the sampling for the window before.
    const bool sampled = !sampler_.starting() || cupti_.sampler_hangs();  // or its calls hang
    const bool attached = tracer_.level() == TracerLevel::kActivity && sampled;
    if (attaching_ || (!attached && thread == AttachOn::kOurs)) {
      wanted_reason_ = reason;
      wanted_ = true;
      wake_.notify_one();
      if (thread == AttachOn::kCalling) return true;  // in a callback nothing waits
      changed_.wait_for(lock, std::chrono::nanoseconds(kMaxOpening), [this] { return !wanted_; });
      if (wanted_) {
        Log::warn(tracer_.level() == TracerLevel::kActivity
                      ? "hardware metrics are not sampled after " + in_ms(kMaxOpening) +
                            ": the program goes on, the window opens as soon as they are, or can't be"
                      : "CUPTI is not attached after " + in_ms(kMaxOpening) +
                            ": it waits for running kernels, or for threads that launch past every hook; the "
                            "program goes on, the window opens as soon as it is");
      }
      return open_ != 0 || wanted_;
    }
    raise_tracer(TracerLevel::kActivity, thread == AttachOn::kOurs);
    return begin_window(reason, at);
  } catch (...) {
    wanted_ = false;
    once_.no_memory_for("no window is opened");
    return false;
  }
}

bool Session::begin_window(const std::string& reason, Nanoseconds at) {
  if (!yield_wanted_.load(std::memory_order_acquire)) tracer_.resume_activity();
  cupti_.forgive_detach();
  open_ = windows_.open(reason, at == 0 ? now() : at, core_.threads.host_drops());
  if (tracer_.level() < TracerLevel::kActivity || yield_wanted_.load(std::memory_order_acquire))
    windows_.note_untraced(open_,
                           cupti_.untraced().empty() ? "CUPTI could not be attached" : cupti_.untraced());
  begin_window_search();
  sampler_.note_window(windows_.span(open_).begin);
  ++opened_total_;
  lead_since_ = 0;
  // The window first, the hooks' switch after it: a hook that finds the switch on finds the window, too.
  current_window.store(open_, std::memory_order_release);
  control_word.fetch_or(kControlRecord, std::memory_order_release);
  wake_.notify_one();
  return true;
}

void Session::close_window(Nanoseconds at) noexcept {
  if (iteration_window_ && (open_ != 0 || wanted_)) end_iteration_window();
  if (std::exchange(wanted_, false)) changed_.notify_all();
  if (open_ == 0) return;
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlRecord), std::memory_order_release);
  current_window.store(0, std::memory_order_release);
  last_stop_ = now();
  const Nanoseconds end = at == 0 ? last_stop_ : at;
  // Whether the program's thread that comes here has computed or waited since its last call: for the causes
  // of idle time. Our own threads have no state.
  if (ThreadState* thread = ThreadRegistry::current_if_any(); thread != nullptr)
    publish_processor_time(*thread, open_, end);
  windows_.end(open_, end);
  sampler_.note_window_end(end);
  open_ = 0;
  end_window_search();
  closing_ = true;
  collect_since_ = 0;
  wake_.notify_one();
}

// Inside a callback nothing may wait for us without end: our thread may hold the lock while it detaches
// CUPTI, which in turn waits for callbacks.
std::unique_lock<std::mutex> Session::lock_in(bool in_callback) noexcept {
  return in_callback ? lock_within(kCallbackWait) : std::unique_lock(mutex_);
}

std::unique_lock<std::mutex> Session::lock_within(Nanoseconds wait) noexcept {
  return inject::lock_within(mutex_, wait);
}

void Session::profiler_start(bool in_callback) noexcept {
  std::unique_lock lock = lock_in(in_callback);
  if (!lock.owns_lock()) {
    Log::warn("a cudaProfilerStart came while CUPTI was being detached and opened no window");
    return;
  }
  const WindowKind kind = options_.window.kind;
  if (kind != WindowKind::kAuto && kind != WindowKind::kApi) return;
  // The program has a trigger of its own; `auto` follows it from here on.
  if (!api_called_ && open_ != 0) close_window();
  api_called_ = true;
  if (search_source_ != SignSource::kNone && kind == WindowKind::kAuto) stop_search();
  if (!occurrences_.begin()) return;
  open_window(lock, "api", in_callback ? AttachOn::kCalling : AttachOn::kOurs);
}

void Session::profiler_stop(bool in_callback) noexcept {
  const std::unique_lock lock = lock_in(in_callback);
  if (!lock.owns_lock()) return;
  occurrences_.end();
  const WindowKind kind = options_.window.kind;
  if (api_called_ && (kind == WindowKind::kAuto || kind == WindowKind::kApi)) close_window();
}

void Session::ranges_changed() noexcept {
  // Bounded: the range may be one of a host function's, which the CUPTI that our thread detaches waits for.
  std::unique_lock lock = lock_within(kMaxOpening);
  if (lock.owns_lock()) {
    follow_ranges(lock, AttachOn::kOurs);
  } else {
    Log::warn("an NVTX range opened or closed while CUPTI was being detached; no window did with it");
  }
}

// By what is open now, not by what has just opened or closed: threads come here in any order.
void Session::follow_ranges(std::unique_lock<std::mutex>& lock, AttachOn thread) noexcept {
  if (core_.nvtx_trigger.open_ranges() == 0) {
    occurrences_.end();
    const std::uint32_t current = open_ != 0 ? open_ : wanted_ ? windows_.opened() + 1 : 0;
    if (current != 0 && current == range_window_) close_window();
    range_window_ = 0;
  } else if (!occurrences_.inside()) {
    if (!occurrences_.begin() || open_ != 0 || wanted_) return;
    range_window_ = windows_.opened() + 1;
    open_window(lock, trigger_text_, thread);
  } else if (wanted_ && range_window_ == windows_.opened() + 1) {
    // Another thread's range is opening the window, and this thread's launches belong to it as well.
    changed_.wait_for(lock, std::chrono::nanoseconds(kMaxOpening), [this] { return !wanted_; });
  }
}

void Session::signalled() noexcept {
  std::unique_lock lock(mutex_);
  if (finishing_) return;
  if (open_ != 0 || wanted_) {
    signal_count_.closing();
    close_window();
  } else if (signal_count_.opening()) {
    open_window(lock, trigger_text_, AttachOn::kOurs);
  }
}

bool Session::user_start() noexcept {
  return request_window("inject_start") == Opened::kYes;
}

Session::Opened Session::request_window(const char* reason) noexcept {
  std::unique_lock lock(mutex_);
  if (finishing_ || concluding_) return Opened::kEnding;
  if (launch_armed_) return Opened::kByItself;
  if (open_ != 0 || wanted_) return Opened::kIsOpen;
  if (!may_open_another()) return Opened::kNoMore;
  api_called_ = true;
  if (search_source_ != SignSource::kNone && options_.window.kind == WindowKind::kAuto) stop_search();
  return open_window(lock, reason, AttachOn::kOurs) ? Opened::kYes : Opened::kFailed;
}

bool Session::user_stop() noexcept {
  const std::unique_lock lock(mutex_);
  if (open_ == 0 && !wanted_) return false;
  close_window();
  return true;
}

bool Session::user_flush() noexcept {
  std::unique_lock lock(mutex_);
  ++flushing_;
  wake_.notify_one();
  const bool done =
      changed_.wait_for(lock, std::chrono::seconds(10), [this] { return !closing_ && !dirty_; });
  --flushing_;
  return done;
}

Session::Status Session::status() {
  Status status;
  const std::lock_guard lock(mutex_);
  status.window = current_window.load(std::memory_order_acquire);
  status.state = finishing_ || concluding_ ? "finished"
                 : status.window != 0      ? "open"
                 : closing_                ? "closing"
                 : no_window_left()        ? "finished"
                                           : "waiting";
  status.reason = status.window == 0 ? "" : windows_.reason(status.window);
  status.opened = std::max(windows_.opened(), status.window);
  status.trigger = to_string(options_.window);
  if (const char* folder = pipeline_.shown_folder()) status.folder = folder;
  for (const WindowInfo& window : windows_.copy()) status.losses.add(window.losses);
  status.losses.add(windows_.losses_outside());
  status.base = base_;
  return status;
}

// Goes on from "… before a window opened".
std::string Session::why_no_window(std::unique_lock<std::mutex>& lock) {
  switch (options_.window.kind) {
    case WindowKind::kApi:
      return api_called_ ? "" : ": it did not call cudaProfilerStart";
    case WindowKind::kTime:
      return ": it ran for " + in_ms(now() - base_) + " with CUDA";
    case WindowKind::kLaunch:
      return ": it launched " + std::to_string(launch_trigger.count.load(std::memory_order_acquire)) +
             " kernels";
    case WindowKind::kNvtx:
      return ": " + core_.nvtx_trigger.why_none(core_.names);
    case WindowKind::kSignal:
      return SignalTrigger::why_none();
    default:
      return why_no_iterations(lock);
  }
}

}  // namespace inject
