// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The session's dealings with training iterations: when they are looked for, and the windows that open and
// close with them.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "libinject/base/caller_state.h"
#include "libinject/base/clock.h"
#include "libinject/base/demangle.h"
#include "libinject/base/log.h"
#include "libinject/capture/loaded_objects.h"
#include "libinject/record/control.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/session/session.h"

namespace inject {

namespace {

constexpr Nanoseconds kLeadPatience = 5 * kSecond;  // and four iterations
// Without a launch that passes a hook for this long, the launches pass elsewhere: CUPTI's callbacks see them.
constexpr Nanoseconds kNoHookedLaunches = 20 * kSecond;
// Launches pass our hooks, but nothing repeats in what we see of them.
constexpr Nanoseconds kNothingFound = 60 * kSecond;
// When the user is told that nothing has been found so far.
constexpr Nanoseconds kSayNothingFound = 120 * kSecond;
void on_iteration_stop(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept {
  if (Session* session = Session::get()) session->iteration_stop(count, time, in_callback);
}

}  // namespace

bool Session::searching_for_window() const noexcept {
  const WindowKind kind = options_.window.kind;
  return (kind == WindowKind::kIteration || (kind == WindowKind::kAuto && !api_called_)) && !search_over_ &&
         !callbacks_lost_;
}

// Where no module imports a launch from the CUDA runtime (JAX, Numba, a static runtime), the hooks would see
// none: launch callbacks from the start.
void Session::arm_search() noexcept {
  const bool hooked = process_imports("cudaLaunchKernel") || process_imports("__cudaLaunchKernel") ||
                      process_imports("cudaLaunchKernelExC");
  if (!hooked && raise_tracer(TracerLevel::kLaunches, false)) {
    tried_callbacks_ = true;
    start_search(SignSource::kCallbacks);
    return;
  }
  start_search(SignSource::kHooks);
}

void Session::start_search(SignSource source) noexcept {
  iteration_watch.on_stop.store(&on_iteration_stop, std::memory_order_release);
  iteration_watch.armed.store(false, std::memory_order_release);
  iteration_watch.next_stop.store(IterationWatch::kNever, std::memory_order_release);
  iteration_offset_.reset();
  forget_functions();
  // What the source before told lies in the threads' queues yet.
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlSearch), std::memory_order_acq_rel);
  const std::uint64_t first_sign = begin_sign_pass().sequence;
  pipeline_.restart_search(first_sign, now());
  search_source_ = searched_source_ = source;
  search_since_ = now();
  iteration_watch.source.store(source, std::memory_order_release);
  iteration_watch.recording.store(!options_.iteration_record.empty(), std::memory_order_release);
  if (source == SignSource::kHooks) {
    control_word.fetch_or(kControlSearch, std::memory_order_release);
  } else {
    control_word.fetch_and(~static_cast<std::uint32_t>(kControlSearch), std::memory_order_release);
  }
}

void Session::stop_search() noexcept {
  iteration_watch.source.store(SignSource::kNone, std::memory_order_release);
  iteration_watch.armed.store(false, std::memory_order_release);
  iteration_watch.next_stop.store(IterationWatch::kNever, std::memory_order_release);
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlSearch), std::memory_order_release);
  search_source_ = SignSource::kNone;
  open_at_ = close_at_ = IterationWatch::kNever;
}

// In a window of any other trigger iterations are only told apart: CUPTI's callbacks, which are on, see all
// launches. Numbers count what such windows have shown.
void Session::begin_window_search() noexcept {
  if (search_source_ != SignSource::kNone || tracer_.level() < TracerLevel::kLaunches) return;
  window_search_ = true;
  if (!window_searched_) {
    window_searched_ = true;
    start_search(SignSource::kCallbacks);
    return;
  }
  if (!pipeline_.search_gaps().add(begin_sign_pass().sequence, !pipeline_.clock_ended_search())) {
    window_search_ = false;
    return;
  }
  search_source_ = searched_source_ = SignSource::kCallbacks;
  iteration_watch.anchor_seen.store(false, std::memory_order_release);
  iteration_watch.source.store(SignSource::kCallbacks, std::memory_order_release);
}

