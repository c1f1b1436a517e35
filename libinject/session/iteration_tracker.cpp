// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/iteration_tracker.h"

#include <algorithm>
#include <utility>

#include "libinject/base/format.h"
#include "libinject/base/log.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

namespace {

constexpr std::size_t kMaxHeldSpans = 65'536;
constexpr std::size_t kMaxLatestBegins = 65'536;

}  // namespace

void FoundIterations::update(const FoundIterations& newer) {
  if (changes != newer.changes || since != newer.since || lock.has_value() != newer.lock.has_value()) {
    *this = newer;
    return;
  }
  offset = newer.offset;
  begun = newer.begun;
  typical_duration = newer.typical_duration;
  events = newer.events;
  window_asked = newer.window_asked;
  first_in_window = newer.first_in_window;
}

IterationTracker::IterationTracker(Core& core, const WindowLog& windows, const ProfiledTimes& profiled,
                                   Drain& drain, std::string recording)
    : core_(core),
      windows_(windows),
      drain_(drain),
      recording_(std::move(recording)),
      boundaries_(windows, profiled,
                  {[this](const IterationBoundary& boundary) { drain_.iteration_boundary(boundary); },
                   [this](std::uint64_t next, Nanoseconds until) { search_->keep_numbers(next, until); }}) {}

void IterationTracker::restart(std::uint64_t first_sign, Nanoseconds time, bool in_windows) noexcept {
  in_windows_.store(in_windows, std::memory_order_relaxed);
  restart_sign_.store(first_sign, std::memory_order_relaxed);
  restart_time_.store(time, std::memory_order_relaxed);
  restart_.store(true, std::memory_order_release);
}

void IterationTracker::prepare() {
  if (!restart_.exchange(false, std::memory_order_acq_rel)) return;
  if (search_ == nullptr) {
    search_ = std::make_unique<IterationSearch>(core_.mangled, core_.names, core_.clock, &gaps_);
    if (!recording_.empty() && !search_->record_to(recording_))
      Log::error("INJECT_ITER_RECORD: the launch stream can't be recorded: " + search_->recording_error());
  } else {
    if (windows_.opened() != 0) settle();
    search_->restart();
    held_spans_.clear();
    settled_changes_ = 0;
    boundaries_.restart(restart_time_.load(std::memory_order_relaxed));
  }
  expect_steps();
  search_->ignore_before(restart_sign_.load(std::memory_order_relaxed));
  drain_.search_with(search_.get());
  found_ = {};
  armed_changes_ = 0;
}

void IterationTracker::update(Nanoseconds time) {
  if (search_ == nullptr) return;
  expect_steps();
  const IterationDetector& detector = search_->detector();
  if (detector.changes() != armed_changes_ && detector.lock() &&
      iteration_watch.source.load(std::memory_order_acquire) != SignSource::kNone) {
    arm(time);
  }
  found_.changes = detector.changes();
  found_.offset = search_->offset();
  found_.begun = detector.begun();
  found_.typical_duration = detector.typical_duration();
  found_.events = detector.events();
  if (detector.lock() && detector.changes() == armed_changes_) found_.lock = detector.lock();
  take_spans();
  look_for_first_in_window();
  if (trusted(time)) release_spans();
}

// If only windows are seen, CUPTI's callbacks are the source: no program that has PyTorch launches past the
// hooks.
void IterationTracker::expect_steps() {
  if (iteration_watch.steps_told.load(std::memory_order_acquire))
    search_->expect_steps(iteration_watch.source.load(std::memory_order_acquire) == SignSource::kCallbacks);
}

void IterationTracker::arm(Nanoseconds time) {
  const IterationDetector& detector = search_->detector();
  armed_changes_ = detector.changes();
  iteration_watch.armed.store(false, std::memory_order_release);
  // What was planned used other numbers; the planner plans anew.
  iteration_watch.next_stop.store(IterationWatch::kNever, std::memory_order_release);
  search_->armed(iteration_watch.count.load(std::memory_order_acquire));
  iteration_watch.arm(detector.lock()->marks);
  found_.since = time;
  found_.begun_then = detector.begun();
}

// Layers may be taken for iterations until an optimizer has been seen, and their rows would stay. A window
// that has been settled already has such rows.
bool IterationTracker::trusted(Nanoseconds time) const {
  const IterationDetector& detector = search_->detector();
  if (!detector.lock()) return false;
  return detector.lock()->optimizer || settled_changes_ == detector.changes() ||
         (!detector.expects_optimizer() && time - found_.since >= FoundIterations::kSteadyTime &&
          detector.begun() >= found_.begun_then + FoundIterations::kSteadyUnnamed);
}

