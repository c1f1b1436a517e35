// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/copies.h"

#include <algorithm>
#include <tuple>

#include "libinject/analysis/copies.h"

namespace inject {

namespace {

void count_wait(CopyRow& row, bool small) {
  ++row.synchronizing;
  if (small) ++row.small_synchronizing;
}

}  // namespace

void CopyStatistics::call(const CallEvent& event, HostState state) {
  const bool submits = event.correlation != 0;
  if (submits && state == HostState::kCopy) {
    LastCopy& last = last_copies_[event.thread];
    last = {};
    last.window = event.window;
    last.begin = event.begin;
    return;
  }
  if (!submits && state != HostState::kSynchronization) return;
  const auto found = last_copies_.find(event.thread);
  if (found == last_copies_.end()) return;
  const LastCopy last = found->second;
  last_copies_.erase(found);
  if (submits) return;
  if (last.recorded && event.end >= last.end) count_wait(row_at(last.row), last.small);
  if (last.recorded) return;
  waits_[{last.window, last.begin, event.thread}] = event.end;
  if (waits_.size() > kMaxWaits) waits_.erase(waits_.begin());
}

void CopyStatistics::settle_window(std::uint32_t window) {
  overlap_.settle_window(window);
  std::erase_if(last_copies_, [window](const auto& last) { return last.second.window <= window; });
  while (!waits_.empty() && std::get<0>(waits_.begin()->first) <= window) waits_.erase(waits_.begin());
}

void CopyStatistics::add(const TransferEvent& event, std::uint32_t operation) {
  const std::uint32_t source_device = event.peer ? event.source_device : 0;
  const std::uint32_t target_device = event.peer ? event.target_device : 0;
  const auto known = [](std::uint8_t kind) { return kind < kMemoryKinds ? kind : std::uint8_t{0}; };
  const std::uint8_t source_memory = known(event.source_memory);
  const std::uint8_t target_memory = known(event.target_memory);
  const std::uint32_t memory = std::uint32_t{source_memory} << 8 | target_memory;
  const std::uint32_t index = keys_.find_or_add(
      {event.device, operation, memory, event.peer ? 1u : 0u, source_device, target_device});
  if (index == rows_.size()) {
    CopyRow& made = rows_.emplace_back();
    made.device = event.device;
    made.operation = operation;
    made.source_memory = source_memory;
    made.target_memory = target_memory;
    made.peer = event.peer;
    made.source_device = source_device;
    made.target_device = target_device;
  }
  CopyRow& row = row_at(index);
  row.time.add(event.end > event.start ? event.end - event.start : 0);
  row.bytes += event.bytes;
  const bool small = event.bytes < kSmallCopy;
  if (small) ++row.small;
  const Attribution& launch = event.launch;
  if (launch.known) {
    const auto wait = waits_.find({launch.window, launch.host_begin, launch.thread});
    const Nanoseconds went_on =
        wait == waits_.end() ? launch.host_end : std::max(wait->second, launch.host_end);
    const auto last = last_copies_.find(launch.thread);
    if (went_on >= event.end) {
      count_wait(row, small);
    } else if (last != last_copies_.end() && last->second.begin == launch.host_begin &&
               last->second.window == launch.window) {
      last->second.recorded = true;
      last->second.row = index;
      last->second.end = event.end;
      last->second.small = small;
    }
  }
  overlap_.work(event.launch.window, event.device, index, event.start, event.end);
}

std::vector<CopyRow> CopyStatistics::rows() const {
  const auto overlaps = overlap_.rows();
  const auto overlap_of = [&overlaps](std::uint32_t index) {
    const auto found = overlaps.find(index);
    return found == overlaps.end() ? OverlapStatistics::Times() : found->second;
  };
  std::vector<CopyRow> rows = rows_;
  for (std::uint32_t i = 0; i < rows.size(); ++i) rows[i].overlap = overlap_of(i);
  if (other_.time.count != 0) {
    rows.push_back(other_);
    rows.back().other = true;
    rows.back().overlap = overlap_of(Keys::kOther);
  }
  const auto order = [](const CopyRow& row) {
    return std::tie(row.other, row.device, row.operation, row.source_memory, row.target_memory,
                    row.source_device, row.target_device);
  };
  std::sort(rows.begin(), rows.end(), [&order](const CopyRow& a, const CopyRow& b) {
    return a.time.sum != b.time.sum ? a.time.sum > b.time.sum : order(a) < order(b);
  });
  return rows;
}

}  // namespace inject
