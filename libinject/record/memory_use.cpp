// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/memory_use.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <span>

#include "libinject/base/clock.h"
#include "libinject/base/mapping.h"
#include "libinject/model/code_place.h"
#include "libinject/record/control.h"
#include "libinject/record/turn.h"

namespace inject {

constinit MemoryUse memory_use;

namespace {

constexpr unsigned kByteBits = 48;
constexpr std::uint64_t kMaxBytes = (std::uint64_t{1} << kByteBits) - 1;

/// Sums of sizes saturate here: a program may request nearly all of 64 bits more than once.
constexpr std::uint64_t kMostBytes = ~std::uint64_t{0};

std::uint64_t sum_up(std::uint64_t sum, std::uint64_t more) noexcept {
  return more > kMostBytes - sum ? kMostBytes : sum + more;
}

void add_up(std::atomic<std::uint64_t>& sum, std::uint64_t more) noexcept {
  std::uint64_t before = sum.load(std::memory_order_relaxed);
  while (!sum.compare_exchange_weak(before, sum_up(before, more), std::memory_order_relaxed)) {
  }
}

}  // namespace

std::uint64_t AllocationTable::pack(const Allocation& allocation) noexcept {
  return std::min(allocation.bytes, kMaxBytes) | static_cast<std::uint64_t>(allocation.device & 0xFF) << 48 |
         static_cast<std::uint64_t>(allocation.api) << 56;
}

Allocation AllocationTable::unpack(std::uint64_t value) noexcept {
  return {value & kMaxBytes, static_cast<std::uint32_t>(value >> 48 & 0xFF),
          static_cast<AllocationApi>(value >> 56)};
}

std::size_t AllocationTable::home(std::uintptr_t key) const noexcept {
  return hash_mix((key & ~kLeaving) * kHashSeed) & (entries_ - 1);
}

AllocationTable::Entry* AllocationTable::mapped() noexcept {
  Entry* entries = table_.load(std::memory_order_acquire);
  if (entries != nullptr || refused_.load(std::memory_order_relaxed)) return entries;
  const int saved_errno = errno;
  const std::size_t bytes = entries_ * sizeof(Entry);
  auto* fresh = static_cast<Entry*>(map_memory(bytes));
  if (fresh == nullptr) {
    refused_.store(true, std::memory_order_relaxed);
  } else if (table_.compare_exchange_strong(entries, fresh, std::memory_order_acq_rel)) {
    entries = fresh;
  } else {
    unmap_memory(fresh, bytes);  // another thread was faster
  }
  errno = saved_errno;
  return entries;
}

AllocationTable::Entry* AllocationTable::find(std::uintptr_t key) const noexcept {
  Entry* entries = table_.load(std::memory_order_acquire);
  if (entries == nullptr) return nullptr;
  const std::size_t begin = home(key);
  for (std::size_t i = 0; i < kProbes; ++i) {
    Entry& entry = entries[(begin + i) & (entries_ - 1)];
    const std::uintptr_t there = entry.key.load(std::memory_order_acquire);
    if (there == key) return &entry;
    if (there == kEmpty) return nullptr;
  }
  return nullptr;
}

AllocationTable::Added AllocationTable::add(const void* address, const Allocation& allocation,
                                            Allocation& replaced) noexcept {
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  Entry* entries = mapped();
  if (entries == nullptr || !is_live(key)) return Added::kNoRoom;
  const std::size_t begin = home(key);
  // Tries again if another thread has taken the slot in between.
  for (int attempt = 0; attempt < 16; ++attempt) {
    Entry* free = nullptr;
    for (std::size_t i = 0; i < kProbes; ++i) {
      Entry& entry = entries[(begin + i) & (entries_ - 1)];
      const std::uintptr_t there = entry.key.load(std::memory_order_acquire);
      if (there == key) {
        replaced = unpack(entry.value.exchange(pack(allocation), std::memory_order_acq_rel));
        return Added::kReplaced;
      }
      if (free == nullptr && (there == kEmpty || there == kDead)) free = &entry;
      if (there == kEmpty) break;
    }
    if (free == nullptr) return Added::kNoRoom;
    std::uintptr_t there = free->key.load(std::memory_order_relaxed);
    if ((there != kEmpty && there != kDead) ||
        !free->key.compare_exchange_strong(there, kBusy, std::memory_order_acq_rel)) {
      continue;
    }
    free->value.store(pack(allocation), std::memory_order_relaxed);
    free->key.store(key, std::memory_order_release);
    return Added::kYes;
  }
  return Added::kNoRoom;
}

bool AllocationTable::begin_free(const void* address, Allocation& allocation) noexcept {
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  if (!is_live(key)) return false;
  Entry* entry = find(key);
  if (entry == nullptr) return false;
  const Allocation found = unpack(entry->value.load(std::memory_order_relaxed));
  std::uintptr_t there = key;
  if (!entry->key.compare_exchange_strong(there, key | kLeaving, std::memory_order_acq_rel)) return false;
  allocation = found;
  return true;
}

bool AllocationTable::end_free(const void* address, bool freed, Allocation& allocation) noexcept {
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  if (!is_live(key)) return false;
  // Two threads may end frees of one address that was reallocated between them: each gets one slot.
  for (Entry* entry = nullptr; (entry = find(key | kLeaving)) != nullptr;) {
    allocation = unpack(entry->value.load(std::memory_order_relaxed));
    std::uintptr_t there = key | kLeaving;
    if (entry->key.compare_exchange_strong(there, freed ? kDead : key, std::memory_order_acq_rel))
      return true;
  }
  return false;
}

bool MemoryChanges::add(const MemoryChange& change) noexcept {
  std::uint64_t place = added_.load(std::memory_order_relaxed);
  for (;;) {
    Entry& entry = entries_[place % kRoom];
    const std::uint64_t empty = 2 * (place / kRoom);
    const std::uint64_t turn = entry.turn.load(std::memory_order_acquire);
    if (turn < empty) return false;  // the change added a round ago is still there
    if (turn > empty) {
      place = added_.load(std::memory_order_relaxed);
    } else if (added_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) {
      entry.change = change;
      entry.turn.store(empty + 1, std::memory_order_release);
      return true;
    }
  }
}

bool MemoryChanges::take(MemoryChange& change) noexcept {
  const std::uint64_t place = taken_.load(std::memory_order_relaxed);
  Entry& entry = entries_[place % kRoom];
  const std::uint64_t filled = 2 * (place / kRoom) + 1;
  if (entry.turn.load(std::memory_order_acquire) != filled) return false;
  change = entry.change;
  taken_.store(place + 1, std::memory_order_relaxed);
  entry.turn.store(filled + 1, std::memory_order_release);
  return true;
}

bool MemoryChanges::any() const noexcept {
  const std::uint64_t place = taken_.load(std::memory_order_relaxed);
  return entries_[place % kRoom].turn.load(std::memory_order_acquire) == 2 * (place / kRoom) + 1;
}

std::uint64_t MemoryUse::Level::add(std::uint64_t bytes, Nanoseconds time) noexcept {
  const std::uint64_t now_live = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (raise_to(peak, now_live)) raise_to(peak_at, time);
  return now_live;
}

// Added to the total first and removed from it last, so that the functions' sum never exceeds the total.
void MemoryUse::hold(const Allocation& allocation) noexcept {
  const Nanoseconds time = now();
  const std::uint64_t live = place_of(allocation.api, allocation.device).all.add(allocation.bytes, time);
  counts_of(allocation.api, allocation.device).level.add(allocation.bytes, time);
  note(allocation, live, time);
}

void MemoryUse::release(const Allocation& allocation) noexcept {
  Counts& counts = counts_of(allocation.api, allocation.device);
  counts.frees.fetch_add(1, std::memory_order_relaxed);
  counts.level.live.fetch_sub(allocation.bytes, std::memory_order_relaxed);
  Count& all = place_of(allocation.api, allocation.device).all.live;
  note(allocation, all.fetch_sub(allocation.bytes, std::memory_order_relaxed) - allocation.bytes, now());
}

void MemoryUse::note(const Allocation& allocation, std::uint64_t live, Nanoseconds time) noexcept {
  if (allocation.bytes == 0) return;
  Place& place = place_of(allocation.api, allocation.device);
  if (!changes_.add({time, live, static_cast<std::uint32_t>(&place - places_.data()),
                     open_window(current_window.load(std::memory_order_relaxed))})) {
    if (raise_to(place.spilled.highest, live)) raise_to(place.spilled.highest_at, time);
    raise_to(place.spilled.lowest, ~live);
    spilled_.store(true, std::memory_order_release);
  }
  take_changes();
}

void MemoryUse::take_changes() noexcept {
  // Once more for a change that another thread added just before the turn was released, and left to us.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (turn_.exchange(true, std::memory_order_acquire)) return;
    take_waiting();
    turn_.store(false, std::memory_order_release);
    if (!changes_.any()) return;
  }
}

