// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/graph_nodes.h"

#include <bit>

#include "libinject/base/mapping.h"

namespace inject {

GraphNodes::GraphNodes(std::uint32_t capacity) noexcept : capacity_(capacity) {
  const std::uint32_t slots = std::bit_ceil((capacity == 0 ? 1u : capacity) * 2u);
  mapped_ = slots * sizeof(Slot);
  // Zeroed memory is a valid array of free slots on every supported platform.
  slots_ = static_cast<Slot*>(map_memory(mapped_));
  if (slots_ == nullptr) {
    capacity_ = 0;
    return;
  }
  slot_mask_ = slots - 1;
}

GraphNodes::~GraphNodes() {
  unmap_memory(slots_, mapped_);
}

void GraphNodes::add(std::uint64_t node, const CapturedCall& call) noexcept {
  if (node == 0 || (node & kFilling) != 0) return;
  // Twice as many slots as nodes: the search always ends at a free one.
  for (std::uint32_t at = static_cast<std::uint32_t>(hash_mix(node)); capacity_ != 0; ++at) {
    Slot& slot = slots_[at & slot_mask_];
    std::uint64_t there = slot.node.load(std::memory_order_relaxed);
    if (there == 0) {
      if (count_.fetch_add(1, std::memory_order_relaxed) >= capacity_) {
        count_.fetch_sub(1, std::memory_order_relaxed);
        break;
      }
      if (slot.node.compare_exchange_strong(there, node | kFilling, std::memory_order_relaxed)) {
        slot.call = call;
        slot.node.store(node, std::memory_order_release);
        return;
      }
      // Another thread was faster, with another node or the same one.
      count_.fetch_sub(1, std::memory_order_relaxed);
    }
    if ((there & ~kFilling) == node) return;
  }
  overflows_.fetch_add(1, std::memory_order_relaxed);
}

void GraphNodes::add_clone(std::uint64_t node, std::uint64_t original) noexcept {
  if (CapturedCall call; find(original, call)) add(node, call);
}

bool GraphNodes::find(std::uint64_t node, CapturedCall& call) const noexcept {
  if (node == 0 || size() == 0) return false;
  for (std::uint32_t at = static_cast<std::uint32_t>(hash_mix(node));; ++at) {
    const Slot& slot = slots_[at & slot_mask_];
    const std::uint64_t there = slot.node.load(std::memory_order_acquire);
    if (there == 0) return false;
    if (there != node) continue;
    call = slot.call;
    return true;
  }
}

void GraphNodes::clear() noexcept {
  if (size() == 0) return;
  for (std::uint32_t at = 0; at <= slot_mask_; ++at) slots_[at].node.store(0, std::memory_order_relaxed);
  count_.store(0, std::memory_order_relaxed);
}

}  // namespace inject
