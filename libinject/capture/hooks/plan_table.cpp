// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/plan_table.h"

#include "libinject/base/mapping.h"

namespace inject {

namespace {

constexpr unsigned kShapeBits = 19;
constexpr std::uint64_t kShapeMask = (std::uint64_t{1} << kShapeBits) - 1;
static_assert(PlanTable::kShapeEnd == kShapeMask + 1);
constexpr std::uint64_t kRemoved = 1;  // not an address

// Descriptors are aligned to 8, and addresses have 48 bits: 45 are left. 0 for any other address.
std::uint64_t key_of(const void* plan) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(plan);
  if ((address & 7) != 0 || address >> 48 != 0) return 0;
  return static_cast<std::uint64_t>(address >> 3) << kShapeBits;
}

std::size_t place_of(std::uint64_t key, std::size_t probe) noexcept {
  return (hash_mix(key * kHashSeed) + probe) % PlanTable::kSlots;
}

}  // namespace

std::atomic<std::uint64_t>* PlanTable::slot_of(const void* plan) noexcept {
  const std::uint64_t key = key_of(plan);
  if (key == 0) return nullptr;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    std::atomic<std::uint64_t>& slot = slots_[place_of(key, probe)];
    const std::uint64_t there = slot.load(std::memory_order_relaxed);
    if (there == 0) return nullptr;
    if ((there & ~kShapeMask) == key) return &slot;
  }
  return nullptr;
}

bool PlanTable::set(const void* plan, std::uint32_t shape) noexcept {
  const std::uint64_t key = key_of(plan);
  if (key == 0 || shape >= kShapeEnd) return false;
  if (std::atomic<std::uint64_t>* slot = slot_of(plan); slot != nullptr) {
    slot->store(key | shape, std::memory_order_relaxed);
    return true;
  }
  // One thread makes a plan, so no other thread enters it at the same time.
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    std::atomic<std::uint64_t>& slot = slots_[place_of(key, probe)];
    std::uint64_t there = slot.load(std::memory_order_relaxed);
    if ((there == 0 || there == kRemoved) &&
        slot.compare_exchange_strong(there, key | shape, std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

std::optional<std::uint32_t> PlanTable::find(const void* plan) const noexcept {
  const std::atomic<std::uint64_t>* slot = const_cast<PlanTable*>(this)->slot_of(plan);
  if (slot == nullptr) return std::nullopt;
  return static_cast<std::uint32_t>(slot->load(std::memory_order_relaxed) & kShapeMask);
}

void PlanTable::remove(const void* plan) noexcept {
  // Not marked as empty: another plan may follow it.
  if (std::atomic<std::uint64_t>* slot = slot_of(plan); slot != nullptr)
    slot->store(kRemoved, std::memory_order_relaxed);
}

}  // namespace inject