void MemoryUse::take_waiting() noexcept {
  static_assert(kHost < 63);
  std::uint64_t changed = 0;  // one bit per place
  MemoryChange change;
  for (std::uint64_t i = 0; i < MemoryChanges::kRoom && changes_.take(change); ++i) {
    add(change);
    changed |= std::uint64_t{1} << change.place;
  }
  if (spilled_.load(std::memory_order_relaxed) && spilled_.exchange(false, std::memory_order_acquire)) {
    for (Place& place : places_) take_spilled(place);
    changed = (std::uint64_t{1} << places_.size()) - 1;
  }
  // Two threads' changes may have been queued in the wrong order: this is what is live.
  for (; changed != 0; changed &= changed - 1) {
    const auto place = static_cast<std::uint32_t>(std::countr_zero(changed));
    const std::uint64_t live = places_[place].all.live.load(std::memory_order_relaxed);
    if (places_[place].series.level().value_or(live) != live)
      add({now(), live, place, open_window(current_window.load(std::memory_order_relaxed))});
  }
}

void MemoryUse::take_spilled(Place& place) noexcept {
  Spilled& spilled = place.spilled;
  const std::uint64_t highest = spilled.highest.exchange(0, std::memory_order_relaxed);
  const std::uint64_t lowest = ~spilled.lowest.exchange(0, std::memory_order_relaxed);
  const Nanoseconds highest_at = spilled.highest_at.exchange(0, std::memory_order_relaxed);
  // The place's first changes may be among these.
  if (!place.series.level() && highest != 0) {
    add({highest_at, highest, static_cast<std::uint32_t>(&place - places_.data()),
         open_window(current_window.load(std::memory_order_relaxed))});
  }
  place.series.widen(lowest, highest, highest_at);
}