void Session::end_window_search() noexcept {
  if (!window_search_) return;
  window_search_ = false;
  pipeline_.set_clock_ended_search(windows_.opened() == pipeline_.clock_window());
  search_source_ = SignSource::kNone;
  iteration_watch.source.store(SignSource::kNone, std::memory_order_release);
}

// Our own thread, with mutex_ held.
void Session::step_search(std::unique_lock<std::mutex>& lock) {
  if (lead_wanted_) attach_lead(lock);
  if (search_source_ == SignSource::kNone || pipeline_.search_restarting()) return;
  note_iteration_edges(lock);
  if (search_source_ == SignSource::kNone || pipeline_.search_restarting()) return;
  if (!searching_for_window() || finishing_) {
    // The last window is over. A recording goes on to the end.
    if (options_.iteration_record.empty() && (search_over_ || callbacks_lost_) && open_ == 0 && !finishing_)
      stop_search();
    return;
  }
  known_.update(found_);
  iteration_offset_ = found_.offset;
  const Nanoseconds time = now();
  if (found_.changes != said_changes_ && found_.lock) {
    said_changes_ = found_.changes;
    open_at_ = IterationWatch::kNever;
    renumber_ = iteration_window_;
    Log::debug("iterations found: " + describe(*found_.lock));
  }
  if (renumber_ && iteration_offset_) renumber_window();
  if (open_ == 0 && !wanted_ && open_at_ == IterationWatch::kNever) {
    if (!may_open_another()) {
      search_over_ = true;
    } else if (iteration_offset_) {
      plan_iterations(static_cast<std::uint64_t>(
          static_cast<std::int64_t>(iteration_watch.count.load(std::memory_order_acquire)) +
          *iteration_offset_ + 1));
    }
  }
  if (found_.lock) return;
  const bool none = found_.events == 0;
  if (search_source_ == SignSource::kHooks && open_ == 0 &&
      time - search_since_ > (none ? kNoHookedLaunches : kNothingFound) && !tried_callbacks_) {
    tried_callbacks_ = true;
    Log::debug(none ? "no launch passes a hook: iterations are looked for in CUPTI's launch callbacks"
                    : "nothing repeats in what the hooks see: CUPTI's launch callbacks are tried");
    if (raise_tracer(TracerLevel::kLaunches, true)) {
      start_search(SignSource::kCallbacks);
      return;
    }
  }
  if (time - base_ > kSayNothingFound && options_.window.kind == WindowKind::kIteration &&
      once_.first(OnceLog::Topic::kNothingFound)) {
    lock.unlock();
    const std::string report = Pipeline::Locked(pipeline_).tracker().report();
    Log::warn("no training iterations have been found so far: " + report);
    lock.lock();
  }
}

// What was taken for iterations was part of them, while a window of these was open: it has as many of the new
// ones, the one that it began in not counted.
void Session::renumber_window() {
  renumber_ = false;
  if (!iteration_window_) return;
  const std::int64_t offset = *iteration_offset_;
  const auto count = static_cast<std::int64_t>(iteration_watch.count.load(std::memory_order_acquire));
  close_at_ = static_cast<std::uint64_t>(count + offset + 1) + iterations_wanted_;
  stop_watch_at(close_at_);
  Log::warn(
      "iterations turn out to be longer than those that the open window was opened for: it closes before "
      "iteration " +
      std::to_string(close_at_));
}

