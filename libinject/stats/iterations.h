// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "libinject/analysis/sample_stats.h"
#include "libinject/analysis/shape_work.h"
#include "libinject/model/events.h"
#include "libinject/stats/busy_time.h"
#include "libinject/stats/device_work.h"

namespace inject {

enum class WorkKind : std::uint8_t { kKernel, kCopy, kMemset };

/// A kernel, copy or memset.
struct IterationActivity {
  Nanoseconds launch_begin = 0;  ///< 0 if the launch was not seen
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  std::uint64_t bytes = 0;
  std::uint32_t window = 0;
  std::uint16_t device = 0;
  WorkKind kind = WorkKind::kKernel;
};

struct IterationDeviceRow {
  std::uint32_t device = 0;
  DeviceWork work;
  std::uint64_t busy = 0;
  std::uint64_t kernel_busy = 0;  ///< of `busy`, the time in which at least one kernel ran
  Nanoseconds first = 0;          ///< earliest start and latest end of the work
  Nanoseconds last = 0;
  /// From the end of the iteration's last work to the start of the next iteration's first, if that is in the
  /// same window.
  std::optional<std::uint64_t> gap;
  /// The next iteration's work begins long before this one's ends, as with copies ahead of time: time() is
  /// then longer than what the device needs for an iteration.
  bool overlapped = false;

  /// How long the iteration takes on the device: from its first work to the next iteration's first or, at a
  /// window's end, to the end of its own work, but at least `duration`, its time on the host.
  std::uint64_t time(std::uint64_t duration) const {
    return gap ? last - first + *gap : std::max(duration, last - first);
  }
};

struct IterationRow {
  enum class Kind : std::uint8_t {
    kPhase,    ///< begun by a boundary, clipped to the window
    kOutside,  ///< the window's work that belongs to no boundary: only launches and work are meaningful
    kOlder,    ///< all rows of all windows that did not fit: likewise
  };
  Kind kind = Kind::kPhase;
  std::uint32_t window = 0;
  std::uint64_t number = 0;
  IterationLabel label = IterationLabel::kIteration;
  bool complete = false;  ///< all its launches were made in the window, and none of its records was lost
  bool lost = false;      ///< records of its launches or work were lost
  Nanoseconds begin = 0;
  Nanoseconds end = 0;  ///< 0 while unknown
  std::uint64_t launches = 0;
  FlopCount flops;                          ///< of library calls whose shape is known
  std::optional<double> units;              ///< IterationBoundary::units_before, if complete
  std::optional<std::uint64_t> gap;         ///< time in which no device worked
  std::vector<IterationDeviceRow> devices;  ///< by ascending number
};

/// An iteration that ran without CUPTI.
struct UnprofiledStep {
  std::uint64_t number = 0;
  Nanoseconds begin = 0;
  std::uint64_t duration = 0;
  std::optional<double> units = {};  ///< as in IterationRow
};

/// Launches and device work by iteration. Work belongs to the iteration in which it was launched, by the host
/// time of the launch; the iterations may become known long after the work. Memory is bounded: up to
/// kMaxWaiting records wait for their boundaries. Records beyond that go to no iteration and are counted in
/// lost(), and the iterations that they could have been part of count as incomplete. One thread at a time.
class IterationStatistics {
 public:
  static constexpr std::size_t kMaxRows = 10'000;
  static constexpr std::size_t kMaxWaiting = 262'144;
  static constexpr std::size_t kMaxWindows = 10'000;
  static constexpr std::size_t kMaxRecent = 1024;
  static constexpr std::size_t kMaxUnprofiled = 1000;
  static constexpr std::size_t kMaxLost = 4096;  ///< launches; beyond that, the window has no complete
                                                 ///< iteration

  void activity(const IterationActivity& activity);
  /// Work launched at that time has no usable record, so its iteration is incomplete; 0: all iterations of
  /// the window are, since the launch time is unknown. To be called before the window is settled.
  void lost_work(std::uint32_t window, Nanoseconds launch);
  /// A call submitted device work.
  void launch(std::uint32_t window, Nanoseconds begin);
  /// A library call that returned at `end` computes `flops`.
  void flops(std::uint32_t window, Nanoseconds end, std::optional<Arithmetic> arithmetic,
             std::uint64_t flops);
  /// In ascending order of `begin`; a boundary out of order is ignored and counted. All of a window's
  /// boundaries come before it is settled; one that comes later with that window as its `window_before` still
  /// completes the iteration that it ends.
  void boundary(const IterationBoundary& boundary);
  /// Nothing more will come for this window or any before it. `end` 0: the window's times are unknown.
  void settle_window(std::uint32_t window, Nanoseconds begin, Nanoseconds end);

