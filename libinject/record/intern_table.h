// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "libinject/base/mapping.h"

namespace inject {

/// Distinct items by number. 0 means none. Any thread may enter and read without a lock; bounded, in memory
/// that is reserved and not touched.
template <typename Item>
class InternTable {
  static_assert(std::is_trivially_copyable_v<Item>);

 public:
  explicit InternTable(std::uint32_t most) noexcept : most_(most) {
    const std::uint32_t slots = std::bit_ceil(most_ * 2u);
    const std::size_t slot_bytes = slots * sizeof(std::atomic<std::uint32_t>);
    mapped_ = slot_bytes + most_ * sizeof(Item);
    void* base = map_memory(mapped_);
    if (base == nullptr) {
      most_ = 0;
      return;
    }
    slots_ = static_cast<std::atomic<std::uint32_t>*>(base);
    items_ = reinterpret_cast<Item*>(static_cast<char*>(base) + slot_bytes);
    slot_mask_ = slots - 1;
  }
  ~InternTable() { unmap_memory(slots_, mapped_); }
  InternTable(const InternTable&) = delete;
  InternTable& operator=(const InternTable&) = delete;

  /// The number of the item for which `is_same(item)`; if there is none, enters `make()` under this hash. 0
  /// if there is no room for it (counted in overflows()).
  template <typename IsSame, typename Make>
  std::uint32_t intern(std::uint64_t hash, IsSame is_same, Make make) noexcept {
    std::uint32_t fresh = 0;
    auto slot = static_cast<std::uint32_t>(hash) & slot_mask_;
    for (std::uint32_t probe = 0; most_ != 0 && probe <= slot_mask_;
         ++probe, slot = (slot + 1) & slot_mask_) {
      std::uint32_t value = slots_[slot].load(std::memory_order_acquire);
      if (value == 0) {
        if (fresh == 0) {
          fresh = count_.fetch_add(1, std::memory_order_relaxed);
          if (fresh >= most_) {
            count_.fetch_sub(1, std::memory_order_relaxed);
            break;
          }
          items_[fresh] = make();
        }
        if (slots_[slot].compare_exchange_strong(value, fresh, std::memory_order_acq_rel,
                                                 std::memory_order_acquire))
          return fresh;
      }
      // If two threads enter the same item at once, one of the two numbers is left unused.
      if (is_same(items_[value])) return value;
    }
    overflows_.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }

  /// The item with a number that intern() returned; an empty one for any other number.
  Item item(std::uint32_t number) const noexcept {
    return number == 0 || number >= most_ ? Item{} : items_[number];
  }

  std::uint64_t overflows() const noexcept { return overflows_.load(std::memory_order_relaxed); }

 private:
  std::uint32_t most_;
  std::uint32_t slot_mask_ = 0;
  std::size_t mapped_ = 0;
  std::atomic<std::uint32_t>* slots_ = nullptr;
  Item* items_ = nullptr;
  std::atomic<std::uint32_t> count_{1};
  std::atomic<std::uint64_t> overflows_{0};
};

}  // namespace inject
