// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/communicator_ids.h"

#include "libinject/base/mapping.h"

namespace inject {

namespace {

// 0 means not known.
CommunicatorId id_of(std::uint64_t hash) noexcept {
  return hash == 0 ? 1 : hash;
}

}  // namespace

CommunicatorId communicator_id(std::string_view unique_id) noexcept {
  return id_of(hash_mix(hash_bytes(unique_id)));
}

CommunicatorId split_communicator_id(CommunicatorId parent, int color, std::uint32_t number) noexcept {
  if (parent == 0) return 0;
  const std::uint64_t which = std::uint64_t{number} << 32 | static_cast<std::uint32_t>(color);
  return id_of(hash_mix(parent ^ hash_mix(which + kHashSeed)));
}

std::size_t CommunicatorIds::place(std::uintptr_t key) noexcept {
  return hash_mix(key) % kMax;
}

CommunicatorIds::Entry* CommunicatorIds::find(std::uintptr_t key) noexcept {
  if (key <= kBusy) return nullptr;
  for (std::size_t i = 0, at = place(key); i < kMax; ++i, at = (at + 1) % kMax) {
    const std::uintptr_t there = entries_[at].communicator.load(std::memory_order_acquire);
    if (there == key) return &entries_[at];
    if (there == 0) return nullptr;
  }
  return nullptr;
}

void CommunicatorIds::remember(const void* communicator, CommunicatorId id) noexcept {
  const auto key = reinterpret_cast<std::uintptr_t>(communicator);
  // An earlier communicator at this address may have been destroyed unseen.
  forget(communicator);
  if (key <= kBusy || id == 0) return;
  for (std::size_t i = 0, at = place(key); i < kMax; ++i, at = (at + 1) % kMax) {
    Entry& entry = entries_[at];
    std::uintptr_t there = entry.communicator.load(std::memory_order_acquire);
    if (there > kFree || !entry.communicator.compare_exchange_strong(there, kBusy, std::memory_order_acq_rel))
      continue;
    entry.id.store(id, std::memory_order_relaxed);
    entry.splits.store(0, std::memory_order_relaxed);
    // Release, last: a thread that finds the communicator finds its id.
    entry.communicator.store(key, std::memory_order_release);
    return;
  }
}

CommunicatorId CommunicatorIds::id(const void* communicator) noexcept {
  const Entry* entry = find(reinterpret_cast<std::uintptr_t>(communicator));
  return entry == nullptr ? 0 : entry->id.load(std::memory_order_relaxed);
}

CommunicatorId CommunicatorIds::split(const void* communicator, int color) noexcept {
  Entry* entry = find(reinterpret_cast<std::uintptr_t>(communicator));
  if (entry == nullptr) return 0;
  const std::uint32_t number = entry->splits.fetch_add(1, std::memory_order_relaxed);
  return color < 0 ? 0 : split_communicator_id(entry->id.load(std::memory_order_relaxed), color, number);
}

void CommunicatorIds::forget(const void* communicator) noexcept {
  if (Entry* entry = find(reinterpret_cast<std::uintptr_t>(communicator)); entry != nullptr)
    entry->communicator.store(kFree, std::memory_order_release);
}

}  // namespace inject
