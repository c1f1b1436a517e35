// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The session's dealings with training iterations: when they are looked for, and the windows that open and
// close with them.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "libinject/caller_state.h"
#include "libinject/log.h"
#include "libinject/output/demangle.h"
#include "libinject/process.h"
#include "libinject/record/clock.h"
#include "libinject/record/control.h"
#include "libinject/session.h"
#include "libinject/window/iteration_watch.h"

namespace inject {

namespace {

// CUPTI is attached this long before a window's first iteration, in whole iterations, one at least: attaching
// takes some 15 ms, and the first launches after it are slower.
constexpr Nanoseconds kLeadTime = 100 * kMillisecond;
constexpr std::uint64_t kMaxLead = 1000;
constexpr Nanoseconds kLeadPatience = 5 * kSecond;  // and four iterations
constexpr std::size_t kMaxHeld = 64;
constexpr std::size_t kMaxHeldSpans = 65536;
// Without a launch that passes a hook for this long, the launches pass elsewhere: CUPTI's callbacks see them.
constexpr Nanoseconds kNoHookedLaunches = 20 * kSecond;
// Launches pass our hooks, but nothing repeats in what we see of them.
constexpr Nanoseconds kNothingFound = 60 * kSecond;
// When the user is told that nothing has been found so far.
constexpr Nanoseconds kSayNothingFound = 120 * kSecond;
// `auto`: iterations that must have passed without a change of mind, and for how long.
constexpr std::uint64_t kSteadyIterations = 5;
constexpr std::uint64_t kSteadyIterationsUnnamed = 20;
constexpr Nanoseconds kSteadyTime = kSecond;
constexpr std::uint64_t kAutoIterations = 10;
// `iter:`, of iterations without an optimizer that is known by name.
constexpr std::uint64_t kTrustedIterations = 3;

std::string in_whole(double number) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.0f", number);
  return text.data();
}

}  // namespace

void on_iteration_stop(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept {
  if (Session* session = Session::get()) session->iteration_stop(count, time, in_callback);
}

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
  iteration_watch.armed.store(false, std::memory_order_release);
  iteration_watch.next_stop.store(IterationWatch::kNever, std::memory_order_release);
  iteration_offset_.reset();
  forget_functions();
  // What the source before told lies in the threads' queues yet.
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlSearch), std::memory_order_acq_rel);
  search_from_.store(begin_sign_pass().sequence, std::memory_order_relaxed);
  search_from_time_.store(now(), std::memory_order_relaxed);
  reset_search_.store(true, std::memory_order_release);
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

// With data_mutex_ held, before the drain's pass.
void Session::prepare_search() {
  if (reset_search_.exchange(false, std::memory_order_acq_rel)) {
    if (search_ == nullptr) {
      search_ = std::make_unique<IterationSearch>(core_.mangled, core_.names, core_.clock, &search_gaps_);
      if (!options_.iteration_record.empty() &&
          !search_->record_to(expand_option_path(options_.iteration_record))) {
        Log::error("the launch stream can't be recorded: " + search_->recording_error());
      }
    } else {
      if (windows_.opened() != 0) deliver_last_boundary();
      search_->restart();
      deliver_restart(search_from_time_.load(std::memory_order_relaxed));
    }
    search_->ignore_before(search_from_.load(std::memory_order_relaxed));
    drain_.search_with(search_.get());
    found_ = {};
    armed_changes_ = 0;
  }
}

// With data_mutex_ held, after the drain's pass.
void Session::update_search() {
  if (search_ == nullptr) return;
  const IterationDetector& detector = search_->detector();
  if (detector.changes() != armed_changes_ && detector.lock() &&
      iteration_watch.source.load(std::memory_order_acquire) != SignSource::kNone) {
    armed_changes_ = detector.changes();
    iteration_watch.armed.store(false, std::memory_order_release);
    // What was planned was planned in other numbers; step_search() sees to it.
    iteration_watch.next_stop.store(IterationWatch::kNever, std::memory_order_release);
    search_->armed(iteration_watch.count.load(std::memory_order_acquire));
    iteration_watch.arm(detector.lock()->marks);
    found_.since = now();
    found_.begun_then = detector.begun();
  }
  found_.changes = detector.changes();
  found_.offset = search_->offset();
  found_.begun = detector.begun();
  found_.mean_duration = detector.mean_duration();
  found_.events = detector.events();
  if (detector.lock() && detector.changes() == armed_changes_) {
    found_.lock = detector.lock();
  }
  take_spans();
  // Layers may be taken for iterations until an optimizer has been seen, and then their rows would stay.
  if (detector.lock() &&
      (detector.lock()->optimizer || (!detector.expects_optimizer() && now() - found_.since >= kSteadyTime &&
                                      detector.begun() >= found_.begun_then + kSteadyIterationsUnnamed))) {
    release_spans();
  }
}