void MemoryUse::add(const MemoryChange& change) noexcept {
  MemorySeries& series = places_[change.place].series;
  if (!series.has_room() && !no_room_) {
    const int saved_errno = errno;
    constexpr std::size_t kRoom = MemorySeries::kRoom;
    auto* room = static_cast<MemoryInterval*>(map_memory(kRoom * sizeof(MemoryInterval)));
    if (room != nullptr) series.use({room, kRoom});
    no_room_ = room == nullptr;
    errno = saved_errno;
  }
  series.add(change.time, change.live, change.window);
}

void MemoryUse::allocated(AllocationApi api, const void* address, std::uint64_t bytes,
                          std::uint32_t device) noexcept {
  if (address == nullptr) return;  // zero bytes were requested
  const Allocation allocation{std::min(bytes, kMaxBytes), device, api};
  Counts& counts = counts_of(api, device);
  counts.allocations.fetch_add(1, std::memory_order_relaxed);
  counts.allocated.fetch_add(allocation.bytes, std::memory_order_relaxed);
  raise_to(counts.largest, allocation.bytes);
  Allocation replaced;
  switch (table_.add(address, allocation, replaced)) {
    case AllocationTable::Added::kNoRoom:
      not_held_.fetch_add(1, std::memory_order_relaxed);
      return;
    case AllocationTable::Added::kReplaced:
      // It was freed by a call that no hook saw.
      release(replaced);
      break;
    case AllocationTable::Added::kYes:
      break;
  }
  hold(allocation);
}

void MemoryUse::failed(AllocationApi api, std::uint64_t bytes, std::uint32_t device) noexcept {
  Counts& counts = counts_of(api, device);
  counts.failed.fetch_add(1, std::memory_order_relaxed);
  add_up(counts.failed_bytes, bytes);
  raise_to(counts.largest_failed, bytes);
  counts.last_failed.store(bytes, std::memory_order_relaxed);
  place_of(api, device).last_failed.store(bytes, std::memory_order_relaxed);
}

void MemoryUse::freeing(const void* address) noexcept {
  Allocation allocation;
  if (table_.begin_free(address, allocation)) release(allocation);
}

void MemoryUse::freed(const void* address, bool success) noexcept {
  if (address == nullptr) return;
  Allocation allocation;
  if (!table_.end_free(address, success, allocation)) {
    if (success) unknown_frees_.fetch_add(1, std::memory_order_relaxed);
  } else if (!success) {
    counts_of(allocation.api, allocation.device).frees.fetch_sub(1, std::memory_order_relaxed);
    hold(allocation);
  }
}

void MemoryUse::resetting(std::uint32_t device) noexcept {
  // The runtime's default device if the thread has not chosen one.
  if (device == kUnknownDevice) device = 0;
  resetting_.fetch_or(std::uint64_t{1} << device, std::memory_order_relaxed);
}

void MemoryUse::reset(bool success) noexcept {
  const std::uint64_t devices = resetting_.exchange(0, std::memory_order_relaxed);
  if (!success) return;
  for (std::uint64_t rest = devices; rest != 0; rest &= rest - 1) {
    table_.take_device(static_cast<std::uint32_t>(std::countr_zero(rest)),
                       [this](const Allocation& allocation) { release(allocation); });
  }
}

MemoryUse::Turn::Turn(MemoryUse& use) noexcept : use_(use), has_(wait_for_turn(use.turn_)) {}

