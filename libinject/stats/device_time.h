// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "libinject/analysis/device_times.h"
#include "libinject/analysis/idle_time.h"
#include "libinject/base/time.h"
#include "libinject/stats/device_timeline.h"
#include "libinject/stats/idle_shares.h"

namespace inject {

struct DeviceTimeRow {
  std::uint32_t window = 0;
  std::uint32_t device = 0;
  DeviceTimes times;
  std::vector<IdleShare> shares;  ///< by descending time, from IdleShares::largest()
  KernelPauses pauses;            ///< of a window; none known until all earlier work is over
};

/// Determines, for each window and device, when the device worked and why it did not. Exact whatever order
/// records arrive in, as long as unsettled windows hold at most `max_held` of them; beyond that, the older
/// half of the fullest window's work is judged by what has arrived, and records that arrive later for that
/// time are left out and counted. One thread at a time; may throw std::bad_alloc.
class DeviceTimeStatistics {
 public:
  static constexpr std::size_t kMaxHeld = 262'144;
  static constexpr std::size_t kMaxRows = 10'000;
  static constexpr std::size_t kMaxUnsettled = 4096;  // windows
  static constexpr std::size_t kMaxPauses = 65'536;   // of all rows

  explicit DeviceTimeStatistics(std::size_t max_held = kMaxHeld) : max_held_(max_held) {}

  /// Called for each gap, in no particular order, before the window is settled. Set before anything is added.
  void tell_gaps(std::function<void(std::uint32_t window, const IdleGap&)> tell) {
    on_gap_ = std::move(tell);
  }

  void work(std::uint32_t window, std::uint32_t device, const TimedWork& work);
  /// Outermost calls; a thread's calls come in order.
  void call(std::uint32_t window, std::uint32_t thread, const HostCall& call);
  /// A thread's fetches come in order.
  void fetch(std::uint32_t window, std::uint32_t thread, const HostFetch& fetch);
  void reading(std::uint32_t window, std::uint32_t thread, const ProcessorReading& reading);
  /// A copy to the host so small that the call was made in order to wait.
  void small_download(std::uint32_t window, std::uint32_t thread, Nanoseconds call_begin);
  /// Device work of that window, launched at that time (0: unknown), has no usable record and would look like
  /// idle time. The window is judged up to the first such launch; if that is impossible, or it was already
  /// settled, it has no row and is not in the totals.
  void lost_work(std::uint32_t window, Nanoseconds launch);
  /// Nothing more will come for this window or any before it; what is held for earlier ones is dropped. A
  /// second call for a window does nothing.
  void settle_window(std::uint32_t window, Nanoseconds begin, Nanoseconds end);

  /// Rows of the settled windows, in order; only the first kMaxRows, like the table of windows.
  const std::vector<DeviceTimeRow>& rows() const { return rows_; }
  /// The row of a window and device; null if there is none.
  const DeviceTimeRow* row(std::uint32_t window, std::uint32_t device) const;
  /// By device, over all settled windows that have rows; `window` is meaningless.
  std::vector<DeviceTimeRow> totals() const;
  /// The latest settled window, 0 if there is none.
  std::uint32_t settled_through() const { return settled_through_; }
  /// How many rows were taken out of the totals again (lost_work()).
  std::uint64_t removed() const { return removed_; }
  /// Records that came too late to be judged, or were dropped to make room.
  std::uint64_t left_out() const { return left_out_; }
  /// Records held in memory.
  std::size_t held() const { return held_; }

 private:
  struct Window {
    std::map<std::uint32_t, DeviceTimeline> devices;
    HostThreads threads;
    std::size_t held = 0;
  };
  using Windows = std::map<std::uint32_t, Window>;
  struct Total {
    DeviceTimes times;
    IdleShares shares;
  };

  Window* window(std::uint32_t number);
  void drop(Windows::iterator window);
  static Nanoseconds earlier_work_over(const Window& window);
  static Nanoseconds cut(Window& window, Nanoseconds begin, Nanoseconds end, Nanoseconds lost);
  void hold(Window& window);
  void bound();
  void release(Window& window);
  void forget_calls(Window& window, std::span<const DeviceWait> waits, Nanoseconds needed);
  void recount(Window& window);
  void hand_on_gaps(std::uint32_t number, Window& window, bool whole);

  std::size_t max_held_;
  std::function<void(std::uint32_t window, const IdleGap&)> on_gap_;
  Windows windows_;
  std::uint32_t last_number_ = 0;
  Window* last_window_ = nullptr;
  std::vector<DeviceTimeRow> rows_;
  std::size_t pauses_ = 0;  // held by rows_
  std::map<std::uint32_t, Total> totals_;
  std::size_t held_ = 0;
  std::uint64_t left_out_ = 0;
  std::uint64_t removed_ = 0;
  std::uint32_t settled_through_ = 0;
  std::map<std::uint32_t, Nanoseconds> lost_;  // of unsettled windows: the first lost launch
};

}  // namespace inject