void Session::take_spans() {
  if (held_changes_ != search_->detector().changes()) {
    // A better lock, which tells the spans from the beginning.
    held_changes_ = search_->detector().changes();
    held_spans_.clear();
  }
  for (const IterationSpan& span : search_->take_spans()) held_spans_.push_back(span);
  if (held_spans_.size() > kMaxHeldSpans) release_spans();
}

void Session::release_spans() {
  for (const IterationSpan& span : held_spans_) deliver_span(span);
  held_spans_.clear();
}

// The window of what begins at that time: one that closes at a boundary has not got what comes after it.
std::uint32_t Session::window_from(Nanoseconds time) const {
  const std::uint32_t window = windows_.at(time);
  return window != 0 && windows_.span(window).end == time ? 0 : window;
}

// What begins at a span's end is known when it is over itself, or when its window is.
void Session::deliver_span(const IterationSpan& span) {
  if (!span.cut || span.begin != 0) deliver_beginning(span);
  span_end_ = span.end;
  span_last_ = span.last_event_time;
  span_next_ = span.phase ? span.number : span.number + 1;
  after_cut_ = span.cut;
  if (span.cut) deliver_cut(span);
}

// What was followed so far ends: the new search knows nothing of it.
void Session::deliver_restart(Nanoseconds time) {
  held_spans_.clear();
  if (delivered_until_ == 0) return;
  IterationBoundary boundary;
  boundary.begin = std::max(time, delivered_until_ + 1);
  boundary.followed = false;
  drain_.iteration_boundary(boundary);
  delivered_until_ = boundary.begin;
  span_end_ = span_last_ = 0;
  after_cut_ = false;
}

// What the next window shows first has begun unseen, after the window before it.
void Session::deliver_cut(const IterationSpan& span) {
  const std::uint32_t window = windows_.at(span.last_event_time);
  IterationBoundary boundary;
  boundary.number = span_next_ = span.following;
  boundary.begin = std::max(window == 0 ? 0 : windows_.span(window).end, span.last_event_time + 1);
  boundary.window_before = span.whole ? window : 0;
  span_end_ = boundary.begin;
  if (boundary.begin <= delivered_until_) return;
  drain_.iteration_boundary(boundary);
  delivered_until_ = boundary.begin;
  search_->keep_numbers(boundary.number, delivered_until_);
}

void Session::deliver_beginning(const IterationSpan& span) {
  IterationBoundary boundary;
  boundary.number = span.number;
  boundary.begin = span.begin;
  {
    const std::lock_guard held(held_mutex_);
    for (; !held_.empty() && held_.front().first <= span.begin; held_.pop_front())
      if (held_.front().first == span.begin) boundary.begin = held_.front().second;
  }
  boundary.window = window_from(boundary.begin);
  // What ends here after a gap has not been seen from its beginning on, whatever its window.
  boundary.window_before =
      after_cut_ ? boundary.window : windows_.at(span_last_ == 0 ? span.begin - 1 : span_last_);
  boundary.label = span.checkpoint ? IterationLabel::kCheckpoint
                   : span.phase    ? IterationLabel::kValidation
                                   : IterationLabel::kIteration;
  if (boundary.begin > delivered_until_ || delivered_until_ == 0) drain_.iteration_boundary(boundary);
  delivered_until_ = std::max(delivered_until_, boundary.begin);
  if (boundary.window != 0)
    search_->keep_numbers(span.phase ? span.number : span.number + 1, delivered_until_);
}