MemoryUse::Turn::~Turn() {
  if (has_) use_.turn_.store(false, std::memory_order_release);
}

MemoryCopy MemoryUse::copy() {
  MemoryCopy copy;
  const Turn turn(*this);
  if (turn) take_waiting();
  copy.rows = rows();
  copy.time = now();
  for (MemoryRow& row : copy.rows) {
    if (row.api) continue;
    const std::size_t before = copy.lines.size();
    if (turn) copy_line(row.device, row.counts, copy);
    copy.lines_missing += copy.lines.size() == before && row.counts.peak != 0;
  }
  return copy;
}

// A change that raises the peak may still be on its way to the series, and the peak excludes what threads
// were about to enter or had just removed.
void MemoryUse::copy_line(std::uint32_t place, MemoryCounts& counts, MemoryCopy& copy) {
  MemorySeries& series = places_[place].series;
  const auto is_less = [](const MemoryInterval& one, const MemoryInterval& other) {
    return one.highest < other.highest;
  };
  const auto highest_of = [&](std::span<const MemoryInterval> intervals) {
    return std::max_element(intervals.begin(), intervals.end(), is_less);
  };
  if (series.intervals().empty()) return;
  if (highest_of(series.intervals())->highest < counts.peak)
    series.widen(counts.peak, counts.peak, counts.peak_at);
  const std::span<const MemoryInterval> intervals = series.intervals();
  MemoryLine& line = copy.lines.emplace_back(
      MemoryLine{place, MemoryLine::Of::kAllocated, {intervals.begin(), intervals.end()}});
  for (MemoryInterval& interval : line.intervals) {
    interval.highest = std::min(interval.highest, counts.peak);
    interval.lowest = std::min(interval.lowest, counts.peak);
    interval.last = std::min(interval.last, counts.peak);
  }
  counts.peak_at = highest_of(line.intervals)->highest_at;
}

std::vector<MemoryRow> MemoryUse::rows() const {
  const auto read = [](const Count& count) { return count.load(std::memory_order_relaxed); };
  // The peak may be raised after the live bytes have been read, never before.
  const auto read_level = [&](const Level& level, MemoryCounts& counts) {
    counts.live = read(level.live);
    counts.peak = std::max({counts.peak, read(level.peak), counts.live});
    counts.peak_at = level.peak_at.load(std::memory_order_relaxed);
  };
  std::vector<MemoryRow> rows;
  for (std::uint32_t device = 0; device < places_.size(); ++device) {
    const Place& place = places_[device];
    MemoryRow all{device, std::nullopt, {}};
    std::vector<MemoryRow> apis;
    std::uint64_t peaks = 0;
    for (std::size_t api = 0; api < kAllocationApis; ++api) {
      const Counts& counts = place.apis[api];
      MemoryRow row{device, static_cast<AllocationApi>(api), {}};
      row.counts.allocations = read(counts.allocations);
      row.counts.failed = read(counts.failed);
      if (row.counts.allocations + row.counts.failed == 0) continue;
      row.counts.frees = read(counts.frees);
      row.counts.allocated = read(counts.allocated);
      read_level(counts.level, row.counts);
      row.counts.largest = read(counts.largest);
      row.counts.failed_bytes = read(counts.failed_bytes);
      row.counts.largest_failed = read(counts.largest_failed);
      row.counts.last_failed = read(counts.last_failed);
      apis.push_back(row);
      all.counts.allocations += row.counts.allocations;
      all.counts.frees += row.counts.frees;
      all.counts.live += row.counts.live;
      all.counts.peak = std::max(all.counts.peak, row.counts.peak);
      peaks += row.counts.peak;
      all.counts.allocated += row.counts.allocated;
      all.counts.largest = std::max(all.counts.largest, row.counts.largest);
      all.counts.failed += row.counts.failed;
      all.counts.failed_bytes = sum_up(all.counts.failed_bytes, row.counts.failed_bytes);
      all.counts.largest_failed = std::max(all.counts.largest_failed, row.counts.largest_failed);
    }
    if (apis.empty()) continue;
    // The total is raised before and lowered after each function's count: what threads are about to enter or
    // have just removed was never live at the same time.
    all.counts.peak = std::min(std::max({all.counts.peak, all.counts.live, read(place.all.peak)}), peaks);
    all.counts.peak_at = place.all.peak_at.load(std::memory_order_relaxed);
    all.counts.last_failed = read(place.last_failed);
    std::stable_sort(apis.begin(), apis.end(), [](const MemoryRow& a, const MemoryRow& b) {
      return a.counts.allocated > b.counts.allocated;
    });
    rows.push_back(all);
    rows.insert(rows.end(), apis.begin(), apis.end());
  }
  return rows;
}

}  // namespace inject
