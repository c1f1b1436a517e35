// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/captured_graphs.h"

#include "libinject/base/mapping.h"

namespace inject {

namespace {

std::size_t first_slot(std::uintptr_t executable) noexcept {
  return hash_mix(executable * kHashSeed);
}

}  // namespace

void CapturedGraphs::set(const void* handle, std::unique_ptr<CapturedGraph> graph) {
  Graph kept;
  if (graph != nullptr) {
    const std::size_t kernels = graph->kernels.size();
    if (held_->fetch_add(kernels, std::memory_order_relaxed) + kernels > kMaxKernels) {
      held_->fetch_sub(kernels, std::memory_order_relaxed);
      note_lost(kernels);
    } else {
      // If there is no memory for this, the deleter is called.
      kept = Graph(graph.release(), [held = held_](const CapturedGraph* gone) {
        held->fetch_sub(gone->kernels.size(), std::memory_order_relaxed);
        delete gone;
      });
    }
  }
  const MutexLock lock(mutex_);
  graphs_.erase(handle);
  if (kept == nullptr) return;
  if (graphs_.size() == kMaxGraphs) {
    note_lost(kept->kernels.size());
  } else {
    graphs_.emplace(handle, std::move(kept));
  }
}

void CapturedGraphs::copy(const void* handle, const void* original) {
  const MutexLock lock(mutex_);
  graphs_.erase(handle);
  const auto found = graphs_.find(original);
  if (found == graphs_.end()) return;
  if (graphs_.size() == kMaxGraphs) {
    note_lost(found->second->kernels.size());
  } else {
    graphs_.emplace(handle, Graph(found->second));
  }
}

void CapturedGraphs::set_executable(const void* executable, const void* handle, std::size_t nodes) {
  const MutexLock lock(mutex_);
  leave(executable);
  const auto graph = graphs_.find(handle);
  // The program may have added nodes to the graph since it was captured.
  if (graph == graphs_.end() || graph->second->nodes != nodes) return;
  if (executables_.size() == kMaxGraphs) {
    note_lost(graph->second->kernels.size());
    return;
  }
  const std::uint16_t number = next_number();
  numbers_.emplace(number, graph->second);
  try {
    executables_.emplace(executable, number);
  } catch (...) {
    numbers_.erase(number);
    throw;
  }
  enter(reinterpret_cast<std::uintptr_t>(executable), number);
}

void CapturedGraphs::forget(const void* handle) noexcept {
  const MutexLock lock(mutex_);
  graphs_.erase(handle);
}

void CapturedGraphs::forget_executable(const void* executable) noexcept {
  const MutexLock lock(mutex_);
  leave(executable);
}

/// Terminates: at most kMaxGraphs + kMaxGone of them are in use.
std::uint16_t CapturedGraphs::next_number() noexcept {
  do {
    last_number_ = static_cast<std::uint16_t>(last_number_ + 1 == kNumbers ? 1 : last_number_ + 1);
  } while (numbers_.contains(last_number_));
  return last_number_;
}

CapturedGraphs::Slot* CapturedGraphs::slot_of(std::uintptr_t executable) noexcept {
  for (std::size_t i = 0, at = first_slot(executable); i < kSlots; ++i, ++at) {
    Slot& slot = slots_[at % kSlots];
    const std::uintptr_t there = slot.executable.load(std::memory_order_relaxed);
    if (there == executable) return &slot;
    if (there == 0) return nullptr;
  }
  return nullptr;
}

void CapturedGraphs::enter(std::uintptr_t executable, std::uint16_t number) noexcept {
  constexpr std::size_t kMostUsed = kSlots / 4 * 3;
  if (used_slots_ >= kMostUsed) {
    // A concurrent lookup may find nothing.
    for (Slot& slot : slots_) slot.executable.store(0, std::memory_order_relaxed);
    used_slots_ = 0;
    for (const auto& [other, its_number] : executables_)
      if (its_number != number) enter(reinterpret_cast<std::uintptr_t>(other), its_number);
  }
  for (std::size_t at = first_slot(executable);; ++at) {
    Slot& slot = slots_[at % kSlots];
    const std::uintptr_t there = slot.executable.load(std::memory_order_relaxed);
    if (there != 0 && there != kGone) continue;
    if (there == 0) ++used_slots_;
    slot.number.store(number, std::memory_order_relaxed);
    slot.executable.store(executable, std::memory_order_release);
    return;
  }
}

void CapturedGraphs::leave(const void* executable) noexcept {
  const auto found = executables_.find(executable);
  if (found == executables_.end()) return;
  if (Slot* slot = slot_of(reinterpret_cast<std::uintptr_t>(executable)); slot != nullptr)
    slot->executable.store(kGone, std::memory_order_release);
  std::uint16_t& oldest = gone_[next_gone_++ % kMaxGone];
  if (oldest != 0) numbers_.erase(oldest);
  oldest = found->second;
  executables_.erase(found);
}

std::uint16_t CapturedGraphs::number(const void* executable) const noexcept {
  const auto wanted = reinterpret_cast<std::uintptr_t>(executable);
  if (wanted <= kGone) return 0;
  for (std::size_t i = 0, at = first_slot(wanted); i < kSlots; ++i, ++at) {
    const Slot& slot = slots_[at % kSlots];
    const std::uintptr_t there = slot.executable.load(std::memory_order_acquire);
    if (there == 0) return 0;
    if (there != wanted) continue;
    const std::uint16_t number = slot.number.load(std::memory_order_acquire);
    // The slot may have been reused in between.
    return slot.executable.load(std::memory_order_relaxed) == wanted ? number : 0;
  }
  return 0;
}

CapturedGraphs::Graph CapturedGraphs::find(std::uint16_t number) const noexcept {
  const MutexLock lock(mutex_);
  const auto found = numbers_.find(number);
  return found == numbers_.end() ? nullptr : found->second;
}

}  // namespace inject
