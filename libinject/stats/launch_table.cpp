// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/launch_table.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "libinject/base/mapping.h"

namespace inject {

namespace {
constexpr std::size_t kFirstSize = 256;
constexpr std::size_t kMinKept = 4096;
constexpr std::size_t kMaxUnreported = 4096;  // windows
// The records of launches on one device arrive within this time of each other if CUPTI is flushed meanwhile.
constexpr Nanoseconds kRecordSpread = kSecond;

// All that is known about a launch outside all windows.
constexpr Attribution kLaunchedOutside = [] {
  Attribution launch;
  launch.known = true;
  return launch;
}();
}  // namespace

LaunchTable::LaunchTable(std::size_t most) : most_(std::bit_ceil(std::max(most, kMinKept))) {
  entries_.resize(kFirstSize);
  index_.assign(kFirstSize * 2, 0);
}

std::size_t LaunchTable::slot_of(std::uint64_t key) const {
  return hash_mix(key * kHashSeed) & (index_.size() - 1);
}

void LaunchTable::index_insert(std::uint32_t position) {
  const std::size_t mask = index_.size() - 1;
  std::size_t slot = slot_of(entries_[position].key);
  while (index_[slot] != 0) slot = (slot + 1) & mask;
  index_[slot] = position + 1;
}

// Backward-shift deletion: no tombstones, so a table that turns over for days stays as fast as a new one.
void LaunchTable::index_erase(std::uint64_t key, std::uint32_t position) {
  const std::size_t mask = index_.size() - 1;
  std::size_t slot = slot_of(key);
  while (index_[slot] != position + 1) {
    if (index_[slot] == 0) return;
    slot = (slot + 1) & mask;
  }
  std::size_t hole = slot;
  for (std::size_t next = (hole + 1) & mask; index_[next] != 0; next = (next + 1) & mask) {
    const std::size_t home = slot_of(entries_[index_[next] - 1].key);
    if (((next - home) & mask) >= ((next - hole) & mask)) {
      index_[hole] = index_[next];
      hole = next;
    }
  }
  index_[hole] = 0;
}

void LaunchTable::grow() {
  std::vector<Entry> larger(entries_.size() * 2);
  for (std::size_t i = 0; i < size_; ++i) larger[i] = entries_[(first_ + i) & (entries_.size() - 1)];
  entries_.swap(larger);
  first_ = 0;
  index_.assign(entries_.size() * 2, 0);
  for (std::size_t i = 0; i < size_; ++i) index_insert(static_cast<std::uint32_t>(i));
}

void LaunchTable::add(std::uint16_t generation, std::uint32_t correlation, const Attribution& launch,
                      bool expects_work, std::optional<std::uint16_t> graph) {
  if (launch.window == 0) {
    outside_.add(generation, correlation);
    return;
  }
  if (size_ == entries_.size()) {
    if (size_ < kMinKept || (entries_[first_].waits && size_ < most_)) {
      grow();
    } else {
      Entry& oldest = entries_[first_];
      if (oldest.waits) {
        --waiting_;
        if (oldest.is_graph) --waiting_graphs_;
        ++given_up_;
        forget(oldest, false, unreported_);
        if (unreported_.size() > kMaxUnreported) {
          // Windows that ended days ago are merged and count only for the run.
          const auto first = unreported_.upper_bound(0);
          const std::uint64_t count = first->second;
          unreported_.erase(first);
          unreported_[0] += count;
        }
      }
      index_erase(oldest.key, static_cast<std::uint32_t>(first_));
      first_ = (first_ + 1) & (entries_.size() - 1);
      --size_;
    }
  }
  const std::size_t position = (first_ + size_) & (entries_.size() - 1);
  Entry& entry = entries_[position];
  entry.launch = launch;
  entry.launch.known = true;
  entry.key = key_of(generation, correlation);
  entry.last_record = 0;
  entry.waits = expects_work;
  entry.is_graph = graph.has_value();
  entry.graph = graph.value_or(0);
  if (entry.waits) ++waiting_;
  if (entry.waits && entry.is_graph) ++waiting_graphs_;
  ++size_;
  index_insert(static_cast<std::uint32_t>(position));
}

LaunchTable::Found LaunchTable::find(std::uint16_t generation, std::uint32_t correlation,
                                     std::uint64_t identity) {
  const std::uint64_t key = key_of(generation, correlation);
  const std::size_t mask = index_.size() - 1;
  for (std::size_t slot = slot_of(key); index_[slot] != 0; slot = (slot + 1) & mask) {
    Entry& entry = entries_[index_[slot] - 1];
    if (entry.key != key) continue;
    if (std::exchange(entry.waits, false)) {
      --waiting_;
      latest_arrived_ = std::max(latest_arrived_, entry.launch.host_begin);
      if (entry.is_graph) {
        --waiting_graphs_;
        graphs_with_work_[entry.graph] = true;
      }
    }
    return {&entry.launch, std::exchange(entry.last_record, identity) == identity && identity != 0};
  }
  if (outside_.contains(generation, correlation)) return {&kLaunchedOutside, false};
  return {};
}

bool LaunchTable::seems_empty(const Entry& entry) const {
  return may_be_empty(entry) && entry.launch.host_begin + kRecordSpread < latest_arrived_;
}

std::size_t LaunchTable::waiting() const {
  std::size_t empty = 0;
  std::size_t left = waiting_graphs_;
  for (std::size_t i = 0; i < size_ && left != 0; ++i) {
    const Entry& entry = entries_[(first_ + i) & (entries_.size() - 1)];
    if (!entry.waits || !entry.is_graph) continue;
    --left;
    if (seems_empty(entry)) ++empty;
  }
  return waiting_ - empty;
}

/// Returns whether it had work.
bool LaunchTable::forget(const Entry& entry, bool delivered,
                         std::map<std::uint32_t, std::uint64_t>& missing) {
  if (may_be_empty(entry) && (delivered || entry.launch.host_begin < latest_arrived_)) {
    ++graphs_without_work_;
    return false;
  }
  ++missing[entry.launch.window];
  return true;
}

std::uint32_t LaunchTable::first_waiting_window() const {
  std::uint32_t first = 0;
  std::size_t left = waiting_;
  for (std::size_t i = 0; i < size_ && left != 0; ++i) {
    const Entry& entry = entries_[(first_ + i) & (entries_.size() - 1)];
    if (!entry.waits) continue;
    --left;
    if (seems_empty(entry)) continue;
    if (first == 0 || entry.launch.window < first) first = entry.launch.window;
  }
  return first;
}

std::optional<Nanoseconds> LaunchTable::first_waiting_begin() const {
  std::optional<Nanoseconds> first;
  std::size_t left = waiting_;
  for (std::size_t i = 0; i < size_ && left != 0; ++i) {
    const Entry& entry = entries_[(first_ + i) & (entries_.size() - 1)];
    if (!entry.waits) continue;
    --left;
    if (seems_empty(entry)) continue;
    first = std::min(first.value_or(entry.launch.host_begin), entry.launch.host_begin);
  }
  return first;
}

std::map<std::uint32_t, std::uint64_t> LaunchTable::give_up_waiting(
    bool delivered, const std::function<void(const Attribution& launch)>& tell) {
  std::map<std::uint32_t, std::uint64_t> forgotten = std::exchange(unreported_, {});
  if (tell) {
    Attribution launch;
    for (const auto& [window, count] : forgotten) {
      launch.window = window;
      tell(launch);
    }
  }
  for (std::size_t i = 0; i < size_; ++i) {
    Entry& entry = entries_[(first_ + i) & (entries_.size() - 1)];
    if (std::exchange(entry.waits, false) && forget(entry, delivered, forgotten) && tell) tell(entry.launch);
  }
  waiting_ = waiting_graphs_ = 0;
  return forgotten;
}

}  // namespace inject
