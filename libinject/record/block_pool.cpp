// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/block_pool.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "libinject/base/mapping.h"

namespace inject {

namespace {

// Bits of RecordQueue::pushing_ for the record kind: frames begin at multiples of 16.
constexpr std::uintptr_t kKindBits = 15;
static_assert(kRecordKinds <= kKindBits + 1);
/// Farther out than any frame.
constexpr std::uintptr_t kLinking = ~std::uintptr_t{0};

}  // namespace

void copy_count(const std::atomic<std::uint64_t>& from, std::atomic<std::uint64_t>& to) noexcept {
  std::uint64_t count;
  do {
    count = from.load(std::memory_order_seq_cst);
    to.store(count, std::memory_order_seq_cst);
  } while (from.load(std::memory_order_seq_cst) != count);
}

BlockPool::BlockPool(std::size_t bytes) noexcept {
  const auto wanted = static_cast<std::uint32_t>(bytes / sizeof(Block));
  blocks_ = static_cast<Block*>(map_memory(wanted * sizeof(Block)));
  capacity_ = blocks_ == nullptr ? 0 : wanted;
}

BlockPool::~BlockPool() {
  unmap_memory(blocks_, capacity_ * sizeof(Block));
  unmap_memory(moved_since_, capacity_);
}

std::span<std::uint8_t> BlockPool::used_first() noexcept {
  constexpr std::size_t kUsedFirst = std::size_t{4} << 20;
  return {reinterpret_cast<std::uint8_t*>(blocks_), std::min(capacity_ * sizeof(Block), kUsedFirst)};
}

Block* BlockPool::pop(FreeList& list) noexcept {
  std::uint64_t head = list.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(head) != 0) {
    Block* block = blocks_ + (static_cast<std::uint32_t>(head) - 1);
    // `next` may be stale if another thread took this block in between; the pop count then differs and the
    // exchange fails. Blocks are never unmapped while the pool lives, so the read itself is harmless.
    const std::uint64_t next = ((head >> 32) + 1) << 32 | block->next.load(std::memory_order_relaxed);
    if (list.compare_exchange_weak(head, next, std::memory_order_acq_rel, std::memory_order_acquire))
      return block;
  }
  return nullptr;
}

Block* BlockPool::take_fresh() noexcept {
  std::uint32_t fresh = first_unused_.load(std::memory_order_relaxed);
  while (fresh < capacity_) {
    if (first_unused_.compare_exchange_weak(fresh, fresh + 1, std::memory_order_relaxed))
      return blocks_ + fresh;
  }
  return nullptr;
}

Block* BlockPool::take() noexcept {
  if (Block* block = pop(free_moved_); block != nullptr) return block;
  if (Block* block = pop(free_); block != nullptr) return block;
  if (Block* block = take_fresh(); block != nullptr) return block;
  // The drain thread holds one block while it moves it, which may be back by now.
  return pop(free_moved_);
}

void BlockPool::give_back(Block* block) noexcept {
  // It is the next block to be taken.
  if (region_.base != nullptr && !moved(index(block)) && move_block(index(block)))
    warm_pages(block, sizeof(Block));
  link(block);
}

bool BlockPool::move_block(std::uint32_t index) noexcept {
  moved_since_[index] = region_.map_over(blocks_ + index, index * sizeof(Block), sizeof(Block));
  return moved_since_[index];
}

// Only the drain thread writes to what is moved: blocks that were never taken, and free ones that it takes
// for the move, one at a time, because threads want blocks in the meantime and a small arena has few.
bool BlockPool::move_to(const SharedRegion& region) noexcept {
  if (region_.base != nullptr || capacity_ == 0) return false;
  // Most of the blocks that were never taken move at once, and none of these is available until they have. A
  // thread may fill 64 in a millisecond, and ours may be preempted for longer. The other ones need a call
  // each to move.
  const std::uint32_t meanwhile = std::clamp(capacity_ / 4, 64u, 1024u);
  moved_since_ = static_cast<bool*>(map_memory(capacity_));
  if (moved_since_ == nullptr) return false;
  for (std::uint32_t i = 0; i < meanwhile; ++i) {
    Block* block = take_fresh();
    if (block == nullptr) break;
    link(block);
  }
  const std::uint32_t rest = first_unused_.exchange(capacity_, std::memory_order_relaxed);
  const std::size_t bytes = (capacity_ - rest) * sizeof(Block);
  const bool moved = bytes == 0 || region.map_over(blocks_ + rest, rest * sizeof(Block), bytes);
  first_unused_.store(rest, std::memory_order_relaxed);
  moved_from_ = moved ? rest : capacity_;
  if (!moved) return false;
  region_ = region;
  while (Block* block = pop(free_)) {
    const bool done = move_block(index(block));
    link(block);
    if (!done) return false;
  }
  return true;
}

