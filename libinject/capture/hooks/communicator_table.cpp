// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/communicator_table.h"

namespace inject {

static_assert(CommunicatorTable::kSets == 64, "set_of() takes six bits");

CommunicatorFacts CommunicatorTable::facts(const void* communicator, std::uint32_t window) const noexcept {
  const auto key = reinterpret_cast<std::uintptr_t>(communicator);
  for (const Entry& entry : entries_[set_of(key)]) {
    if (entry.communicator.load(std::memory_order_acquire) != key) continue;
    const std::uint64_t value = entry.value.load(std::memory_order_acquire);
    const CommunicatorId id = entry.id.load(std::memory_order_acquire);
    // Still this communicator's: a thread that reuses the entry makes it busy before it writes.
    if (entry.communicator.load(std::memory_order_relaxed) != key) return {};
    if (value >> 32 != window) return {};
    return {static_cast<std::uint32_t>(value), id};
  }
  return {};
}

void CommunicatorTable::remember(const void* communicator, std::uint32_t window,
                                 const CommunicatorFacts& facts) noexcept {
  const auto key = reinterpret_cast<std::uintptr_t>(communicator);
  if (key <= kBusy) return;
  auto& set = entries_[set_of(key)];
  // Its own slot, else a free one, else one whose window is over, else any.
  Entry* best = nullptr;
  unsigned best_rank = 4;
  for (Entry& entry : set) {
    const std::uintptr_t there = entry.communicator.load(std::memory_order_acquire);
    if (there == kBusy) continue;
    const bool old = entry.value.load(std::memory_order_relaxed) >> 32 != window;
    const unsigned rank = there == key ? 0 : there == 0 ? 1 : old ? 2 : 3;
    if (rank < best_rank) {
      best = &entry;
      best_rank = rank;
    }
  }
  if (best == nullptr) return;
  std::uintptr_t there = best->communicator.load(std::memory_order_relaxed);
  if (there == kBusy ||
      !best->communicator.compare_exchange_strong(there, kBusy, std::memory_order_acq_rel)) {
    return;  // another thread is writing there: this one will query again
  }
  best->value.store(std::uint64_t{window} << 32 | facts.ranks, std::memory_order_release);
  best->id.store(facts.id, std::memory_order_release);
  best->communicator.store(key, std::memory_order_release);
}

void CommunicatorTable::forget(const void* communicator) noexcept {
  const auto key = reinterpret_cast<std::uintptr_t>(communicator);
  if (key <= kBusy) return;
  // Two threads may have entered it at the same time, in two slots.
  for (Entry& entry : entries_[set_of(key)]) {
    std::uintptr_t there = key;
    entry.communicator.compare_exchange_strong(there, 0, std::memory_order_acq_rel);
  }
}

}  // namespace inject
