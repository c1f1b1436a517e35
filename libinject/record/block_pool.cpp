// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/block_pool.h"

#include <algorithm>

#include "libinject/base/mapping.h"

namespace inject {

BlockPool::BlockPool(std::size_t bytes) noexcept {
  const auto wanted = static_cast<std::uint32_t>(bytes / sizeof(Block));
  blocks_ = static_cast<Block*>(map_memory(wanted * sizeof(Block)));
  capacity_ = blocks_ == nullptr ? 0 : wanted;
}

BlockPool::~BlockPool() {
  unmap_memory(blocks_, capacity_ * sizeof(Block));
  unmap_memory(moved_since_, capacity_);
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
  std::uint32_t fresh = first_unused_.load(std::memory_order_relaxed);
  while (fresh < capacity_) {
    if (first_unused_.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed))
      return blocks_ + fresh;
  }
  return nullptr;
}

void BlockPool::give_back(Block* block) noexcept {
  if (region_.base != nullptr && !moved(index(block))) move_block(index(block));
  link(block);
}

bool BlockPool::move_block(std::uint32_t index) noexcept {
  moved_since_[index] = region_.map_over(blocks_ + index, index * sizeof(Block), sizeof(Block));
  return moved_since_[index];
}

// Nobody but the drain thread writes to what is moved: blocks that were never taken, and free ones that it
// takes for that. Some of the former are left for threads that want one meanwhile.
bool BlockPool::move_to(const SharedRegion& region) noexcept {
  if (region_.base != nullptr || capacity_ == 0) return false;
  // A thread may fill 64 in a millisecond, and ours lose its processor for longer; each takes a call to move.
  const std::uint32_t meanwhile = std::clamp(capacity_ / 4, 64u, 1024u);
  moved_since_ = static_cast<bool*>(map_memory(capacity_));
  if (moved_since_ == nullptr) return false;
  std::uint32_t first = first_unused_.load(std::memory_order_relaxed);
  std::uint32_t rest;
  do {
    rest = std::min(first + meanwhile, capacity_);
  } while (!first_unused_.compare_exchange_weak(first, rest, std::memory_order_relaxed));
  for (std::uint32_t i = first; i < rest; ++i) link(blocks_ + i);
  rest = first_unused_.exchange(capacity_, std::memory_order_relaxed);
  const std::size_t bytes = (capacity_ - rest) * sizeof(Block);
  const bool moved = bytes == 0 || region.map_over(blocks_ + rest, rest * sizeof(Block), bytes);
  first_unused_.store(rest, std::memory_order_relaxed);
  moved_from_ = moved ? rest : capacity_;
  if (!moved) return false;
  region_ = region;
  // The free ones: last in, first out, so until one comes that has moved, or no more. As many are tried at
  // most as there can be.
  Block* free_blocks = nullptr;
  for (std::uint32_t i = 0; i <= rest; ++i) {
    Block* block = take();
    if (block == nullptr) break;
    const bool last = this->moved(index(block)) || !move_block(index(block));
    block->next.store(free_blocks == nullptr ? 0 : index(free_blocks) + 1, std::memory_order_relaxed);
    free_blocks = block;
    if (last) break;
  }
  while (free_blocks != nullptr) {
    Block* block = free_blocks;
    const std::uint32_t next = block->next.load(std::memory_order_relaxed);
    free_blocks = next == 0 ? nullptr : blocks_ + (next - 1);
    link(block);
  }
  return true;
}

void BlockPool::link(Block* block) noexcept {
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
  // After the count: what an older use left there must not be taken for this one's.
  block->sequence.store(pool.next_sequence(), std::memory_order_release);
  // Release: the consumer that follows the link sees the block's fresh header.
  if (tail_ == nullptr) {
    first_.store(pool.index(block) + 1, std::memory_order_release);
  } else {
    tail_->next.store(pool.index(block) + 1, std::memory_order_release);
  }
  tail_ = block;
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
  fill_.store(Block::kSlots, std::memory_order_relaxed);
}

}  // namespace inject