// The window to come, and where CUPTI is attached for it. `soonest` is the first iteration that has not
// begun.
void Session::plan_iterations(std::uint64_t soonest) {
  IterationPlanInput input;
  input.soonest = soonest;
  input.time = now();
  input.attaching = options_.metrics ? sampler_.start_time() : 0;
  input.first = iteration_windows_ == 0;
  const IterationPlan plan = inject::plan_iterations(options_.window, schedule_, known_, input);
  if (plan.result == IterationPlan::Result::kNoMore) search_over_ = true;
  if (plan.result != IterationPlan::Result::kPlanned) return;
  late_.clear();
  if (plan.asked_for && !once_.said(OnceLog::Topic::kLateWindow)) {
    late_ = "iteration " + std::to_string(*plan.asked_for) + " was over when " +
            (opened_total_ == 0
                 ? "iterations were recognised (" + std::to_string(known_.lock->seen_before) + " had run)"
                 : "its window could open") +
            ": the window opens at iteration " + std::to_string(plan.begin);
  }
  open_at_ = plan.begin;
  close_at_ = plan.end();
  iterations_wanted_ = plan.length;
  const bool lead_is_over = plan.lead_at() < soonest;
  if (lead_is_over) {
    lead_wanted_ = true;
    wake_.notify_one();
  }
  stop_watch_at(lead_is_over ? plan.begin : plan.lead_at());
}

// The watch calls at the iteration of that number.
void Session::stop_watch_at(std::uint64_t iteration) noexcept {
  const std::uint64_t count =
      iteration == IterationWatch::kNever
          ? iteration
          : static_cast<std::uint64_t>(static_cast<std::int64_t>(iteration) - *iteration_offset_);
  iteration_watch.next_stop.store(count, std::memory_order_release);
}

// Where windows opened and closed, for the recording of the search.
void Session::note_iteration_edges(std::unique_lock<std::mutex>& lock) {
  if (iteration_edges_.empty()) return;
  const std::vector<IterationEdge> edges = std::exchange(iteration_edges_, {});
  lock.unlock();
  {
    Pipeline::Locked pipeline(pipeline_);
    for (const auto& [opened, count, window] : edges) pipeline.tracker().note_window(opened, count, window);
  }
  lock.lock();
}

// However it came to its end, or was given up before it had begun.
void Session::end_iteration_window() noexcept {
  iteration_window_ = false;
  renumber_ = false;
  schedule_.advance();
  if (options_.window.kind == WindowKind::kAuto || options_.window.every == 0) search_over_ = true;
  open_at_ = close_at_ = IterationWatch::kNever;
  iteration_watch.next_stop.store(IterationWatch::kNever, std::memory_order_release);
}

