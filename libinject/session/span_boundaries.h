// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "libinject/base/mutex.h"
#include "libinject/iterations/iteration_detector.h"
#include "libinject/model/events.h"
#include "libinject/pipeline/profiled_times.h"
#include "libinject/pipeline/window_log.h"

namespace inject {

/// Turns the detector's spans, in order, into the boundaries that the statistics take: where each iteration
/// begins, in which window, and where knowledge of them ends. Boundaries ascend in time. One thread at a
/// time, except for hold().
class SpanBoundaries {
 public:
  struct Targets {
    std::function<void(const IterationBoundary&)> emit;
    /// IterationDetector::keep_numbers(): a number that has been shown does not change.
    std::function<void(std::uint64_t next, Nanoseconds until)> keep_numbers;
  };

  SpanBoundaries(const WindowLog& windows, const ProfiledTimes& profiled, Targets targets)
      : windows_(windows), profiled_(profiled), targets_(std::move(targets)) {}

  /// How many iterations have run without CUPTI so far, except those in which the host ran ahead of the
  /// device. Any thread.
  std::uint64_t unprofiled() const noexcept { return unprofiled_.load(std::memory_order_relaxed); }
  /// Windows end by the clock or a launch count: anywhere in an iteration, also after its last call.
  void let_windows_cut() noexcept { windows_cut_ = true; }
  /// DeviceLoad::paced_step: once shorter iterations begin, the host runs ahead until one takes this long.
  void set_paced_step(double paced) noexcept { paced_step_ = paced; }

  /// The launch that arrived at `came` and begins a window's first iteration was held until CUPTI was
  /// attached, at `opened`: the iteration begins there. Any thread; may throw std::bad_alloc.
  void hold(Nanoseconds came, Nanoseconds opened);

  /// What begins at a span's end is known when it is over itself, or when its window is.
  void add(const IterationSpan& span);
  /// From here on, iterations are told apart by other signs.
  void start_anew();
  /// What was followed so far ends: a new search, from `time` on, knows nothing about it.
  void restart(Nanoseconds time);
  /// No more spans for the windows that have ended. `trailing`: the iteration that is running, or has just
  /// run. `clock_window`: a window that the clock has closed, possibly in the pause after an iteration's last
  /// launch.
  void finish(const std::optional<IterationSpan>& trailing, std::uint32_t clock_window, bool clock_ended);

 private:
  std::uint32_t window_from(Nanoseconds time) const;
  void add_beginning(const IterationSpan& span);
  void add_cut(const IterationSpan& span);
  void emit(IterationBoundary boundary, Nanoseconds end);
  bool in_window(Nanoseconds begin, Nanoseconds end) const;

  static constexpr std::size_t kMaxHeld = 64;

  const WindowLog& windows_;
  const ProfiledTimes& profiled_;
  Targets targets_;
  bool windows_cut_ = false;
  Mutex held_mutex_;
  std::deque<std::pair<Nanoseconds, Nanoseconds>> held_ INJECT_GUARDED_BY(held_mutex_);  // came, opened
  Nanoseconds told_until_ = 0;  // the latest boundary
  std::uint64_t told_number_ = 0;
  Nanoseconds told_before_ = 0;   // the boundary before it; 0: what ran between them is not known
  bool followed_ = false;         // IterationBoundary::followed of the latest one
  bool iteration_begun_ = false;  // the latest one began an iteration, which has been followed since
  bool anew_ = false;             // IterationBoundary::anew of the next one
  // The span that the latest boundary began. The span that ends at the next one may be another, if the lock
  // has changed.
  struct {
    std::optional<double> units;
    Nanoseconds end = 0;
  } begun_;
  std::atomic<std::uint64_t> unprofiled_{0};
  double paced_step_ = 0;
  bool kept_pace_ = false;  // since CUPTI was last attached
  // Of the latest span:
  bool after_cut_ = false;
  Nanoseconds end_ = 0;
  Nanoseconds last_event_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace inject
