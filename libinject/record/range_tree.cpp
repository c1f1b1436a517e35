// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/range_tree.h"

#include <bit>

#include "libinject/base/mapping.h"

namespace inject {

RangeTree::RangeTree(std::uint32_t max_nodes) noexcept : max_nodes_(max_nodes) {
  const std::uint32_t slots = std::bit_ceil(max_nodes_ * 2u);
  const std::size_t slot_bytes = slots * sizeof(std::atomic<std::uint32_t>);
  mapped_ = slot_bytes + max_nodes_ * sizeof(Node);
  void* base = map_memory(mapped_);
  if (base == nullptr) {
    max_nodes_ = 0;
    return;
  }
  slots_ = static_cast<std::atomic<std::uint32_t>*>(base);
  nodes_ = reinterpret_cast<Node*>(static_cast<char*>(base) + slot_bytes);
  slot_mask_ = slots - 1;
}

RangeTree::~RangeTree() {
  unmap_memory(slots_, mapped_);
}

std::uint32_t RangeTree::child(std::uint32_t parent, std::uint32_t name, std::uint32_t domain,
                               RangeStyle style) noexcept {
  if (max_nodes_ == 0) {
    overflows_.fetch_add(1, std::memory_order_relaxed);
    return parent;
  }
  const std::uint64_t hash =
      hash_mix((static_cast<std::uint64_t>(parent) << 32 | name) * kHashSeed ^
               (static_cast<std::uint64_t>(domain) * 2u + static_cast<std::uint64_t>(style)));
  std::uint32_t fresh = 0;
  for (std::uint32_t probe = 0, slot = static_cast<std::uint32_t>(hash) & slot_mask_; probe <= slot_mask_;
       ++probe, slot = (slot + 1) & slot_mask_) {
    std::uint32_t value = slots_[slot].load(std::memory_order_acquire);
    if (value == 0) {
      if (fresh == 0) {
        const std::uint32_t id = count_.fetch_add(1, std::memory_order_relaxed);
        if (id >= max_nodes_) {
          count_.fetch_sub(1, std::memory_order_relaxed);
          overflows_.fetch_add(1, std::memory_order_relaxed);
          return parent;
        }
        const std::uint32_t pushed = style == RangeStyle::kPushPop ? 1 : 0;
        nodes_[id] =
            Node{parent, name, domain, style, level(parent, domain) + pushed, nodes_[parent].depth + pushed};
        fresh = id;
      }
      if (slots_[slot].compare_exchange_strong(value, fresh, std::memory_order_acq_rel,
                                               std::memory_order_acquire)) {
        return fresh;
      }
    }
    const Node& node = nodes_[value];
    if (node.parent == parent && node.name == name && node.domain == domain && node.style == style)
      return value;
  }
  overflows_.fetch_add(1, std::memory_order_relaxed);
  return parent;
}

std::uint32_t RangeTree::without(std::uint32_t node, std::uint32_t& name, std::uint32_t domain,
                                 RangeStyle style, bool any_name) noexcept {
  std::uint32_t above[kMaxDepth];
  unsigned count = 0;
  for (std::uint32_t at = node; at != 0; at = nodes_[at].parent) {
    const Node& here = nodes_[at];
    if (here.domain == domain && here.style == style && (any_name || here.name == name)) {
      name = here.name;
      std::uint32_t result = here.parent;
      while (count-- > 0) {
        const Node& again = nodes_[above[count]];
        result = child(result, again.name, again.domain, again.style);
      }
      return result;
    }
    if (count == kMaxDepth) return node;
    above[count++] = at;
  }
  return node;
}

std::uint32_t RangeTree::level(std::uint32_t node, std::uint32_t domain) const noexcept {
  for (unsigned passed = 0; node != 0 && passed <= kMaxDepth; ++passed, node = nodes_[node].parent) {
    if (nodes_[node].domain == domain) return nodes_[node].level;
  }
  return 0;
}

RangeTree::Node RangeTree::node(std::uint32_t id) const noexcept {
  if (id == 0 || id >= max_nodes_) return {};
  return nodes_[id];
}

}  // namespace inject
