// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "libinject/base/time.h"
#include "libinject/model/memory_row.h"
#include "libinject/model/memory_timeline.h"
#include "libinject/record/memory_series.h"

namespace inject {

struct Allocation {
  std::uint64_t bytes = 0;
  std::uint32_t device = 0;
  AllocationApi api{};
};

/// Live allocations by address: open addressing in memory that is mapped with the first of them. Lock-free;
/// an address is looked up in at most kProbes slots, and is not held if it finds none there. Devices must be
/// below 255. Constant-initialised, never destroyed.
///
/// An address may be given to another thread as soon as the real function has freed it, so an allocation is
/// removed in two steps, before that call and after it.
class AllocationTable {
 public:
  /// `entries`: a power of two.
  constexpr explicit AllocationTable(std::size_t entries) noexcept : entries_(entries) {}
  AllocationTable(const AllocationTable&) = delete;
  AllocationTable& operator=(const AllocationTable&) = delete;

  enum class Added : std::uint8_t { kYes, kReplaced, kNoRoom };
  /// kReplaced: the address was held already, so the previous allocation (`replaced`) is gone.
  Added add(const void* address, const Allocation& allocation, Allocation& replaced) noexcept;

  /// The allocation is about to be freed; false if it is not held.
  bool begin_free(const void* address, Allocation& allocation) noexcept;
  /// What begin_free() found has been freed, or (`freed` is false) still exists. False if nothing is known
  /// about the address.
  bool end_free(const void* address, bool freed, Allocation& allocation) noexcept;

  /// Removes and reports all allocations of a device.
  template <typename Tell>  // Tell(const Allocation&)
  void take_device(std::uint32_t device, Tell&& tell) noexcept {
    Entry* entries = table_.load(std::memory_order_acquire);
    for (std::size_t i = 0; entries != nullptr && i < entries_; ++i) {
      std::uintptr_t key = entries[i].key.load(std::memory_order_acquire);
      if (!is_live(key)) continue;
      const Allocation allocation = unpack(entries[i].value.load(std::memory_order_relaxed));
      if (allocation.device == device &&
          entries[i].key.compare_exchange_strong(key, kDead, std::memory_order_acq_rel)) {
        tell(allocation);
      }
    }
  }

 private:
  // A key is an address, with kLeaving added between begin_free() and end_free(), or one of these.
  static constexpr std::uintptr_t kEmpty = 0;
  static constexpr std::uintptr_t kDead = 2;
  static constexpr std::uintptr_t kBusy = 4;
  static constexpr std::uintptr_t kLeaving = 1;
  static constexpr std::uintptr_t kLowest = 16;
  static constexpr std::size_t kProbes = 64;

  struct Entry {
    std::atomic<std::uintptr_t> key{kEmpty};
    std::atomic<std::uint64_t> value{0};  // bytes, device, function
  };

  static constexpr bool is_live(std::uintptr_t key) noexcept {
    return key >= kLowest && (key & kLeaving) == 0;
  }
  static std::uint64_t pack(const Allocation& allocation) noexcept;
  static Allocation unpack(std::uint64_t value) noexcept;
  Entry* find(std::uintptr_t key) const noexcept;
  Entry* mapped() noexcept;
  std::size_t home(std::uintptr_t key) const noexcept;

  const std::size_t entries_;
  std::atomic<Entry*> table_{nullptr};
  std::atomic<bool> refused_{false};  // no memory for the table
};

/// The live bytes of a place after a change.
struct MemoryChange {
  Nanoseconds time = 0;
  std::uint64_t live = 0;
  std::uint32_t place = 0;   ///< a device, or one of MemoryUse's numbers
  std::uint32_t window = 0;  ///< the one that was open
};

/// Changes on their way to the series: a ring to which any thread adds, and from which one thread at a time
/// takes. Lock-free. Refuses changes when full.
class MemoryChanges {
 public:
  bool add(const MemoryChange& change) noexcept;
  /// False if there is none, or the next one is still being added.
  bool take(MemoryChange& change) noexcept;
  bool any() const noexcept;

  static constexpr std::uint64_t kRoom = 1024;

 private:
  struct Entry {
    std::atomic<std::uint64_t> turn{0};  // even: may be filled in round turn / 2; odd: filled
    MemoryChange change;
  };
  std::array<Entry, kRoom> entries_{};
  std::atomic<std::uint64_t> added_{0};
  std::atomic<std::uint64_t> taken_{0};
};

/// The counts at one moment.
struct MemoryCopy {
  std::vector<MemoryRow> rows;
  std::vector<MemoryLine> lines;
  std::uint64_t lines_missing = 0;  ///< of places with allocations
  Nanoseconds time = 0;
};

/// Allocations by function and device, counted by the hooks of the CUDA runtime at all times, inside windows
/// or not. No lock, no allocation, no system call except for mappings; errno is preserved. Sizes are in
/// bytes. Constant-initialised, never destroyed.
///
/// Memory over time is kept by one thread at a time, the one that has the turn: a change is added to a queue,
/// from which that thread takes it. A thread that finds another at work does not wait: its change is taken by
/// that thread, by the next change, or by a reader. Of changes that arrive while the queue is full, the
/// lowest and the highest level are kept.
class MemoryUse {
 public:
  static constexpr std::uint32_t kDevices = 32;  ///< devices with their own rows
  static constexpr std::uint32_t kOtherDevice = kDevices;
  static constexpr std::uint32_t kUnknownDevice = kDevices + 1;  ///< no context was current
  static constexpr std::uint32_t kHost = kDevices + 2;           ///< pinned memory, whatever the device

