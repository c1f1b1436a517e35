// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "libinject/base/atomic_file.h"
#include "libinject/base/mutex.h"
#include "libinject/base/ticks.h"
#include "libinject/iterations/iteration_detector.h"
#include "libinject/iterations/reported_units.h"
#include "libinject/model/run_info.h"
#include "libinject/record/launch_sign.h"
#include "libinject/record/name_table.h"

namespace inject {

/// The number of events in an iteration, rounded.
inline std::uint64_t whole_events(const IterationDetector::Lock& lock) {
  const auto below = static_cast<std::uint64_t>(lock.events);
  return below + (lock.events - static_cast<double>(below) >= 0.5 ? 1 : 0);
}

/// The detector's findings so far for run.json, except for the source of the signs.
IterationInfo info_of(const IterationDetector& detector);

/// Where the signs resume after an unobserved stretch of the program, for an IterationSearch. Any thread may
/// add a gap, before there are signs of what follows. There are no more gaps than signs: if no sign was made
/// since the last gap, the two are merged.
class SearchGaps {
 public:
  struct Gap {
    std::uint64_t sequence;  // of the first sign after the gap (SignRecord::sequence), or less
    bool bracketed;          // IterationDetector::resume()
  };
  /// False if there is no memory: the signs that follow must then be ignored.
  bool add(std::uint64_t sequence, bool bracketed) noexcept {
    const MutexLock held(mutex_);
    try {
      append(gaps_, {sequence, bracketed});
    } catch (...) {
      return false;
    }
    return true;
  }
  void move_to(std::deque<Gap>& to) {
    const MutexLock held(mutex_);
    for (const Gap& gap : gaps_) append(to, gap);
    gaps_.clear();
  }

 private:
  static void append(std::deque<Gap>& to, const Gap& gap) {
    if (!to.empty() && to.back().sequence == gap.sequence) {
      to.back().bracketed = to.back().bracketed && gap.bracketed;
    } else {
      to.push_back(gap);
    }
  }

  Mutex mutex_;
  std::deque<Gap> gaps_ INJECT_GUARDED_BY(mutex_);
};

/// The search for iterations while the program runs: brings the signs of all threads into one order, passes
/// them to the detector, and knows which iteration the watch's count refers to. Runs on our own thread, after
/// each drain.
///
/// On request it also keeps a recording, a text file that can be replayed into the detector. One line each:
///   F ID NAME                              the name of function ID, where it is known
///   KIND DT THREAD STREAM FUNCTION SHAPE   a sign: K kernel, G graph, H copy to the device, D copy to the
///                                          host, P other copy, S memset, Y synchronization, L library call,
///                                          T an optimizer's step, at its end; STREAM: signs in it; then
///                                          the OPTIMIZER's number, 0 if it is not known which one it is,
///                                          and 1 if it was captured into a CUDA graph
///   E FEW                                  the program reports its optimizers' steps
///   M DT THREAD TEXT                       an NVTX range that was pushed
///   B DT THREAD COUNT                      the watch fired, before the sign that follows
///   O COUNT WINDOW, C COUNT WINDOW         a window opened, or closed, at that boundary
///   X EVENT BEFORE OPTIMIZER BY_SHAPE ROUGH EVENTS BEGIN | ANCHOR
///                                          iterations were recognised, or others than before, once EVENT
///                                          signs had come and BEFORE iterations were over: whether by an
///                                          optimizer, by launch shapes, the place of the boundary guessed;
///                                          EVENTS of an iteration, the names of its marks
///   I NUMBER EVENT PHASE                   an iteration (PHASE 0) or what ran before iteration NUMBER (1)
///                                          began with sign EVENT, as is known at its end
///   U BRACKETED                            the program ran on unseen (IterationDetector::resume())
///   R                                      the search restarted
/// Control characters in names are written as ?. DT is in nanoseconds since the line before; ids count from 1
/// in order of appearance, signs from 0 at the beginning or the latest R. An X is followed by an I for each
/// iteration so far.
class IterationSearch {
 public:
  /// `clock`: must have a reading from before the first sign.
  IterationSearch(const NameTable& mangled, const NameTable& names, const TickClock& clock = {},
                  SearchGaps* gaps = nullptr)
      : mangled_(mangled), names_(names), clock_(clock), new_gaps_(gaps) {}

  bool record_to(const std::string& path) { return recording_.open(path); }
  const std::string& recording_error() const { return recording_.error(); }

