// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libinject/config/window_spec.h"
#include "libinject/iterations/iteration_detector.h"
#include "libinject/iterations/iteration_search.h"
#include "libinject/model/run_info.h"
#include "libinject/pipeline/drain.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/core.h"
#include "libinject/session/span_boundaries.h"

namespace inject {

/// What the search knows about the program's iterations.
struct FoundIterations {
  /// Iterations that are known only by repetition are trusted after this many, and this long.
  static constexpr std::uint64_t kSteadyUnnamed = 20;
  static constexpr std::uint64_t kSteadyNamed = 5;  ///< the same for those of an optimizer known by name
  static constexpr Nanoseconds kSteadyTime = kSecond;

  std::optional<IterationDetector::Lock> lock;
  std::uint64_t changes = 0;           ///< of the lock
  std::optional<std::int64_t> offset;  ///< IterationSearch::offset()
  std::uint64_t begun = 0;
  std::uint64_t begun_then = 0;  ///< `begun` when the watch was armed
  Nanoseconds since = 0;         ///< when the watch was armed
  Nanoseconds typical_duration = 0;
  std::uint64_t events = 0;
  Nanoseconds window_asked = 0;  ///< IterationTracker::set_window_asked()
  /// The first iteration that began at that time or later; empty if that was too long ago.
  std::optional<std::uint64_t> first_in_window;

  /// Iterations that have begun since the watch was armed.
  std::uint64_t seen() const { return begun - std::min(begun, begun_then); }
  /// Iterations after which `auto` trusts those of the lock, if they also ran for kSteadyTime.
  std::uint64_t steady_iterations() const { return lock->optimizer ? kSteadyNamed : kSteadyUnnamed; }
  /// True if the iterations of the lock are steady enough for `auto` at `time`.
  bool steady(Nanoseconds time) const { return time - since >= kSteadyTime && seen() >= steady_iterations(); }

  /// Takes over what is new; cheap if the lock is the same.
  void update(const FoundIterations& newer);
};

/// Follows the program's iterations: passes the drain's signs to the search, arms the watch with what is
/// found, and reports to the statistics where iterations begin. Call with the pipeline's lock, except for
/// functions marked as callable from any thread.
class IterationTracker {
 public:
  /// `recording`: the file in which the stream of launches is kept; empty: none.
  IterationTracker(Core& core, const WindowLog& windows, const ProfiledTimes& profiled, Drain& drain,
                   std::string recording);

  // Any thread.
  /// The search starts over with the sign of this number (SignRecord::sequence), from another source.
  /// `in_windows`: that source sees only what runs in windows.
  void restart(std::uint64_t first_sign, Nanoseconds time, bool in_windows = false) noexcept;
  /// True if a restart has been requested and not yet carried out.
  bool restarting() const noexcept { return restart_.load(std::memory_order_acquire); }
  /// Periods that were not seen.
  SearchGaps& gaps() noexcept { return gaps_; }
  /// SpanBoundaries::hold().
  void hold(Nanoseconds came, Nanoseconds opened) { boundaries_.hold(came, opened); }
  /// SpanBoundaries::unprofiled().
  std::uint64_t unprofiled() const noexcept { return boundaries_.unprofiled(); }
  /// SpanBoundaries::let_windows_cut(), before the first window.
  void let_windows_cut() noexcept { boundaries_.let_windows_cut(); }
  /// SpanBoundaries::set_paced_step(), with the pipeline's lock.
  void set_paced_step(double paced) noexcept { boundaries_.set_paced_step(paced); }
  /// A window of iterations was requested at this time, the beginning of an iteration.
  void set_window_asked(Nanoseconds time) noexcept { window_asked_.store(time, std::memory_order_release); }
  /// The window that closes by the clock, if any.
  std::uint32_t clock_window() const noexcept { return clock_window_.load(std::memory_order_acquire); }
  void set_clock_window(std::uint32_t window) noexcept { clock_window_ = window; }
  /// True if the clock closed the window in which the search was last on.
  bool clock_ended() const noexcept { return clock_ended_.load(std::memory_order_acquire); }
  void set_clock_ended(bool ended) noexcept { clock_ended_ = ended; }

  // Before and after a pass of the drain, which ends at `time`.
  void prepare();
  void update(Nanoseconds time);

  /// A window of iterations has opened or closed at the watch's boundary number `count`.
  void note_window(bool opened, std::uint64_t count, std::uint32_t window);
  /// Windows have ended, and no more signs will arrive for them.
  void settle();
  /// The last signs have arrived.
  void finish();

  const FoundIterations& found() const { return found_; }
  /// Describes what was seen if nothing has been found.
  std::string report() const;
  /// Continues "… before a window opened"; empty if the search was never on. `spec`: of `iter:` or `auto`.
  std::string why_none(const WindowSpec& spec) const;
  /// Nothing if iterations were not searched for. `source`: of the signs.
  std::optional<IterationInfo> info(const char* source) const;

 private:
  void arm(Nanoseconds time);
  void expect_steps();
  void take_spans();
  void release_spans();
  void look_for_first_in_window();
  bool trusted(Nanoseconds time) const;

  Core& core_;
  const WindowLog& windows_;
  Drain& drain_;
  const std::string recording_;
  std::unique_ptr<IterationSearch> search_;
  SpanBoundaries boundaries_;
  FoundIterations found_;
  std::uint64_t armed_changes_ = 0;
  std::vector<IterationSpan> held_spans_;  // of a lock that may still prove wrong
  std::uint64_t held_changes_ = 0;
  std::deque<std::pair<Nanoseconds, std::uint64_t>> latest_begins_;  // begins and numbers of iterations
  bool begins_dropped_ = false;                                      // there were earlier ones
  std::uint64_t settled_changes_ = 0;  // changes of the lock whose spans the last settled window has

  SearchGaps gaps_;
  std::atomic<bool> restart_{false};
  std::atomic<std::uint64_t> restart_sign_{0};
  std::atomic<Nanoseconds> restart_time_{0};
  std::atomic<Nanoseconds> window_asked_{0};
  std::atomic<std::uint32_t> clock_window_{0};
  std::atomic<bool> clock_ended_{false};
  std::atomic<bool> in_windows_{false};
};

/// `100 had run; about 57 launches, … each; they begin with A after B`.
std::string describe(const IterationDetector::Lock& lock);

}  // namespace inject