// A boundary at which something is to be done, on the program's thread, before the launch that begins the
// iteration.
void Session::iteration_stop(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept {
  try {
    std::unique_lock lock = lock_in(in_callback);
    if (!lock.owns_lock() || !iteration_offset_ || finishing_) return;
    const std::int64_t offset = *iteration_offset_;
    const auto number = static_cast<std::uint64_t>(static_cast<std::int64_t>(count) + offset);
    if (iteration_window_) {
      if (number < close_at_) return;
      if (open_ != 0) iteration_edges_.push_back({false, count, open_});
      if (open_ != 0 || wanted_) {
        close_window(time);
      } else {
        end_iteration_window();
      }
      // The next one may begin here.
      if (search_over_ || !may_open_another()) return;
      plan_iterations(number);
      if (open_at_ != number) return;
    }
    if (open_ != 0 || wanted_ || open_at_ == IterationWatch::kNever) {
      // Somebody has opened a window of another kind: once that is closed, the next one is planned.
      open_at_ = close_at_ = IterationWatch::kNever;
      stop_watch_at(IterationWatch::kNever);
      return;
    }
    if (number < open_at_) {
      lead_wanted_ = true;
      stop_watch_at(open_at_);
      wake_.notify_one();
      return;
    }
    const std::string reason = iterations_reason(number);
    opening_count_ = count;
    close_at_ = number + iterations_wanted_;
    iteration_window_ = true;
    stop_watch_at(close_at_);
    if (!open_window(lock, reason, in_callback ? AttachOn::kCalling : AttachOn::kOurs, time)) {
      iteration_window_ = false;
      search_over_ = true;
      stop_watch_at(IterationWatch::kNever);
      return;
    }
    ++iteration_windows_;
    if (!late_.empty() && once_.first(OnceLog::Topic::kLateWindow)) Log::warn(std::exchange(late_, {}));
    if (open_ != 0 && noted_window_ != open_) iteration_edges_.push_back({true, count, open_});
    if (open_ != 0 && !in_callback) pipeline_.hold_iteration(time, windows_.span(open_).begin);
  } catch (...) {
    // No memory: the window stays as it is until the program ends.
  }
}

// CUPTI is attached ahead of a window; a window that is asked for meanwhile opens as soon as it is.
void Session::attach_lead(std::unique_lock<std::mutex>& lock) {
  lead_wanted_ = false;
  if (open_ != 0 || wanted_ || finishing_ || tracer_.level() >= TracerLevel::kActivity) return;
  attach_unlocked(lock, kSecond);
  lead_since_ = now();
  if (wanted_ && !finishing_) {
    wanted_ = false;
    begin_wanted_window();
  }
  changed_.notify_all();
}

std::string Session::iterations_reason(std::uint64_t first) const {
  return "iterations " + std::to_string(first) + "-" + std::to_string(first + iterations_wanted_ - 1) + " (" +
         to_string(options_.window) + ")";
}

// What somebody asked for while CUPTI was being attached. Where nobody could wait for that (in a callback), a
// window of iterations may open in the middle of one: it has as many whole ones after that.
void Session::begin_wanted_window() {
  const std::uint64_t count = iteration_watch.count.load(std::memory_order_acquire);
  const bool late = iteration_window_ && iteration_offset_ && count != opening_count_;
  if (late) {
    const auto first = static_cast<std::uint64_t>(static_cast<std::int64_t>(count) + *iteration_offset_ + 1);
    close_at_ = first + iterations_wanted_;
    stop_watch_at(close_at_);
    wanted_reason_ = iterations_reason(first);
    Log::warn("CUPTI was not attached in time: the window opens in iteration " + std::to_string(first - 1) +
              ", and has all of those from " + std::to_string(first) + " to " +
              std::to_string(close_at_ - 1));
  }
  begin_window(wanted_reason_);
  if (iteration_window_ && open_ != 0) {
    noted_window_ = open_;
    iteration_edges_.push_back({true, count, open_});
  }
}

// The window that CUPTI was attached for does not come: it is detached as after a window. One that comes
// after all attaches it anew.
void Session::step_lead() noexcept {
  if (open_ != 0 || wanted_ || closing_ || finishing_ || tracer_.level() != TracerLevel::kActivity) return;
  if (now() - lead_since_ < kLeadPatience + 4 * known_.mean_duration) return;
  lead_since_ = 0;
  last_stop_ = now();
  collect_since_ = 0;
  closing_ = true;
}

// The process is exiting: what the last launches told.
void Session::end_search(std::unique_lock<std::mutex>& lock) {
  stop_search();
  const std::vector<IterationEdge> edges = std::exchange(iteration_edges_, {});
  lock.unlock();
  {
    Pipeline::Locked pipeline(pipeline_);
    pipeline.pass();
    for (const auto& [opened, count, window] : edges) pipeline.tracker().note_window(opened, count, window);
    pipeline.tracker().finish();
  }
  lock.lock();
}

// Releases the lock meanwhile: what the detector knows is the pipeline's.
std::string Session::why_no_iterations(std::unique_lock<std::mutex>& lock) {
  const WindowKind kind = options_.window.kind;
  if (kind != WindowKind::kIteration && (kind != WindowKind::kAuto || api_called_)) return "";
  lock.unlock();
  std::string text = Pipeline::Locked(pipeline_).tracker().why_none();
  lock.lock();
  return text;
}

}  // namespace inject
