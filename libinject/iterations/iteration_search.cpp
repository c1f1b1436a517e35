// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/iteration_search.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "libinject/base/demangle.h"
#include "libinject/base/format.h"
#include "libinject/base/text.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

namespace {

constexpr char kLetters[] = "KGHDPSYLT";
constexpr std::size_t kMaxNameLength = 16 * 1024;

std::uint32_t dense(std::unordered_map<std::uint64_t, std::uint32_t>& ids, std::uint64_t value) {
  return ids.emplace(value, static_cast<std::uint32_t>(ids.size() + 1)).first->second;
}

}  // namespace

IterationInfo info_of(const IterationDetector& detector) {
  IterationInfo info;
  info.found = detector.lock().has_value();
  if (!info.found) {
    info.report = detector.report();
    return info;
  }
  const IterationDetector::Lock& lock = *detector.lock();
  info.optimizer = lock.optimizer;
  info.steps = lock.steps;
  info.doubtful = lock.doubtful || detector.has_many_phases() || detector.steps_are_doubtful();
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

void IterationSearch::advance(const SignPass& pass, bool hold) {
  if (hold && waiting_.size() < kMaxHeld) return;
  if (new_gaps_ != nullptr) new_gaps_->move_to(gaps_);
  clock_.calibrate();
  detector_.allow(kMaxVisitsPerCall);
  // A boundary has the place of the sign that it precedes, and was published before it. One thread's signs
  // are in order, and up to a million may be held.
  const auto place = [](const Waiting& w) { return w.record.sequence; };
  if (!std::ranges::is_sorted(waiting_, {}, place)) std::ranges::stable_sort(waiting_, {}, place);
  const auto end =
      std::ranges::find_if(waiting_, [&](const Waiting& w) { return w.record.sequence >= pass.sequence; });
  assign_times(static_cast<std::size_t>(end - waiting_.begin()), pass.time);
  for (auto waiting = waiting_.begin(); waiting != end; ++waiting) feed_detector(*waiting);
  waiting_.erase(waiting_.begin(), end);
}

Nanoseconds IterationSearch::own_time(const SignRecord& record) const {
  if (record.sign == SignKind::kBoundary) return record.shape;
  if (record.begin != 0) return record.begin;
  return record.ticks == 0 ? 0 : clock_.time(record.ticks);
}

// Signs without a time are spread evenly between those with one, and the last ones as far apart as those
// before them, but none after the beginning of the pass. Signs with a time keep it, since boundaries and
// launches are compared by it.
void IterationSearch::assign_times(std::size_t count, Nanoseconds pass_began) {
  std::size_t from = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Nanoseconds time = own_time(waiting_[i].record);
    if (time == 0) continue;
    const std::size_t steps = i - from + 1;
    const Nanoseconds distance = latest_ != 0 && time > latest_ ? time - latest_ : 0;
    for (std::size_t j = from; j < i; ++j) waiting_[j].time = time - distance * (i - j) / steps;
    waiting_[i].time = time;
    spacing_ = distance / steps;
    latest_ = time;
    from = i + 1;
  }
  for (std::size_t j = from; j < count; ++j) {
    const Nanoseconds time = latest_ + spacing_ * (j - from + 1);
    waiting_[j].time = std::max(latest_, std::min(time, pass_began));
  }
}

void IterationSearch::finish() {
  advance({~std::uint64_t{0}, now()});
  last_spans_ = take_spans();
  if (const auto last = detector_.unfinished_span(); last && recording()) write_span(*last);
  recording_.close();
}

void IterationSearch::restart() {
  const std::uint64_t next = detector_.next_number();
  detector_ = IterationDetector();
  detector_.keep_numbers(next, 0);
  if (steps_expected_) detector_.expect_steps(*steps_expected_);
  waiting_.clear();
  gaps_.clear();
  units_.clear();
  discarded_ = latest_signs_;
  after_gap_ = 0;
  last_spans_.clear();
  offset_.reset();
  boundary_.reset();
  if (!recording()) return;
  recording_.buffer() += "R\n";
  if (steps_expected_) append_format(recording_.buffer(), "E {:d}\n", *steps_expected_);
}

void IterationSearch::expect_steps(bool few) {
  if (steps_expected_ == few) return;
  steps_expected_ = few;
  detector_.expect_steps(few);
  if (recording()) append_format(recording_.buffer(), "E {:d}\n", few);
}

std::vector<IterationSpan> IterationSearch::take_spans() {
  std::vector<IterationSpan> spans = std::exchange(last_spans_, {});
  for (IterationSpan& span : detector_.take_spans()) {
    if (recording()) write_span(span);
    add_units(span);
    spans.push_back(span);
  }
  return spans;
}

std::optional<IterationSpan> IterationSearch::trailing_span() const {
  std::optional<IterationSpan> span = detector_.trailing_span();
  if (span) add_units(*span);
  return span;
}

void IterationSearch::add_units(IterationSpan& span) const {
  // Units reported last before a restart belong to the first event after it.
  const bool discarded = span.first_event == 0 && discarded_.units > discarded_.over;
  // No number has arrived since that shows where the dropped ones were.
  const bool dropped =
      iteration_watch.dropped_units.load() != dropped_units_ && span.end_event > units_.latest();
  if (!discarded && !dropped) span.units = units_.between(span.first_event, span.end_event);
}

