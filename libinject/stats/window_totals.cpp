// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/window_totals.h"

#include <algorithm>
#include <utility>

namespace inject {

namespace {

// Intervals held for the busy times of unsettled windows; beyond that, those of the oldest are collapsed into
// sums.
constexpr std::size_t kMaxWindowIntervals = 262'144;

}  // namespace

DeviceWork& WindowTotals::work(std::uint32_t window, std::uint32_t device, Nanoseconds start,
                               Nanoseconds end) {
  const std::uint32_t index = device_keys_.find_or_add({window, device});
  BusyTime& busy = busy_.at(index);
  const std::size_t held = busy.held();
  const std::uint64_t late = busy.late();
  busy.add(start, end);
  late_ += busy.late() - late;
  intervals_held_ += busy.held() - held;
  if (held == 0 && busy.held() != 0)
    unsettled_.emplace(index == kOtherIndex ? kOtherIndex : device_keys_.key(index)[0], index);
  while (intervals_held_ > kMaxWindowIntervals) settle_oldest();
  return devices_.at(index);
}

void WindowTotals::settle_oldest() {
  BusyTime& busy = busy_.at(unsettled_.begin()->second);
  intervals_held_ -= busy.held();
  busy.settle();
  unsettled_.erase(unsettled_.begin());
}

void WindowTotals::settle(std::uint32_t window) {
  while (!unsettled_.empty() && unsettled_.begin()->first <= window) settle_oldest();
}

std::vector<WindowDeviceRow> WindowTotals::device_rows() const {
  std::vector<WindowDeviceRow> rows;
  for (const std::uint32_t i : devices_.indices()) {
    WindowDeviceRow row;
    row.window = row.device = kOtherIndex;
    if (i != kOtherIndex) {
      row.window = device_keys_.key(i)[0];
      row.device = device_keys_.key(i)[1];
    }
    row.work = devices_[i];
    row.busy = busy_[i].busy();
    row.first = busy_[i].first();
    row.last = busy_[i].last();
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const WindowDeviceRow& a, const WindowDeviceRow& b) {
    return std::make_pair(a.window, a.device) < std::make_pair(b.window, b.device);
  });
  return rows;
}

std::vector<WindowHostRow> WindowTotals::host_rows() const {
  std::vector<WindowHostRow> rows;
  for (const std::uint32_t i : hosts_.indices()) {
    rows.push_back({i == kOtherIndex ? kOtherIndex : host_keys_.key(i)[0], hosts_[i]});
  }
  std::sort(rows.begin(), rows.end(),
            [](const WindowHostRow& a, const WindowHostRow& b) { return a.window < b.window; });
  return rows;
}

DeviceWork WindowTotals::device_total() const {
  DeviceWork total;
  for (const std::uint32_t i : devices_.indices()) total.merge(devices_[i]);
  return total;
}

HostWork WindowTotals::host_total() const {
  HostWork total;
  for (const std::uint32_t i : hosts_.indices()) total.merge(hosts_[i]);
  return total;
}

}  // namespace inject