void Session::deliver_last_boundary() {
  if (search_ == nullptr) return;
  release_spans();
  // A window that ends with an iteration, as the profiler's own calls often have it; the clock's ends may lie
  // in the pause after an iteration's last launch.
  const auto trailing = search_->detector().trailing_span();
  const std::uint32_t last = trailing ? windows_.at(trailing->end) : 0;
  if (last != 0 && last != timed_window_.load(std::memory_order_acquire) && !clock_ended_search_) {
    deliver_span(*trailing);
    span_end_ = windows_.span(last).end;
  }
  if (span_end_ <= delivered_until_) return;
  IterationBoundary boundary;
  boundary.number = span_next_;
  boundary.begin = span_end_;
  boundary.window = window_from(span_end_);
  boundary.window_before = windows_.at(span_last_);
  drain_.iteration_boundary(boundary);
  delivered_until_ = span_end_;
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
  if (!search_gaps_.add(begin_sign_pass().sequence, !clock_ended_search_)) {
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
  clock_ended_search_ = windows_.opened() == timed_window_.load(std::memory_order_acquire);
  search_source_ = SignSource::kNone;
  iteration_watch.source.store(SignSource::kNone, std::memory_order_release);
}

// Our own thread, with mutex_ held.
void Session::step_search(std::unique_lock<std::mutex>& lock) {
  if (lead_wanted_) attach_lead(lock);
  if (search_source_ == SignSource::kNone || reset_search_.load(std::memory_order_acquire)) return;
  for (const auto& [opened, count, window] : iteration_edges_) search_->note_window(opened, count, window);
  iteration_edges_.clear();
  if (!searching_for_window() || finishing_) {
    // The last window is over. A recording goes on to the end.
    if (options_.iteration_record.empty() && (search_over_ || callbacks_lost_) && open_ == 0 && !finishing_)
      stop_search();
    return;
  }
  note_found();
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
  if (time - base_ > kSayNothingFound && !said_nothing_found_ &&
      options_.window.kind == WindowKind::kIteration) {
    said_nothing_found_ = true;
    lock.unlock();
    std::string report;
    {
      const std::lock_guard data(data_mutex_);
      report = search_->detector().report();
    }
    Log::warn("no training iterations have been found so far: " + report);
    lock.lock();
  }
}

void Session::note_found() {
  if (known_.changes != found_.changes || known_.lock.has_value() != found_.lock.has_value()) {
    known_ = found_;
    return;
  }
  known_.offset = found_.offset;
  known_.begun = found_.begun;
  known_.mean_duration = found_.mean_duration;
}

// What was taken for iterations was part of them, while a window of these was open: it has as many of the new
// ones, the one that it began in not counted.
void Session::renumber_window() {
  renumber_ = false;
  if (!iteration_window_) return;
  const std::int64_t offset = *iteration_offset_;
  const auto count = static_cast<std::int64_t>(iteration_watch.count.load(std::memory_order_acquire));
  close_at_ = static_cast<std::uint64_t>(count + offset + 1) + iterations_wanted_;
  iteration_watch.next_stop.store(static_cast<std::uint64_t>(static_cast<std::int64_t>(close_at_) - offset),
                                  std::memory_order_release);
  Log::warn(
      "iterations turn out to be longer than those that the open window was opened for: it closes before "
      "iteration " +
      std::to_string(close_at_));
}

// The window to come: from which iteration to which, and where CUPTI is attached for it. `soonest` is the
// first iteration that has not begun.
void Session::plan_iterations(std::uint64_t soonest) {
  const std::int64_t offset = *iteration_offset_;
  const Nanoseconds duration = std::max<Nanoseconds>(known_.mean_duration, 1000);
  const Nanoseconds lead_time = kLeadTime + (options_.metrics ? sampler_.start_time() : 0);
  const std::uint64_t lead = std::clamp<std::uint64_t>(lead_time / duration + 1, 1, kMaxLead);
  std::uint64_t begin = 0;
  std::uint64_t length = 0;
  if (options_.window.kind == WindowKind::kAuto) {
    const std::uint64_t steady = known_.lock->optimizer ? kSteadyIterations : kSteadyIterationsUnnamed;
    if (now() - known_.since < kSteadyTime || known_.begun < known_.begun_then + steady) return;
    begin = soonest + lead;
    length = kAutoIterations;
  } else {
    // Without an optimizer's name the first repetition may be a smaller one.
    if (!known_.lock->optimizer && known_.begun < known_.begun_then + kTrustedIterations) return;
    auto window = schedule_.next(soonest);
    // The first one may be late; of the others, those whose begin has gone by are left out.
    if (window && window->begin < soonest && iteration_windows_ != 0 && options_.window.every != 0)
      window = schedule_.next(window->end);
    if (!window) {
      search_over_ = true;
      return;
    }
    begin = std::max(window->begin, soonest);
    length = options_.window.count;
    late_.clear();
    if (begin != window->begin && !said_late_) {
      late_ = "iteration " + std::to_string(window->begin) + " was over when " +
              (opened_total_ == 0
                   ? "iterations were recognised (" + std::to_string(known_.lock->seen_before) + " had run)"
                   : "its window could open") +
              ": the window opens at iteration " + std::to_string(begin);
    }
  }
  open_at_ = begin;
  close_at_ = begin + length;
  iterations_wanted_ = length;
  lead_at_ = begin > lead ? begin - lead : 0;
  const std::uint64_t stop = lead_at_ < soonest ? begin : lead_at_;
  if (lead_at_ < soonest) {
    lead_wanted_ = true;
    wake_.notify_one();
  }
  iteration_watch.next_stop.store(static_cast<std::uint64_t>(static_cast<std::int64_t>(stop) - offset),
                                  std::memory_order_release);
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
    const auto stop_at = [&](std::uint64_t iteration) {
      iteration_watch.next_stop.store(
          iteration == IterationWatch::kNever
              ? iteration
              : static_cast<std::uint64_t>(static_cast<std::int64_t>(iteration) - offset),
          std::memory_order_release);
    };
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
      stop_at(IterationWatch::kNever);
      return;
    }
    if (number < open_at_) {
      lead_wanted_ = true;
      stop_at(open_at_);
      wake_.notify_one();
      return;
    }
    const std::string reason = iterations_reason(number);
    opening_count_ = count;
    close_at_ = number + iterations_wanted_;
    iteration_window_ = true;
    stop_at(close_at_);
    if (!open_window(lock, reason, in_callback ? AttachOn::kCalling : AttachOn::kOurs, time)) {
      iteration_window_ = false;
      search_over_ = true;
      stop_at(IterationWatch::kNever);
      return;
    }
    ++iteration_windows_;
    if (!late_.empty()) {
      said_late_ = true;
      Log::warn(std::exchange(late_, {}));
    }
    if (open_ != 0 && noted_window_ != open_) iteration_edges_.push_back({true, count, open_});
    if (open_ != 0 && !in_callback) {
      const std::lock_guard held(held_mutex_);
      if (held_.size() == kMaxHeld) held_.pop_front();
      held_.emplace_back(time, windows_.span(open_).begin);
    }
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
    iteration_watch.next_stop.store(
        static_cast<std::uint64_t>(static_cast<std::int64_t>(close_at_) - *iteration_offset_),
        std::memory_order_release);
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
  lock.unlock();
  pass();
  {
    const std::lock_guard data(data_mutex_);
    if (search_ != nullptr) {
      for (const auto& [opened, count, window] : iteration_edges_)
        search_->note_window(opened, count, window);
      iteration_edges_.clear();
      search_->finish();
      take_spans();
      deliver_last_boundary();
    }
  }
  lock.lock();
}