void IterationSearch::take_units(const SignRecord& record) {
  const std::uint64_t position = detector_.events();
  if (record.name != 0) units_.add_unknown(after_gap_, after_gap_);
  const auto dropped_until = static_cast<std::uint32_t>(record.stream);
  if (dropped_until != dropped_units_) units_.add_unknown(units_.latest(), position);
  dropped_units_ = static_cast<std::uint32_t>(record.shape);
  units_.add(position, std::bit_cast<double>(record.function));
}

void IterationSearch::feed_detector(const Waiting& waiting) {
  const SignRecord& record = waiting.record;
  for (; !gaps_.empty() && gaps_.front().sequence <= record.sequence; gaps_.pop_front()) {
    detector_.resume(gaps_.front().bracketed);
    after_gap_ = detector_.events();
    if (recording()) recording_.buffer() += gaps_.front().bracketed ? "U 1\n" : "U 0\n";
  }
  if (record.sign == SignKind::kUnits) {
    take_units(record);
    return;
  }
  if (recording()) write(waiting);
  switch (record.sign) {
    case SignKind::kName:
      detector_.name(record.function, mangled_.name(record.name));
      return;
    case SignKind::kMark:
      return;
    case SignKind::kBoundary:
      boundary_ = record.name;
      boundary_time_ = record.shape;
      boundary_sequence_ = record.sequence;
      boundary_thread_ = waiting.thread;
      return;
    default:
      break;
  }
  LaunchSign sign;
  sign.kind = record.sign;
  sign.thread = waiting.thread;
  sign.function = record.function;
  sign.shape = record.shape;
  sign.stream = record.stream;
  sign.in_step = record.in_step;
  sign.captured = record.captured;
  if (record.sign == SignKind::kStep) sign.optimizer = record.name;
  const bool at_boundary =
      boundary_ && boundary_thread_ == waiting.thread && boundary_sequence_ == record.sequence;
  sign.timed = at_boundary || own_time(record) != 0;
  sign.time =
      at_boundary ? boundary_time_ : waiting.time;  // also the time of a window's edge, if there is one
  const std::uint64_t changes = detector_.changes();
  detector_.add(sign);
  if (changes != detector_.changes() && recording()) write_lock();
  if (at_boundary && *boundary_ > armed_at_ && changes == detector_.changes() && detector_.begun() != 0) {
    offset_ = static_cast<std::int64_t>(detector_.begun()) - 1 - static_cast<std::int64_t>(*boundary_);
  }
  if (at_boundary) boundary_.reset();
}

void IterationSearch::begin_line(char kind, Nanoseconds time) {
  append_format(recording_.buffer(), "{} {}", kind,
                time > last_time_ && last_time_ != 0 ? time - last_time_ : 0);
  last_time_ = std::max(time, last_time_);
}

void IterationSearch::write(const Waiting& waiting) {
  const Nanoseconds time = waiting.time;
  const SignRecord& record = waiting.record;
  switch (record.sign) {
    case SignKind::kName:
      append_format(recording_.buffer(), "F {} {}\n", dense(functions_, record.function),
                    one_line(mangled_.name(record.name), kMaxNameLength));
      break;
    case SignKind::kMark:
      begin_line('M', time);
      append_format(recording_.buffer(), " {} {}\n", waiting.thread,
                    one_line(names_.name(record.name), kMaxNameLength));
      break;
    case SignKind::kBoundary:
      begin_line('B', time);
      append_format(recording_.buffer(), " {} {}\n", waiting.thread, record.name);
      break;
    default:
      begin_line(kLetters[static_cast<std::size_t>(record.sign)], time);
      append_format(recording_.buffer(), " {} {} {} {}", waiting.thread,
                    record.sign == SignKind::kStep ? record.stream : dense(streams_, record.stream),
                    dense(functions_, record.function), dense(shapes_, record.shape));
      if (record.sign == SignKind::kStep)
        append_format(recording_.buffer(), " {} {:d}", record.name == 0 ? 0 : dense(optimizers_, record.name),
                      record.captured);
      recording_.buffer() += '\n';
  }
  recording_.write_if_full();
}

void IterationSearch::write_lock() {
  const IterationDetector::Lock& lock = *detector_.lock();
  append_format(recording_.buffer(), "X {} {} {:d} {:d} {:d} {} {} | {}\n", lock.locked_at, lock.seen_before,
                lock.optimizer, lock.by_shape, lock.rough, whole_events(lock),
                one_line(lock.begin_name, kMaxNameLength), one_line(lock.anchor_name, kMaxNameLength));
}

void IterationSearch::write_span(const IterationSpan& span) {
  if (span.cut && span.begin == 0) return;
  append_format(recording_.buffer(), "I {} {} {:d}\n", span.number, span.first_event, span.phase);
}

void IterationSearch::note_window(bool opened, std::uint64_t count, std::uint32_t window) {
  if (!recording_.is_open()) return;
  append_format(recording_.buffer(), "{} {} {}\n", opened ? 'O' : 'C', count, window);
}

}  // namespace inject