  /// By window and time; work that waits for its boundaries is counted as outside of them.
  std::vector<IterationRow> rows() const;
  /// The rows of one window that belong to boundaries.
  std::vector<IterationRow> rows_of(std::uint32_t window) const;
  /// Durations of the complete iterations of all settled windows.
  const SampleStats& step_times() const { return step_times_; }
  /// The latest `count` of them, at most kMaxRecent.
  SampleStats recent_step_times(std::uint64_t count) const;
  /// Durations of iterations that ran without CUPTI: all of them, and the latest ones individually.
  const SampleStats& unprofiled_step_times() const { return unprofiled_times_; }
  const std::deque<UnprofiledStep>& unprofiled_steps() const { return unprofiled_steps_; }
  /// Those of one window; null if it has none, and for windows beyond the first kMaxWindows.
  const SampleStats* window_step_times(std::uint32_t window) const;
  /// Iterations of settled windows that were cut by a window's edge, or lost part of their work (lost()).
  std::uint64_t incomplete() const { return incomplete_; }
  std::uint64_t phases(IterationLabel label) const { return phases_[static_cast<std::size_t>(label)]; }

  /// Records that belong to an iteration but had to be left out of it, and boundaries that were out of order.
  std::uint64_t lost() const { return lost_; }
  /// Records that came too late for their iteration's busy time.
  std::uint64_t late() const { return late_; }

 private:
  /// Window and boundary; boundaries are numbered from 1, 0 stands for none.
  using Key = std::pair<std::uint32_t, std::uint64_t>;
  struct Part {
    std::uint32_t device = 0;
    DeviceWork work;
    BusyTime busy;
    BusyTime kernel_busy;
    std::uint64_t more_busy = 0;  // of rows merged into this one
    std::uint64_t more_kernel_busy = 0;
  };
  struct HostPart {
    std::uint64_t launches = 0;
    FlopCount flops;
    bool empty() const { return launches == 0 && flops.total() == 0; }
    void merge(const HostPart& more) {
      launches += more.launches;
      flops.merge(more.flops);
    }
  };
  struct Row {
    std::uint64_t number = 0;
    IterationLabel label = IterationLabel::kIteration;
    bool complete = false;
    bool incomplete = false;  // some of its work was lost
    bool settled = false;
    bool past_window = false;  // begins after the window's end: shown outside
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
    HostPart host;
    std::optional<double> units;
    std::vector<Part> parts;
  };
  struct WaitingLaunch {
    Nanoseconds begin;
    std::uint32_t window;
    std::optional<Arithmetic> arithmetic;
    std::uint64_t flops;  // 0: a launch

    void count(HostPart& part) const {
      if (flops == 0) {
        ++part.launches;
      } else {
        part.flops.add(arithmetic, flops);
      }
    }
  };
  void note(const WaitingLaunch& launch);
  void add_unprofiled(const UnprofiledStep& step);

  bool is_final(std::uint32_t window, Nanoseconds launch) const;
  std::uint64_t boundary_at(Nanoseconds time);
  Key key_of(std::uint32_t window, Nanoseconds launch);
  Row& row(const Key& key);
  static Part& part(Row& row, std::uint32_t device);
  static void count(DeviceWork& work, const IterationActivity& activity);
  void account(const Key& key, const IterationActivity& activity);
  void assign();
  void assign_through(std::uint32_t window);
  void spill();
  void spilled(std::uint32_t window, Nanoseconds launch, std::uint64_t records);
  void settle_row(const Key& key, Row& row);
  void count_complete(const Key& key, const Row& row);
  void drop_oldest();
  void work(BusyTime& busy, Nanoseconds start, Nanoseconds end);
  void settle(Part& part);
  void bound_busy_times();
  static IterationRow shown(const Key& key, const Row& row);

  std::deque<IterationBoundary> boundaries_;
  std::uint64_t first_ = 1;  // number of boundaries_.front()
  std::uint64_t unassigned_boundaries_ = 0;
  std::uint32_t final_through_ = 0;  // all boundaries of windows up to this one have arrived
  std::uint32_t settled_through_ = 0;
  // Cached result of the search among the boundaries: [begin, end) belongs to `found`.
  struct {
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
    std::uint64_t found = 0;
  } cache_;

  std::deque<IterationActivity> waiting_;
  std::deque<WaitingLaunch> waiting_launches_;
  bool in_order_ = true;  // both are sorted by window

  std::map<Key, Row> rows_;
  Key latest_key_{0, 0};
  Row* latest_row_ = nullptr;  // the latest row found, under latest_key_
  Key dropped_through_{0, 0};
  Row older_;
  bool any_older_ = false;
  std::size_t intervals_held_ = 0;
  Key busy_settled_through_{0, 0};

  // Records taken by spill(), as long as they matter.
  struct {
    bool any = false;
    std::uint64_t records = 0;
    std::uint64_t counted = 0;  // of these, included in lost_
    Nanoseconds first = 0;      // launch times
    Nanoseconds last = 0;
    std::uint32_t window = 0;
  } spilled_;

  SampleStats step_times_;
  std::deque<std::uint64_t> recent_step_times_;
  SampleStats unprofiled_times_;
  std::deque<UnprofiledStep> unprofiled_steps_;
  std::vector<std::pair<std::uint32_t, Nanoseconds>> lost_work_;  // by window and launch
  std::set<std::uint32_t> wholly_lost_;                           // windows without complete iterations
  SampleBudget window_budget_{std::size_t{4} << 20};
  std::map<std::uint32_t, SampleStats> windows_;
  std::uint64_t incomplete_ = 0;
  std::uint64_t phases_[3] = {};
  std::uint64_t lost_ = 0;
  std::uint64_t late_ = 0;
};

}  // namespace inject