  constexpr MemoryUse() noexcept : table_(std::size_t{1} << 16) {}

  void start() noexcept { active_.store(true, std::memory_order_release); }
  /// Stops counting: in a forked child, where CUDA does not work.
  void stop() noexcept { active_.store(false, std::memory_order_release); }
  bool active() const noexcept { return active_.load(std::memory_order_relaxed); }

  void allocated(AllocationApi api, const void* address, std::uint64_t bytes, std::uint32_t device) noexcept;
  void failed(AllocationApi api, std::uint64_t bytes, std::uint32_t device) noexcept;
  /// Before and after the real function that frees.
  void freeing(const void* address) noexcept;
  void freed(const void* address, bool success) noexcept;
  /// Before and after cudaDeviceReset, which frees everything that was allocated on the device.
  void resetting(std::uint32_t device) noexcept;
  void reset(bool success) noexcept;

  /// Rows of devices in ascending order and of the host, the total first, then by bytes allocated; and their
  /// lines, which are missing if a thread does not return from its turn, or there is no memory for them. Not
  /// for hooks.
  MemoryCopy copy();
  /// Holds the turn, if it could be had within a tenth of a second. Not for hooks.
  class Turn {
   public:
    explicit Turn(MemoryUse& use) noexcept;
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();
    explicit operator bool() const noexcept { return has_; }

   private:
    MemoryUse& use_;
    bool has_;
  };
  /// Number of allocations that did not fit in the table: they are in neither live nor peak bytes.
  std::uint64_t not_held() const noexcept { return not_held_.load(std::memory_order_relaxed); }
  /// Number of successful calls that freed memory whose allocation no hook has seen.
  std::uint64_t unknown_frees() const noexcept { return unknown_frees_.load(std::memory_order_relaxed); }

 private:
  using Count = std::atomic<std::uint64_t>;
  struct Level {
    Count live{0};
    Count peak{0};
    std::atomic<Nanoseconds> peak_at{0};
    /// Returns the bytes that are live now.
    std::uint64_t add(std::uint64_t bytes, Nanoseconds time) noexcept;
  };
  /// Levels of changes that found the queue full.
  struct Spilled {
    Count highest{0};
    std::atomic<Nanoseconds> highest_at{0};
    Count lowest{0};  // its complement
  };
  struct Counts {
    Count allocations{0};
    Count frees{0};
    Count allocated{0};
    Level level;
    Count largest{0};
    Count failed{0};
    Count failed_bytes{0};
    Count largest_failed{0};
    Count last_failed{0};
  };
  struct Place {
    std::array<Counts, kAllocationApis> apis{};
    Level all;
    Count last_failed{0};
    Spilled spilled;
    MemorySeries series;  // used by whoever has the turn
  };

  Place& place_of(AllocationApi api, std::uint32_t device) noexcept {
    return places_[allocation_kind(api) == AllocationKind::kPinnedHost ? kHost : device];
  }
  Counts& counts_of(AllocationApi api, std::uint32_t device) noexcept {
    return place_of(api, device).apis[static_cast<std::size_t>(api)];
  }
  void hold(const Allocation& allocation) noexcept;
  void release(const Allocation& allocation) noexcept;
  void note(const Allocation& allocation, std::uint64_t live, Nanoseconds time) noexcept;
  void take_changes() noexcept;
  void take_waiting() noexcept;
  void take_spilled(Place& place) noexcept;
  void add(const MemoryChange& change) noexcept;
  std::vector<MemoryRow> rows() const;
  void copy_line(std::uint32_t place, MemoryCounts& counts, MemoryCopy& copy);

  AllocationTable table_;
  std::array<Place, kHost + 1> places_{};
  std::atomic<bool> active_{false};
  std::atomic<std::uint64_t> resetting_{0};  // one bit per device
  MemoryChanges changes_;
  std::atomic<bool> turn_{false};
  std::atomic<bool> spilled_{false};  // some Place::spilled is not empty
  // Used by whoever has the turn:
  bool no_room_ = false;  // no memory for a series
  Count not_held_{0};
  Count unknown_frees_{0};
};

extern MemoryUse memory_use;

}  // namespace inject
