// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "libinject/stats/busy_time.h"
#include "libinject/stats/key_index.h"
#include "libinject/stats/statistics.h"
#include "libinject/stats/table_rows.h"

namespace inject {

/// The work of each device and of the host in each window.
class WindowTotals {
 public:
  /// A device worked in a window from `start` to `end`; returns where to add that work.
  DeviceWork& work(std::uint32_t window, std::uint32_t device, Nanoseconds start, Nanoseconds end);
  HostWork& host(std::uint32_t window) { return hosts_.at(host_keys_.find_or_add({window})); }
  void settle(std::uint32_t window);

  /// By window and device; the rows' `times` are not set.
  std::vector<WindowDeviceRow> device_rows() const;
  std::vector<WindowHostRow> host_rows() const;
  DeviceWork device_total() const;
  HostWork host_total() const;
  /// Work that came too late to be included in a busy time.
  std::uint64_t late() const { return late_; }

 private:
  void settle_oldest();

  // window, device
  KeyIndex<2> device_keys_{Statistics::kMaxRows};
  Rows<DeviceWork> devices_{{}};
  // Parallel to devices_; only those of unsettled windows hold intervals.
  Rows<BusyTime> busy_{{}};
  // Window and index into busy_.
  std::set<std::pair<std::uint32_t, std::uint32_t>> unsettled_;
  std::size_t intervals_held_ = 0;
  std::uint64_t late_ = 0;
  KeyIndex<1> host_keys_{Statistics::kMaxRows};
  Rows<HostWork> hosts_{{}};
};

}  // namespace inject
