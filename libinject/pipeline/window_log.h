// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "libinject/base/mutex.h"
#include "libinject/model/run_info.h"
#include "libinject/pipeline/range_tracker.h"
#include "libinject/record/thread_registry.h"

namespace inject {

inline constexpr std::uint32_t kAllWindows = ~std::uint32_t{0};

/// The windows of the run, written by whoever opens and closes them and read by the drain thread. Keeps the
/// first 10,000, like the tables, and the latest 10,000, for which records may still arrive; the latest 100
/// of these are listed. The others are only counted.
class WindowLog {
 public:
  /// A new window opens at `begin`, when this much had been dropped; returns its number.
  std::uint32_t open(std::string reason, Nanoseconds begin, HostDrops dropped = {});
  /// The window ends at `end`; its records are still being collected.
  void end(std::uint32_t number, Nanoseconds end);
  /// The window has ended, and its times are unknown.
  void end_without_times(std::uint32_t number);
  /// All windows up to `last` that have ended are complete; see WindowInfo for the times, 0 if unknown.
  void settle(Nanoseconds detached = 0, Nanoseconds last_activity = 0, std::uint32_t last = kAllWindows);
  void add_losses(std::uint32_t number, const Losses& losses);
  struct Share {
    std::uint32_t window;
    HostDrops drops;
  };
  /// Assigns the drops after `before` to windows: a drop belongs to the latest window that had opened. A
  /// window that opened without a count also takes the drops before it. The latest window comes first.
  std::vector<Share> shares(HostDrops before, HostDrops dropped) const;
  /// Who ended the window before its trigger would have, and why no device activity is recorded in it.
  void note_ended_by(std::uint32_t number, std::string who);
  void note_untraced(std::uint32_t number, std::string why);

  /// Whether an edge of a window still needs a reading of the devices' memory.
  bool lacks_memory() const;
  using MemoryUsed = std::vector<std::pair<std::uint32_t, std::uint64_t>>;  // devices and bytes in use
  /// A reading from `begin` to `end`: the one of all earlier edges that have none yet, unless it is later
  /// than kLatestReading and a tenth of the window. A window that had ended by then has none at its start.
  void note_memory(Nanoseconds begin, Nanoseconds end, const MemoryUsed& used);
  static constexpr Nanoseconds kLatestReading = 100 * kMillisecond;

  RangeTracker::Span span(std::uint32_t number) const;
  /// The window that contains `time`, 0 if none does.
  std::uint32_t at(Nanoseconds time) const;
  /// The latest window that had opened by then, 0 if none.
  std::uint32_t opened_by(Nanoseconds time) const;
  /// The latest window that had ended by then, 0 if none.
  std::uint32_t ended_by(Nanoseconds time) const;
  /// Number of windows opened, which is the latest one's number.
  std::uint32_t opened() const;
  /// Numbers of windows that have ended and are not settled.
  std::vector<std::uint32_t> closing(std::uint32_t last = kAllWindows) const;
  std::string reason(std::uint32_t number) const;
  /// The listed windows.
  std::vector<WindowInfo> copy() const;
  /// The windows from `number` on.
  std::vector<WindowInfo> from(std::uint32_t number) const;
  std::uint64_t not_listed() const;
  Losses losses_outside() const;
  /// Total time of all windows that have ended.
  Nanoseconds total_time() const;
  /// Number of windows with unknown times.
  std::uint64_t without_times() const;

 private:
  WindowInfo* find(std::uint32_t number) INJECT_REQUIRES(mutex_);
  const WindowInfo* find(std::uint32_t number) const INJECT_REQUIRES(mutex_) {
    return const_cast<WindowLog*>(this)->find(number);
  }
  const WindowInfo* latest(Nanoseconds time) const INJECT_REQUIRES(mutex_);
  /// How many in windows_ come before the first that is after `last` or has not ended.
  std::size_t ended_until(std::uint32_t last) const INJECT_REQUIRES(mutex_);
  bool is_listed(std::uint32_t number) const INJECT_REQUIRES(mutex_);

  struct More {
    Nanoseconds opened = 0;   // set even if the window's times are unknown
    bool start_read = false;  // whether there is a reading of the devices' memory
    bool end_read = false;
    HostDrops dropped;  // when it opened
    // A reading that is late for the start, unless the window becomes long enough.
    Nanoseconds late_by = 0;
    MemoryUsed late;
  };

  mutable Mutex mutex_;
  std::deque<WindowInfo> first_
      INJECT_GUARDED_BY(mutex_);  // those of the first windows that are no longer in windows_
  std::deque<WindowInfo> windows_ INJECT_GUARDED_BY(mutex_);
  std::deque<More> more_ INJECT_GUARDED_BY(mutex_);             // parallel to windows_
  std::uint32_t all_read_until_ INJECT_GUARDED_BY(mutex_) = 0;  // no window up to this one lacks a reading
  std::uint32_t opened_ INJECT_GUARDED_BY(mutex_) = 0;
  std::uint32_t ended_ INJECT_GUARDED_BY(mutex_) = 0;  // the latest that has ended
  Losses losses_outside_ INJECT_GUARDED_BY(mutex_);
  Nanoseconds total_time_ INJECT_GUARDED_BY(mutex_) = 0;
  std::uint64_t without_times_ INJECT_GUARDED_BY(mutex_) = 0;
};

}  // namespace inject