void BlockPool::link(Block* block) noexcept {
  FreeList& list = awaits_move(index(block)) || region_.base == nullptr ? free_ : free_moved_;
  std::uint64_t head = list.load(std::memory_order_relaxed);
  std::uint64_t mine;
  do {
    block->next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    mine = (head & 0xFFFF'FFFF'0000'0000u) | (index(block) + 1);
  } while (!list.compare_exchange_weak(head, mine, std::memory_order_release, std::memory_order_relaxed));
}

Slot part_of_short_calls(const Slot& slot, std::uint32_t first, std::uint32_t end) noexcept {
  end = std::min(end, ShortCallsRecord::kMost);
  ShortCallsRecord part;
  part.count = static_cast<std::uint8_t>(end - std::min(first, end));
  // Its thread may be adding calls after these.
  std::memcpy(&part.window, slot.bytes + offsetof(ShortCallsRecord, window), sizeof part.window);
  std::memcpy(part.calls, slot.bytes + offsetof(ShortCallsRecord, calls) + first * sizeof part.calls[0],
              part.count * sizeof part.calls[0]);
  Slot result;
  std::memcpy(result.bytes, &part, sizeof part);
  return result;
}

bool RecordQueue::begin_short_calls(BlockPool& pool, std::uint32_t window, ShortCallsRecord::Call call,
                                    std::uint32_t thread) noexcept {
  std::uint32_t filled = next_slot();
  if (filled == Block::kSlots) {
    if (!next_block(pool, thread)) {
      count_drop(RecordKind::kShortCalls);
      return false;
    }
    filled = 0;
  }
  Slot& slot = tail_->slots[filled];
  ShortCallsRecord& record = *::new (static_cast<void*>(&slot)) ShortCallsRecord;
  record.window = window;
  record.calls[0] = call;
  will_write(&slot + kAhead);
  count_published(kind_index(RecordKind::kShortCalls));
  tail_->published.store(filled * kBlockSteps + 1, std::memory_order_release);
  fill_.store(filled, std::memory_order_relaxed);
  short_calls_ = 1;
  return true;
}

bool RecordQueue::next_block(BlockPool& pool, std::uint32_t thread) noexcept {
  Block* block = pool.take();
  if (block == nullptr) return false;
  block->published.store(0, std::memory_order_relaxed);
  block->next.store(0, std::memory_order_relaxed);
  block->thread = thread;
  // After the count: the previous use's count must not be taken for this one's.
  block->sequence.store(pool.next_sequence(), std::memory_order_release);
  // After a jump out of the push before this point, the ring has one block less. After a jump out of what
  // follows, it would be unknown whether the consumer has gone on to the block and returned the one before
  // it: then no push takes over.
  const std::uintptr_t pushing = pushing_.load(std::memory_order_relaxed);
  pushing_.store(kLinking, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // Release: a consumer that follows the link sees the block's fresh header.
  if (tail_ == nullptr) {
    first_.store(pool.index(block) + 1, std::memory_order_release);
  } else {
    tail_->next.store(pool.index(block) + 1, std::memory_order_release);
  }
  tail_ = block;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  pushing_.store(pushing, std::memory_order_relaxed);
  return true;
}

// A push begins at `here` while the one at `before` has not ended: the latter was interrupted and continues
// once a signal handler has returned, or it was left by a jump. The stack grows downwards: if both are on one
// stack, a push that began at `here` or further in has been left. Two stacks have a guard page between them,
// or more than a page that is still free: anything nearer is on the same one. The alternate stack of signal
// handlers may be anywhere, also within the other stack.
bool RecordQueue::take_over(std::uintptr_t before, std::uintptr_t here) noexcept {
  constexpr std::uintptr_t kReach = 4096;
  const auto place = [](std::uintptr_t frame) { return frame & ~kKindBits; };
  if (place(here) - place(before) >= kReach) return false;
  const int error = errno;
  stack_t alternate{};
  const bool known = sigaltstack(nullptr, &alternate) == 0;
  errno = error;
  const auto on_alternate = [&](std::uintptr_t frame) {
    return frame - reinterpret_cast<std::uintptr_t>(alternate.ss_sp) < alternate.ss_size;
  };
  if (!known || on_alternate(place(here)) != on_alternate(place(before))) return false;
  // A signal handler may just have done the same.
  if (!pushing_.compare_exchange_strong(before, here, std::memory_order_relaxed)) return false;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const BlockPosition published = tail_ == nullptr ? 0 : tail_->published.load(std::memory_order_relaxed);
  const std::uint32_t filled = fill_.load(std::memory_order_relaxed);
  if (filled * kBlockSteps + (filled == Block::kSlots ? 0 : short_calls_) < published) {
    fill_.store(published / kBlockSteps, std::memory_order_relaxed);
    short_calls_ = published % kBlockSteps;
  } else {
    // One too many if it was left just before its last store.
    count_drop(static_cast<RecordKind>(1 + (before & kKindBits)));
  }
  return true;
}

void RecordQueue::retire(BlockPool& pool) noexcept {
  if (head_ == nullptr && first_.load(std::memory_order_acquire) != 0) {
    head_ = pool.at(first_.load(std::memory_order_acquire) - 1);
  }
  if (head_ != nullptr) pool.give_back(head_);
  reset();
}

void RecordQueue::count_drop(RecordKind kind) noexcept {
  const unsigned index = kind_index(kind);
  dropped_[index].fetch_add(1, std::memory_order_relaxed);
  if (RecordCounts* kept = kept_.load(std::memory_order_relaxed))
    copy_count(dropped_[index], kept->dropped[index]);
}

void RecordQueue::keep_counts(RecordCounts& kept) noexcept {
  kept_.store(&kept, std::memory_order_seq_cst);
  for (unsigned kind = 0; kind < kRecordKinds; ++kind) {
    copy_count(published_[kind], kept.published[kind]);
    copy_count(dropped_[kind], kept.dropped[kind]);
  }
}

void RecordQueue::reset() noexcept {
  pushing_.store(0, std::memory_order_relaxed);
  head_ = tail_ = nullptr;
  first_.store(0, std::memory_order_relaxed);
  taken_ = 0;
  fill_.store(Block::kSlots, std::memory_order_relaxed);
  short_calls_ = 0;
}

}  // namespace inject