  /// From the drain: signs of one thread in order.
  void take(std::uint32_t thread, const SignRecord& record) {
    latest_signs_.note(thread, record);
    if (record.sequence < from_) {
      discarded_.note(thread, record);
      return;
    }
    waiting_.push_back({record, 0, thread});
  }
  /// Processes everything taken so far that is older than that pass. `hold`: there is no time for it now; it
  /// is done anyway if too much has been taken.
  void advance(const SignPass& pass, bool hold = false);
  /// Processes whatever is left, at the end.
  void finish();
  /// Discards everything seen so far: signs from another source follow.
  void restart();
  /// Signs before this one (SignRecord::sequence) are from another source, and still in flight.
  void ignore_before(std::uint64_t sequence) { from_ = sequence; }
  void note_window(bool opened, std::uint64_t count, std::uint32_t window);

  const IterationDetector& detector() const { return detector_; }
  /// SignHistory::expect_steps(), also after restart().
  void expect_steps(bool few);
  void keep_numbers(std::uint64_t next, Nanoseconds until) { detector_.keep_numbers(next, until); }
  /// IterationDetector::take_spans(), with the reported units.
  std::vector<IterationSpan> take_spans();
  /// Likewise.
  std::optional<IterationSpan> trailing_span() const;
  /// The iteration that begins at the watch's boundary `count` has number `count` plus this offset. Known
  /// from the first boundary that the armed watch has seen.
  std::optional<std::int64_t> offset() const { return offset_; }
  /// The watch has been armed again: its boundaries from `count` + 1 on belong to the current lock.
  void armed(std::uint64_t count) {
    offset_.reset();
    armed_at_ = count;
  }

 private:
  // A recording ends at this size: some minutes of a busy program.
  static constexpr std::uint64_t kMaxRecorded = std::uint64_t{256} << 20;
  // 23 MB. Only a single read of the ring can exceed this.
  static constexpr std::size_t kMaxHeld = 1u << 18;
  // Limit on one call's analyses, about 2 ms: a window's end may have to wait for it.
  static constexpr std::int64_t kMaxVisitsPerCall = 1'000'000;
  struct Waiting {
    SignRecord record;
    Nanoseconds time;
    std::uint32_t thread;
  };
  /// For some signs, by SignRecord::sequence: the latest number of units, and the latest event known to be
  /// over, because its thread has reached another one. A call in progress may be seen by the next source as
  /// well.
  struct Latest {
    std::uint64_t units = 0;
    std::uint64_t over = 0;
    std::uint64_t event = 0;
    std::uint32_t thread = 0;
    void note(std::uint32_t of, const SignRecord& record) {
      if (record.sign == SignKind::kUnits) units = std::max(units, record.sequence);
      if (!is_event(record.sign)) return;
      if (of == thread) over = std::max(over, event);
      event = record.sequence;
      thread = of;
    }
  };
  Nanoseconds own_time(const SignRecord& record) const;
  void assign_times(std::size_t count, Nanoseconds pass_began);
  void feed_detector(const Waiting& waiting);
  void take_units(const SignRecord& record);
  void add_units(IterationSpan& span) const;
  void write(const Waiting& waiting);
  void write_lock();
  void write_span(const IterationSpan& span);
  void begin_line(char kind, Nanoseconds time);
  bool recording() const { return recording_.is_open() && recording_.bytes() < kMaxRecorded; }

  const NameTable& mangled_;
  const NameTable& names_;
  TickClock clock_;
  SearchGaps* new_gaps_;
  std::deque<SearchGaps::Gap> gaps_;
  std::vector<Waiting> waiting_;
  IterationDetector detector_;
  std::optional<bool> steps_expected_;  // `few`
  ReportedUnits units_;
  std::uint64_t after_gap_ = 0;      // position of the first event after the latest gap
  std::uint32_t dropped_units_ = 0;  // the part of IterationWatch::dropped_units that precedes one of the
                                     // numbers in units_
  Latest latest_signs_;
  Latest discarded_;  // by restart() and ignore_before()
  std::vector<IterationSpan> last_spans_;
  std::optional<std::int64_t> offset_;
  std::uint64_t armed_at_ = 0;
  std::uint64_t from_ = 0;
  std::optional<std::uint64_t> boundary_;  // the watch's count at a boundary whose first event is to come

  Nanoseconds boundary_time_ = 0;
  std::uint64_t boundary_sequence_ = 0;
  std::uint32_t boundary_thread_ = 0;

  Nanoseconds latest_ = 0;   // time of the last sign that had a time
  Nanoseconds spacing_ = 0;  // average distance of the signs before it

  OutputFile recording_;
  Nanoseconds last_time_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> functions_;
  std::unordered_map<std::uint64_t, std::uint32_t> shapes_;
  std::unordered_map<std::uint64_t, std::uint32_t> optimizers_;
  std::unordered_map<std::uint64_t, std::uint32_t> streams_;
};

}  // namespace inject
