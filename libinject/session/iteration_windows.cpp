// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/iteration_windows.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/capture/launch_place.h"
#include "libinject/capture/loaded_objects.h"
#include "libinject/capture/python/frame_reader.h"
#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/program_python.h"
#include "libinject/capture/torch/step_listener.h"
#include "libinject/record/control.h"
#include "libinject/session/session_parts.h"

namespace inject {

namespace {

// Search interval once iterations have been found: boundaries are then recognised by the watch, not by our
// thread.
constexpr Nanoseconds kSearchInterval = 20 * kMillisecond;
// Search interval before that: few iterations should pass before they are found.
constexpr Nanoseconds kFirstSearchInterval = 2 * kMillisecond;
// If no launch passes a hook for this long, launches bypass the hooks: CUPTI's callbacks see them.
constexpr Nanoseconds kNoHookedLaunches = 20 * kSecond;
// Launches pass our hooks, but nothing repeats in what the hooks see.
constexpr Nanoseconds kNothingFound = 60 * kSecond;
// How often PyTorch and Python are looked for, and PyTorch is asked again if it has not reported steps.
constexpr Nanoseconds kFrameworkInterval = 250 * kMillisecond;
// The next window may follow at once, and PyTorch may not be ready, or never be.
constexpr Nanoseconds kWatchInterval = 100 * kMillisecond;
constexpr Nanoseconds kWatchAfterWindow = 2 * kSecond;
// How long the exiting thread waits for ours, which may be writing files.
constexpr Nanoseconds kExitPipelineWait = 2 * kSecond;
// How many steps after the last window are timed, and how long they are waited for.
constexpr std::uint64_t kUnprofiledSteps = 30;
constexpr Nanoseconds kLongestTiming = 300 * kSecond;
// How many iterations after a window are named: a single one would not show what differs between iterations.
constexpr std::uint64_t kNamedIterations = 2;
constexpr Nanoseconds kNamingPatience = 5 * kSecond;
// How long INJECT_AFTER waits for the steps to be timed.
constexpr Nanoseconds kLongestWait = 10 * kSecond;
// When the user is warned that nothing has been found so far.
constexpr Nanoseconds kWarnNothingFound = 120 * kSecond;

void emit_to_search(bool on) noexcept {
  if (on) {
    control_word.fetch_or(kControlSearch, std::memory_order_release);
  } else {
    control_word.fetch_and(~static_cast<std::uint32_t>(kControlSearch), std::memory_order_acq_rel);
  }
}

void disarm_watch() noexcept {
  iteration_watch.armed.store(false, std::memory_order_release);
  iteration_watch.next_stop.store(IterationWatch::kNever, std::memory_order_release);
}

}  // namespace

IterationTrigger& IterationWindows::trigger() const {
  return *parts_.trigger->iterations();
}

bool IterationWindows::searching_for_window() const noexcept {
  return parts_.trigger->searches_iterations() && !callbacks_lost_;
}

// If no module imports a launch function of the CUDA runtime (JAX, Numba, a static runtime), the hooks would
// see no launch: use launch callbacks from the start.
void IterationWindows::arm() noexcept {
  const bool hooked = process_imports("cudaLaunchKernel") || process_imports("__cudaLaunchKernel") ||
                      process_imports("cudaLaunchKernelExC");
  tried_callbacks_ = !hooked && parts_.arbiter.raise(TracerLevel::kLaunches, false);
  start_search(tried_callbacks_ ? SignSource::kCallbacks : SignSource::kHooks);
}

void IterationWindows::start_search(SignSource source, bool in_windows) noexcept {
  iteration_watch.on_stop.store(parts_.callbacks.iteration_stop, std::memory_order_release);
  disarm_watch();
  offset_.reset();
  forget_functions();
  // Signs of the previous source are still in the threads' queues.
  emit_to_search(false);
  const std::uint64_t first_sign = begin_sign_pass().sequence;
  since_ = now();
  parts_.pipeline.restart_search(first_sign, since_, in_windows);
  source_ = source;
  shown_source_ = source;
  iteration_watch.source.store(source, std::memory_order_release);
  iteration_watch.recording.store(!parts_.options.iteration_record.empty(), std::memory_order_release);
  emit_to_search(source == SignSource::kHooks);
}

void IterationWindows::stop_search() noexcept {
  iteration_watch.source.store(SignSource::kNone, std::memory_order_release);
  disarm_watch();
  emit_to_search(false);
  source_ = SignSource::kNone;
  if (IterationTrigger* trigger = parts_.trigger->iterations()) trigger->forget_plan();
}

void IterationWindows::follow_trigger() noexcept {
  if (searching() && parts_.trigger->program_drives() && !window_search_) stop_search();
}

void IterationWindows::on_callbacks_lost() {
  if (searching_in_callbacks() && searching_for_window()) callbacks_lost_ = true;
}

// CUPTI's callbacks, which are on, see all launches. Iterations are numbered by what such windows have shown.
void IterationWindows::begin_window_search() noexcept {
  if (searching() || parts_.cupti.tracer().level() < TracerLevel::kLaunches) return;
  window_search_ = true;
  if (!window_searched_) {
    window_searched_ = true;
    start_search(SignSource::kCallbacks, true);
    return;
  }
  Pipeline& pipeline = parts_.pipeline;
  if (!pipeline.search_gaps().add(begin_sign_pass().sequence, !pipeline.clock_ended_search())) {
    window_search_ = false;
    return;
  }
  source_ = SignSource::kCallbacks;
  shown_source_ = SignSource::kCallbacks;
  iteration_watch.anchored.store(Anchored::kNo, std::memory_order_release);
  iteration_watch.source.store(SignSource::kCallbacks, std::memory_order_release);
}

void IterationWindows::end_window_search() noexcept {
  if (!window_search_) return;
  window_search_ = false;
  parts_.pipeline.set_clock_ended_search(parts_.log.opened() == parts_.pipeline.clock_window());
  source_ = SignSource::kNone;
  iteration_watch.source.store(SignSource::kNone, std::memory_order_release);
}

void IterationWindows::update(const FoundIterations& found) {
  found_.update(found);
  any_found_.store(found_.lock.has_value(), std::memory_order_relaxed);
  // Also after the last window.
  if (found_.lock && found_.lock->mixed && found_.lock->steps != 0 &&
      parts_.once.first(OnceLog::Topic::kMixedIterations))
    parts_.state.warn(
        str_format("an iteration turned out to have {} optimizer step{}: earlier windows show iterations of "
                   "another kind, and numbering continues from them",
                   found_.lock->steps, found_.lock->steps == 1 ? "" : "s"));
}

Nanoseconds IterationWindows::next_wake(Nanoseconds time) const {
  if (!searching()) return may_watch_after_window(time) ? time + kWatchInterval : Trigger::kNever;
  return time + (found_.lock || found_.events == 0 ? kSearchInterval : kFirstSearchInterval);
}

std::uint64_t IterationWindows::next_number() const {
  return number_of(iteration_watch.count.load(std::memory_order_acquire)) + 1;
}

void IterationWindows::step() {
  SessionState& state = parts_.state;
  if (std::exchange(attach_wanted_, false)) parts_.windows.attach_ahead();
  watch_memory_errors();
  if (!searching() || parts_.pipeline.search_restarting()) return;
  if (state.open()) timed_before_.reset();
  look_for_frameworks();
  end_overdue_naming();
  record_edges();
  if (!searching() || parts_.pipeline.search_restarting()) return;
  if (!searching_for_window() || state.ending()) {
    // The last window is over. A recording continues to the end.
    const bool over = callbacks_lost_ || (parts_.trigger->iterations() != nullptr && trigger().over());
    if (!over || !parts_.options.iteration_record.empty() || state.open() || state.ending() || keep_timing())
      return;
    stop_search();
    if (has_timed_after_window()) state.unwritten = true;
    return;
  }
  known_.update(found_);
  offset_ = found_.offset;
  if (found_.changes != seen_changes_ && found_.lock) {
    seen_changes_ = found_.changes;
    trigger().forget_plan();
    renumber_ = trigger().active();
    state.log(LogLevel::kDebug, "iterations found: " + describe(*found_.lock));
  }
  if (renumber_ && offset_ && known_.window_asked == asked_time_) renumber_window();
  if (state.idle() && !trigger().planned()) {
    if (!parts_.windows.may_open_another()) {
      trigger().set_over();
    } else if (offset_) {
      plan(next_number());
    }
  }
  if (found_.lock) return;
  try_callbacks();
  warn_nothing_found();
}

bool IterationWindows::may_time_steps() const {
  return searching() && source_ == SignSource::kHooks && known_.lock && parts_.log.opened() != 0 &&
         parts_.options.iteration_record.empty() && now() - parts_.state.ended_at < kLongestWait;
}

// After the last window, the search goes on until enough iterations have run without CUPTI to know a step's
// time: those before the window may be the program's warm-up. This does not apply to a search in CUPTI's
// callbacks: the program is to be left alone.
bool IterationWindows::keep_timing() {
  if (source_ != SignSource::kHooks || !known_.lock || parts_.log.opened() == 0) return false;
  if (parts_.state.collecting) return true;
  // CUPTI stays: no step will run without it.
  if (parts_.profiled.going_on()) return false;
  const std::uint64_t timed = parts_.pipeline.unprofiled_iterations();
  if (!timed_before_) timed_before_ = timed;
  return timed - *timed_before_ < kUnprofiledSteps && now() - parts_.state.ended_at < kLongestTiming;
}

bool IterationWindows::has_timed_after_window() const {
  return timed_before_ && parts_.pipeline.unprofiled_iterations() > *timed_before_;
}

// Nothing was found in what the hooks see.
void IterationWindows::try_callbacks() {
  const bool none = found_.events == 0;
  if (source_ != SignSource::kHooks || parts_.state.open() || tried_callbacks_ ||
      now() - since_ <= (none ? kNoHookedLaunches : kNothingFound)) {
    return;
  }
  tried_callbacks_ = true;
  parts_.state.log(LogLevel::kDebug,
                   none ? "no launches reach the hooks: searching in CUPTI's launch callbacks"
                        : "nothing repeats in what the hooks see: trying CUPTI's launch callbacks");
  if (parts_.arbiter.raise(TracerLevel::kLaunches, true)) start_search(SignSource::kCallbacks);
}

// They may be loaded after CUDA's initialisation, and our callback may be cleared.
void IterationWindows::look_for_frameworks() {
  const bool torch = (parts_.options.hooks & kHookTorch) != 0;
  const bool python = (parts_.options.hooks & kHookPython) != 0;
  if ((!torch && !python) || now() - frameworks_sought_ < kFrameworkInterval) return;
  frameworks_sought_ = now();
  const SessionUnlock unlocked(parts_.state);
  if (torch) listen_to_steps();
  if (python) find_python();
}

bool IterationWindows::is_to_watch_memory_errors() const {
  constexpr unsigned kBoth = kHookTorch | kHookPython;
  return !memory_errors_watched_ && (parts_.options.hooks & kBoth) == kBoth &&
         parts_.options.window.kind != WindowKind::kLaunch;
}

bool IterationWindows::may_watch_after_window(Nanoseconds time) const {
  const SessionState& state = parts_.state;
  const bool again = memory_errors_asked_ > state.ended_at;
  return is_to_watch_memory_errors() && state.idle() && !state.ending() && !parts_.windows.attached_ahead() &&
         state.ended_at != 0 && time - state.ended_at < kWatchAfterWindow &&
         (!again || found_python() != nullptr);
}

// The first call takes 5 to 10 ms of the program's main thread: not in a window, whose times it would change,
// nor right before one. The times of named iterations are shown nowhere. In a long window it has to be done:
// there may be no later opportunity.
bool IterationWindows::may_watch_memory_errors(Nanoseconds time) const {
  const SessionState& state = parts_.state;
  if (!is_to_watch_memory_errors()) return false;
  if (state.naming()) return memory_errors_asked_ < naming_since_;
  const Nanoseconds asked = time - memory_errors_asked_;
  if (state.open())
    return asked >= kFrameworkInterval && time - parts_.log.span(state.window).begin >= kSecond;
  return may_watch_after_window(time) && asked >= kWatchInterval && time - state.ended_at >= kWatchInterval;
}

void IterationWindows::watch_memory_errors() {
  const char* folder = parts_.pipeline.shown_folder();
  if (folder == nullptr || !may_watch_memory_errors(now())) return;
  if (found_python() == nullptr) {
    // The dynamic loader may be busy: a window may have opened meanwhile.
    const SessionUnlock unlocked(parts_.state);
    find_python();
  }
  if (!may_watch_memory_errors(now())) return;
  memory_errors_asked_ = now();
  memory_errors_watched_ = inject::watch_memory_errors(folder);
}

// The program launches nothing more that would end the naming.
void IterationWindows::end_overdue_naming() {
  const SessionState& state = parts_.state;
  const Nanoseconds most = kNamingPatience + 8 * kNamedIterations * known_.typical_duration;
  if (state.naming() && now() - naming_since_ > most) parts_.windows.close();
}

void IterationWindows::warn_nothing_found() {
  if (now() - parts_.base <= kWarnNothingFound || parts_.options.window.kind != WindowKind::kIteration ||
      !parts_.once.first(OnceLog::Topic::kNothingFound)) {
    return;
  }
  const SessionUnlock unlocked(parts_.state);
  Log::warn("no training iterations have been found so far: " +
            Pipeline::Locked(parts_.pipeline).tracker().report());
}

void IterationWindows::note_asked(Nanoseconds time) {
  asked_time_ = time;
  parts_.pipeline.set_window_asked(time);
}

// Iterations are now known by other marks, while a window of them is open. They may be the same iterations.
// Or what was taken for iterations was part of them: then the window gets as many of the new ones, not
// counting the one in which it began, unless the ones it is for are yet to come.
void IterationWindows::renumber_window() {
  SessionState& state = parts_.state;
  renumber_ = false;
  if (!trigger().active()) return;
  const std::uint64_t next = next_number();
  const std::optional<std::uint64_t> first = known_.first_in_window;
  if (first == trigger().first()) {
    stop_watch_at(trigger().close_at());
    return;
  }
  if (state.naming()) {
    parts_.windows.close();
    return;
  }
  if (!first) {
    if (state.open())
      parts_.log.note_ended_by(state.window, "the window had been counting something other than iterations");
    parts_.windows.close();
    return;
  }
  if (trigger().is_early(*first, next)) {
    trigger().give_up();
    if (state.open()) {
      --state.begun;
      parts_.log.note_ended_by(state.window, "the iterations turned out to be parts of longer ones");
      state.warn(
          str_format("the open window's iterations are only parts of longer ones: it closes in "
                     "iteration {}, and another window opens as planned",
                     next - 1));
    }
    parts_.windows.close();
    return;
  }
  trigger().restart_at(std::max(*first, trigger().wanted()));
  stop_watch_at(trigger().close_at());
  state.warn(
      str_format("iterations turn out to be longer than those that the open window was opened "
                 "for: it closes before iteration {}",
                 trigger().close_at()));
}

// Plans the next window, and where CUPTI is attached for it. `soonest` is the first iteration that has not
// begun.
void IterationWindows::plan(std::uint64_t soonest) {
  IterationPlanInput input;
  input.soonest = soonest;
  input.time = now();
  input.attaching = parts_.options.metrics ? parts_.cupti.sampler().start_time() : 0;
  const IterationPlan plan = trigger().plan(known_, input);
  if (plan.result != IterationPlan::Result::kPlanned) return;
  late_.clear();
  if (plan.asked_for && !parts_.once.said(OnceLog::Topic::kLateWindow)) {
    const std::string why =
        parts_.state.begun == 0 && *plan.asked_for < known_.lock->seen_before
            ? str_format("iterations were recognised after {} had run", known_.lock->seen_before)
            : "its window could not open in time";
    late_ = str_format("too late for iteration {}: {}; the window opens at iteration {}", *plan.asked_for,
                       why, plan.begin);
  }
  const bool attach_now = plan.lead_at() < soonest;
  if (attach_now) {
    attach_wanted_ = true;
    parts_.state.wake.notify_one();
  }
  stop_watch_at(attach_now ? plan.begin : plan.lead_at());
}

// Makes the watch call us at the iteration of this number.
void IterationWindows::stop_watch_at(std::uint64_t iteration) noexcept {
  const std::uint64_t count =
      iteration == IterationWatch::kNever
          ? iteration
          : static_cast<std::uint64_t>(static_cast<std::int64_t>(iteration) - *offset_);
  iteration_watch.next_stop.store(count, std::memory_order_release);
}

// Records where windows opened and closed, for the recording of the search.
void IterationWindows::record_edges() {
  if (edges_.empty()) return;
  const std::vector<Edge> edges = std::exchange(edges_, {});
  const SessionUnlock unlocked(parts_.state);
  Pipeline::Locked pipeline(parts_.pipeline);
  for (const auto& [opened, count, window] : edges) pipeline.tracker().note_window(opened, count, window);
}

void IterationWindows::on_window_end() noexcept {
  if (parts_.trigger->iterations() == nullptr || !trigger().active()) return;
  trigger().end();
  renumber_ = false;
  iteration_watch.next_stop.store(IterationWatch::kNever, std::memory_order_release);
}

void IterationWindows::at_boundary(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept {
  if (!lock_session(in_callback)) return;
  SessionState& state = parts_.state;
  const SessionLock lock(state, std::adopt_lock);
  if (!offset_ || state.ending() || parts_.trigger->iterations() == nullptr) return;
  try {
    const std::uint64_t number = number_of(count);
    if (trigger().before(number, !state.idle()) == TriggerAction::kClose) {
      if (state.pending()) {
        // CUPTI is still being attached while the program goes on: the window opens late rather than never.
        note_asked(time);
        trigger().restart_at(number);
        stop_watch_at(trigger().close_at());
        return;
      }
      if (state.open()) edges_.push_back({false, count, state.window});
      if (begin_naming(time)) return;
      if (state.idle()) {
        on_window_end();
      } else {
        parts_.windows.close(time);
      }
      // The next window may begin here.
      if (trigger().over() || !parts_.windows.may_open_another()) return;
      plan(number);
      if (trigger().open_at() != number) return;
    }
    if (trigger().active()) return;
    switch (trigger().before(number, !state.idle())) {
      case TriggerAction::kAttach:
        attach_wanted_ = true;
        stop_watch_at(trigger().open_at());
        state.wake.notify_one();
        break;
      case TriggerAction::kOpen:
        open_at_boundary(count, time, in_callback);
        break;
      default:
        // Somebody has opened a window of another kind: the next one is planned once that is closed.
        trigger().forget_plan();
        stop_watch_at(IterationWatch::kNever);
    }
  } catch (...) {
    // Out of memory: an open window stays open until the program ends, and the next one is planned anew.
    trigger().forget_plan();
  }
}

// The purpose of the window's kernels is determined in the iterations that follow it, so that it costs the
// window no time. Once: the iterations of later windows are the same.
bool IterationWindows::begin_naming(Nanoseconds time) {
  const LaunchNames names{(parts_.options.hooks & kHookTorch) != 0,
                          (parts_.options.hooks & kHookPython) != 0};
  if (!parts_.state.open() || named_ || !launches_can_be_named(names) || !trigger().extend(kNamedIterations))
    return false;
  named_ = true;
  naming_since_ = time;
  stop_watch_at(trigger().close_at());
  parts_.windows.begin_naming(time, names);
  return true;
}

void IterationWindows::open_at_boundary(std::uint64_t count, Nanoseconds time, bool in_callback) {
  using AttachOn = WindowController::AttachOn;
  SessionState& state = parts_.state;
  const std::uint64_t number = number_of(count);
  const std::string reason = trigger().name(number);
  asked_at_ = count;
  asked_in_callback_ = in_callback;
  note_asked(time);
  trigger().begin(number);
  stop_watch_at(trigger().close_at());
  if (!parts_.windows.open(reason, in_callback ? AttachOn::kCalling : AttachOn::kOurs, time)) {
    // False if it was given up; the next one is then planned.
    if (!trigger().active()) return;
    // While this one waited, somebody opened a window of another kind: the next one is planned after that.
    if (state.idle()) {
      trigger().failed();
    } else {
      trigger().give_up();
    }
    stop_watch_at(IterationWatch::kNever);
    return;
  }
  // It was given up while it was being opened.
  if (!trigger().active()) {
    if (state.open()) --state.begun;
    parts_.windows.close();
    return;
  }
  trigger().begun();
  if (!late_.empty() && parts_.once.first(OnceLog::Topic::kLateWindow)) state.warn(std::exchange(late_, {}));
  if (!state.open()) return;
  if (recorded_window_ != state.window) edges_.push_back({true, count, state.window});
  if (!in_callback) parts_.pipeline.hold_iteration(time, parts_.log.span(state.window).begin);
}

// If a window of iterations opens in the middle of one, it gets its full number of iterations after that one.
void IterationWindows::begin_pending() {
  SessionState& state = parts_.state;
  const std::uint64_t count = iteration_watch.count.load(std::memory_order_acquire);
  const bool of_iterations = parts_.trigger->iterations() != nullptr && trigger().active();
  // A callback does not wait: the launch that begins the iteration has been made by now.
  const bool in_iteration = of_iterations && (asked_in_callback_ || count != asked_at_);
  if (in_iteration) note_asked(now());
  if (in_iteration && offset_) {
    const std::uint64_t first = number_of(count) + 1;
    trigger().restart_at(first);
    stop_watch_at(trigger().close_at());
    state.pending_reason = trigger().name(first);
    state.warn(
        str_format("CUPTI was not attached in time: the window opens in iteration {}, and has all of "
                   "those from {} to {}",
                   first - 1, first, trigger().close_at() - 1));
  }
  parts_.windows.begin(state.pending_reason);
  if (of_iterations) {
    recorded_window_ = state.window;
    edges_.push_back({true, count, state.window});
  }
}

void IterationWindows::end() {
  stop_search();
  const std::vector<Edge> edges = std::exchange(edges_, {});
  const SessionUnlock unlocked(parts_.state);
  Pipeline::Locked pipeline(parts_.pipeline, kExitPipelineWait);
  if (!pipeline.owns_lock()) return;  // the last iterations are missing; the reason is logged at the end
  pipeline.pass();
  for (const auto& [opened, count, window] : edges) pipeline.tracker().note_window(opened, count, window);
  pipeline.tracker().finish();
}

std::string IterationWindows::why_none() {
  if (parts_.trigger->program_drives()) return "";
  const SessionUnlock unlocked(parts_.state);
  Pipeline::Locked pipeline(parts_.pipeline, kExitPipelineWait);
  return pipeline.owns_lock() ? pipeline.tracker().why_none(parts_.options.window) : "";
}

}  // namespace inject