// Releases the lock meanwhile: what the detector knows is data_mutex_'s.
std::string Session::why_no_iterations(std::unique_lock<std::mutex>& lock) {
  const WindowKind kind = options_.window.kind;
  if (kind != WindowKind::kIteration && (kind != WindowKind::kAuto || api_called_)) return "";
  lock.unlock();
  std::string text;
  {
    const std::lock_guard data(data_mutex_);
    if (search_ != nullptr) {
      const IterationDetector& detector = search_->detector();
      text = detector.lock() ? ": " + std::to_string(detector.begun()) + " training iterations ran"
                             : ": no training iterations were found; " + detector.report();
    }
  }
  lock.lock();
  return text;
}

std::optional<IterationInfo> Session::iteration_info() const {
  if (search_ == nullptr) return std::nullopt;
  const IterationDetector& detector = search_->detector();
  IterationInfo info;
  info.source = searched_source_ == SignSource::kHooks ? "hooks" : "callbacks";
  info.found = detector.lock().has_value();
  if (!info.found) {
    info.report = detector.report();
    return info;
  }
  const IterationDetector::Lock& lock = *detector.lock();
  info.optimizer = lock.optimizer;
  info.by_shape = lock.by_shape;
  info.rough = lock.rough;
  info.locked_after = lock.seen_before;
  info.changes = detector.changes() - 1;
  info.events = whole_events(lock);
  info.begins_with = demangle(lock.begin_name);
  info.anchor = demangle(lock.anchor_name);
  info.begun = detector.begun();
  return info;
}

std::string Session::describe(const IterationDetector::Lock& lock) {
  std::string text = std::to_string(lock.seen_before) + " had run; about " + in_whole(lock.events) +
                     " launches, copies and synchronizations each; they begin with " + lock.begin_name +
                     " after " + lock.anchor_name;
  return text;
}

}  // namespace inject
