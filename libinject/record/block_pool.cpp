// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/block_pool.h"

#include "libinject/record/mapping.h"

namespace inject {

BlockPool::BlockPool(std::size_t bytes) noexcept {
  const auto wanted = static_cast<std::uint32_t>(bytes / sizeof(Block));
  blocks_ = static_cast<Block*>(map_memory(wanted * sizeof(Block)));
  capacity_ = blocks_ == nullptr ? 0 : wanted;
}

BlockPool::~BlockPool() {
  unmap_memory(blocks_, capacity_ * sizeof(Block));
}

Block* BlockPool::take() noexcept {
  std::uint64_t head = head_.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(head) != 0) {
    Block* block = blocks_ + (static_cast<std::uint32_t>(head) - 1);
    // `next` may be stale if another thread took this block meanwhile; the pop count then differs and the
    // exchange fails. Blocks are never unmapped while the pool lives, so the read itself is harmless.
    const std::uint64_t next = ((head >> 32) + 1) << 32 | block->next.load(std::memory_order_relaxed);
    if (head_.compare_exchange_weak(head, next, std::memory_order_acq_rel, std::memory_order_acquire))
      return block;
  }
  std::uint32_t fresh = untouched_.load(std::memory_order_relaxed);
  while (fresh < capacity_) {
    if (untouched_.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed)) return blocks_ + fresh;
  }
  return nullptr;
}

void BlockPool::give_back(Block* block) noexcept {
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  std::uint64_t mine;
  do {
    block->next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    mine = (head & 0xFFFF'FFFF'0000'0000u) | (index(block) + 1);
  } while (!head_.compare_exchange_weak(head, mine, std::memory_order_release, std::memory_order_relaxed));
}

bool RecordQueue::next_block(BlockPool& pool, std::uint32_t thread) noexcept {
  Block* block = pool.take();
  if (block == nullptr) return false;
  block->published.store(0, std::memory_order_relaxed);
  block->next.store(0, std::memory_order_relaxed);
  block->thread = thread;
  // Release: the consumer that follows the link sees the block's fresh header.
  if (tail_ == nullptr) {
    first_.store(pool.index(block) + 1, std::memory_order_release);
  } else {
    tail_->next.store(pool.index(block) + 1, std::memory_order_release);
  }
  tail_ = block;
  fill_ = 0;
  return true;
}

void RecordQueue::retire(BlockPool& pool) noexcept {
  if (head_ == nullptr && first_.load(std::memory_order_acquire) != 0) {
    head_ = pool.at(first_.load(std::memory_order_acquire) - 1);
  }
  if (head_ != nullptr) pool.give_back(head_);
  reset();
}

void RecordQueue::reset() noexcept {
  for (auto& dropped : dropped_) dropped.store(0, std::memory_order_relaxed);
  pushing_.store(false, std::memory_order_relaxed);
  head_ = tail_ = nullptr;
  first_.store(0, std::memory_order_relaxed);
  taken_ = 0;
  fill_ = Block::kSlots;
}

}  // namespace inject
