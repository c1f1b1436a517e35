// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libinject/model/host_use.h"
#include "libinject/session/host_source.h"

namespace inject {

/// Adds up by role what threads and children used from reading to reading. A window's use is the difference
/// between two marks. If a thread ended between two readings, its role has what it used up to the last one
/// that saw it; what it used after that goes into the process's rest, as does the use of a thread that no
/// reading saw. The same holds for children that the process has waited for, in kEndedChildren. No file, no
/// clock.
class HostTally {
 public:
  struct Sum {
    std::array<std::uint64_t, kHostAmounts> values{};
    std::array<std::uint64_t, kHostAmounts> unknown{};  ///< how often a value could not be read
    std::uint64_t alive = 0;
    std::uint64_t born = 0;  ///< seen for the first time; for kRest and kEndedChildren, those that ended
                             ///< (for kProcess, threads: a role also counts those renamed)
  };
  struct Range {
    std::uint64_t least = 0;
    std::uint64_t most = 0;
  };
  /// The sums at the time of a reading.
  struct Mark {
    Nanoseconds time = 0;
    Nanoseconds took = 0;
    std::array<Sum, kHostRoles> sums;
    // Since begin_window():
    std::uint64_t workers = 0;  ///< the largest number at one reading
    Range affinity;
    Range quota_thousandths;
    // Sums:
    std::uint64_t worker_life = 0;
    std::uint64_t worker_time = 0;
    std::uint64_t worker_wait = 0;
    LoaderMoments moments;
  };

  void add(const HostReading& reading);
  /// A moment at which the training thread waited for a loader's workers; `states`: one letter per worker.
  void add_moment(std::string_view states);
  const Mark& latest() const { return latest_; }
  /// The latest mark, as the first of a window.
  Mark begin_window();

  /// Use between two marks, the first from begin_window(); without the window's number.
  static HostWindow window(const Mark& open, const Mark& close);

 private:
  struct Known {
    HostTask task;
    std::uint64_t seen = 0;  // the latest reading that included it
  };
  using Tasks = std::unordered_map<pid_t, Known>;

  Sum& sum(HostRole role) { return latest_.sums[static_cast<std::size_t>(role)]; }
  /// Returns what the task used since it was last seen, or since it began.
  HostUse add_task(Tasks& tasks, const HostTask& task, bool& is_new);
  /// False if the worker did nothing to speak of, or if that is not known.
  bool add_worker(const HostTask& task, const HostUse& more, bool is_new, const HostReading& reading);
  /// Takes out a child whose process id has been reused.
  void take_reused(const HostTask& child, std::vector<HostTask>& gone);
  bool was_waited_for(const HostTask& child) const;
  void add_ended(const HostReading& reading, std::vector<HostTask>& gone);

  Mark latest_;
  Tasks threads_;
  Tasks children_;
  HostUse process_;
  std::array<std::int64_t, kHostAmounts> ended_seen_{};  // use of children that have gone, when last seen
  std::array<bool, kHostAmounts> ended_lost_{};  // all that they used: not known at the latest reading
  std::uint64_t readings_ = 0;
  // At the latest reading:
  std::uint64_t ticks_ = 0;  // since boot
  std::uint64_t affinity_ = 0;
  std::uint64_t quota_thousandths_ = 0;
};

}  // namespace inject
