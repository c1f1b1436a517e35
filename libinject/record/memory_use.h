// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "libinject/model/memory_row.h"

namespace inject {

struct Allocation {
  std::uint64_t bytes = 0;
  std::uint32_t device = 0;
  AllocationApi api{};
};

/// Live allocations by address: open addressing in memory that is mapped with the first of them. Lock-free;
/// an address is sought in kProbes places at most, and what finds no room there is not held. Devices below
/// 255. Constant-initialised, never destroyed.
///
/// An address may be given to another thread as soon as the real function has freed it, so an allocation
/// leaves in two steps, before that call and after it.
class AllocationTable {
 public:
  /// `entries`: a power of two.
  constexpr explicit AllocationTable(std::size_t entries) noexcept : entries_(entries) {}
  AllocationTable(const AllocationTable&) = delete;
  AllocationTable& operator=(const AllocationTable&) = delete;

  enum class Added : std::uint8_t { kYes, kReplaced, kNoRoom };
  /// kReplaced: the address was held, so that what lay there (`replaced`) is gone.
  Added add(const void* address, const Allocation& allocation, Allocation& replaced) noexcept;

  /// The allocation is about to be freed; false if it is not held.
  bool begin_free(const void* address, Allocation& allocation) noexcept;
  /// What begin_free() found has been freed, or (`freed` is false) is still there. False if nothing is known
  /// of the address.
  bool end_free(const void* address, bool freed, Allocation& allocation) noexcept;

  /// Removes all allocations of a device, and reports each.
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
  std::atomic<bool> refused_{false};  // there is no memory for the table
};

/// Allocations by function and device, counted by the hooks of the CUDA runtime at all times, windows or not.
/// No lock, no allocation, no system call but for the table's mapping; errno is kept. Sizes are in bytes.
/// Constant-initialised, never destroyed.
class MemoryUse {
 public:
  static constexpr std::uint32_t kDevices = 32;  ///< that have rows of their own
  static constexpr std::uint32_t kOtherDevice = kDevices;
  static constexpr std::uint32_t kUnknownDevice = kDevices + 1;  ///< no context was current
  static constexpr std::uint32_t kHost = kDevices + 2;           ///< pinned memory, whichever the device

  constexpr MemoryUse() noexcept : table_(std::size_t{1} << 16) {}

  void start() noexcept { active_.store(true, std::memory_order_release); }
  /// Nothing is counted from here on: a forked child, where CUDA does not work.
  void stop() noexcept { active_.store(false, std::memory_order_release); }
  bool active() const noexcept { return active_.load(std::memory_order_relaxed); }

  void allocated(AllocationApi api, const void* address, std::uint64_t bytes, std::uint32_t device) noexcept;
  void failed(AllocationApi api, std::uint64_t bytes, std::uint32_t device) noexcept;
  /// Around the real function that frees.
  void freeing(const void* address) noexcept;
  void freed(const void* address, bool success) noexcept;
  /// Around cudaDeviceReset, which frees all that was allocated on the device.
  void resetting(std::uint32_t device) noexcept;
  void reset(bool success) noexcept;

  /// Rows of devices in ascending order and of the host, all together first, then by bytes allocated.
  std::vector<MemoryRow> rows() const;
  /// Allocations that found no room in the table: neither live nor peak bytes have them.
  std::uint64_t not_held() const noexcept { return not_held_.load(std::memory_order_relaxed); }
  /// Successful calls that freed what no hook has seen allocated.
  std::uint64_t unknown_frees() const noexcept { return unknown_frees_.load(std::memory_order_relaxed); }

 private:
  using Count = std::atomic<std::uint64_t>;
  struct Level {
    Count live{0};
    Count peak{0};
    void add(std::uint64_t bytes) noexcept;
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
  };

  Place& place_of(AllocationApi api, std::uint32_t device) noexcept {
    return places_[allocation_kind(api) == AllocationKind::kPinnedHost ? kHost : device];
  }
  Counts& counts_of(AllocationApi api, std::uint32_t device) noexcept {
    return place_of(api, device).apis[static_cast<std::size_t>(api)];
  }
  void hold(const Allocation& allocation) noexcept;
  void release(const Allocation& allocation) noexcept;

  AllocationTable table_;
  std::array<Place, kHost + 1> places_{};
  std::atomic<bool> active_{false};
  std::atomic<std::uint64_t> resetting_{0};  // bit per device
  Count not_held_{0};
  Count unknown_frees_{0};
};

extern MemoryUse memory_use;

}  // namespace inject