void IterationTracker::take_spans() {
  if (held_changes_ != search_->detector().changes()) {
    // A better lock, which yields the spans from the beginning.
    held_changes_ = search_->detector().changes();
    held_spans_.clear();
    latest_begins_.clear();
    begins_dropped_ = false;
    found_.window_asked = 0;
    boundaries_.start_anew();
  }
  for (const IterationSpan& span : search_->take_spans()) {
    held_spans_.push_back(span);
    if (span.phase || span.cut) continue;
    if (latest_begins_.size() == kMaxLatestBegins) {
      latest_begins_.pop_front();
      begins_dropped_ = true;
    }
    latest_begins_.emplace_back(span.begin, span.number);
  }
  if (held_spans_.size() > kMaxHeldSpans) release_spans();
}

// Once for each window, and again if other iterations are found.
void IterationTracker::look_for_first_in_window() {
  const Nanoseconds asked = window_asked_.load(std::memory_order_acquire);
  const IterationDetector& detector = search_->detector();
  if (asked == found_.window_asked || !found_.lock || detector.latest_time() < asked) return;
  const auto first =
      std::ranges::lower_bound(latest_begins_, asked, {}, &decltype(latest_begins_)::value_type::first);
  found_.window_asked = asked;
  found_.first_in_window.reset();
  if (first == latest_begins_.begin() && (begins_dropped_ || detector.earliest_time() > asked)) return;
  found_.first_in_window = first != latest_begins_.end() ? first->second : detector.first_since(asked);
}

void IterationTracker::release_spans() {
  for (const IterationSpan& span : held_spans_) boundaries_.add(span);
  held_spans_.clear();
}

void IterationTracker::note_window(bool opened, std::uint64_t count, std::uint32_t window) {
  if (search_ != nullptr) search_->note_window(opened, count, window);
}

void IterationTracker::settle() {
  if (search_ == nullptr) return;
  release_spans();
  settled_changes_ = held_changes_;
  boundaries_.finish(search_->trailing_span(), clock_window(), clock_ended());
}

void IterationTracker::finish() {
  if (search_ == nullptr) return;
  search_->finish();
  take_spans();
  settle();
}

std::string IterationTracker::report() const {
  return search_ == nullptr ? std::string() : search_->detector().report();
}

namespace {

std::string iterations(std::uint64_t count) {
  return str_format("{} training iteration{}", count, count == 1 ? "" : "s");
}

}  // namespace

std::string IterationTracker::why_none(const WindowSpec& spec) const {
  if (search_ == nullptr) return {};
  const IterationDetector& detector = search_->detector();
  if (!detector.lock()) return ": no training iterations were found; " + detector.report();
  const std::uint64_t begun = detector.begun();
  if (spec.kind == WindowKind::kIteration && begun <= spec.start)
    return str_format(": only {} ran", iterations(begun));
  std::string ran = str_format(": {} ran", iterations(begun));
  // It may have been some repetition in the set-up.
  if (!detector.lock()->optimizer && detector.is_overdue())
    return ran + ", if they were iterations; they stopped long before the end";
  if (!found_.lock) return ran + ", but they were recognized too late for a window";
  if (spec.kind == WindowKind::kAuto && !found_.steady(detector.latest_time())) {
    return ran + str_format(
                     ", but not for long enough: auto waits for one second and {} iterations after it "
                     "has recognized them",
                     found_.steady_iterations());
  }
  // Nothing if a window should have opened: what kept it from that has been logged.
  if (spec.kind == WindowKind::kIteration && found_.begun_then > spec.start)
    return ran + str_format(", {} of them before they were recognized", found_.begun_then);
  return ran;
}

std::optional<IterationInfo> IterationTracker::info(const char* source) const {
  if (search_ == nullptr) return std::nullopt;
  IterationInfo info = info_of(search_->detector());
  info.source = source;
  // If only windows are seen, the first sign may lie anywhere in an iteration. If steps were missed, several
  // iterations were counted as one, and numbers are too small from there on.
  info.rough = info.rough || in_windows_.load(std::memory_order_relaxed) ||
               iteration_watch.steps_missed.load(std::memory_order_acquire);
  return info;
}

std::string describe(const IterationDetector::Lock& lock) {
  return str_format(
      "{} had run; about {:.0f} launches, copies and synchronizations each; they begin with {} after {}",
      lock.seen_before, lock.events, lock.begin_name, lock.anchor_name);
}

}  // namespace inject
