// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "libinject/base/shared_region.h"
#include "libinject/model/records.h"

namespace inject {

/// One record as stored in the ring: its first byte is its kind.
struct alignas(64) Slot {
  unsigned char bytes[64];
  RecordKind kind() const noexcept { return static_cast<RecordKind>(bytes[0]); }
  template <class Record>
  Record as() const noexcept {
    return std::bit_cast<Record>(*this);
  }
};

/// How far a block has been filled or read: kBlockSteps for each complete record, and one for each call in
/// the ShortCallsRecord after them, which is not complete.
using BlockPosition = std::uint32_t;
inline constexpr BlockPosition kBlockSteps = 16;
static_assert(ShortCallsRecord::kMost < kBlockSteps);

/// A block of records, filled by one thread and emptied by the drain thread. 16 KiB: small enough that every
/// one of hundreds of threads can hold one, large enough that taking one is rare (every 255 records).
struct Block {
  static constexpr std::uint32_t kSlots = 255;
  static constexpr BlockPosition kFull = kSlots * kBlockSteps;

  std::atomic<BlockPosition> published;  ///< release by the producer
  std::atomic<std::uint32_t> next;  ///< block that the producer went on to (index + 1), or free-list link
  std::uint32_t thread;             ///< index of the producing thread
  std::uint32_t reserved;
  std::atomic<std::uint64_t> sequence;  ///< unique to this use of the block; 0: not used yet
  unsigned char reserved2[40];
  Slot slots[kSlots];
};
static_assert(sizeof(Block) == 16 * 1024);

/// A record of the calls `first` … `end - 1` of the record in `slot`.
Slot part_of_short_calls(const Slot& slot, std::uint32_t first, std::uint32_t end) noexcept;

/// Passes the records between two positions in a block with these slots to `use(const Slot&)`.
template <typename Use>
void each_record(const Slot* slots, BlockPosition from, BlockPosition to, Use&& use) {
  std::uint32_t read = from % kBlockSteps;  // within the first record's calls
  for (std::uint32_t i = from / kBlockSteps; i < to / kBlockSteps; ++i, read = 0) {
    if (read == 0) {
      use(slots[i]);
    } else if (const std::uint32_t count = slots[i].bytes[offsetof(ShortCallsRecord, count)]; count > read) {
      use(part_of_short_calls(slots[i], read, count));
    }
  }
  if (const std::uint32_t end = to % kBlockSteps; end > read)
    use(part_of_short_calls(slots[to / kBlockSteps], read, end));
}

/// The arena of host records: a fixed number of blocks behind a lock-free free list (a Treiber stack; the
/// upper half of its head counts pops, so that a block that was taken and returned in between is noticed;
/// there are two lists once the arena has moved). Any thread takes, the drain thread gives back. If it is
/// empty, take() returns nullptr and the caller drops the record and counts it. Memory is reserved, not
/// touched, and blocks are reused last in, first out, so a quiet program touches few of them.
class BlockPool {
 public:
  explicit BlockPool(std::size_t bytes) noexcept;
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  Block* take() noexcept;
  /// Drain thread: returns a block whose contents are not needed any more.
  void give_back(Block* block) noexcept;

  /// Drain thread, once: moves the arena into a file's mapping of the same size, so that it outlives the
  /// process. Blocks in use follow when they are given back. False if the kernel refused to move one.
  bool move_to(const SharedRegion& region) noexcept;
  /// Drain thread: true if this block, if written to now, would be lost with the process.
  bool awaits_move(std::uint32_t index) const noexcept { return region_.base != nullptr && !moved(index); }

  /// The blocks used first, which are reused again and again if the program has few threads.
  std::span<std::uint8_t> used_first() noexcept;

  std::uint32_t index(const Block* block) const noexcept {
    return static_cast<std::uint32_t>(block - blocks_);
  }
  Block* at(std::uint32_t index) noexcept { return blocks_ + index; }
  std::uint32_t capacity() const noexcept { return capacity_; }
  std::uint64_t next_sequence() noexcept { return 1 + sequence_.fetch_add(1, std::memory_order_relaxed); }

 private:
  bool moved(std::uint32_t index) const noexcept { return index >= moved_from_ || moved_since_[index]; }
  /// Pop count << 32 | (index + 1).
  using FreeList = std::atomic<std::uint64_t>;
  Block* pop(FreeList& list) noexcept;
  Block* take_fresh() noexcept;
  void link(Block* block) noexcept;
  bool move_block(std::uint32_t index) noexcept;

  Block* blocks_ = nullptr;
  std::uint32_t capacity_ = 0;
  std::atomic<std::uint32_t> first_unused_{0};  ///< blocks from here on were never taken
  FreeList free_{0};                            ///< not moved
  FreeList free_moved_{0};
  std::atomic<std::uint64_t> sequence_{0};
  // Used by the drain thread once the arena has moved. Moved: blocks from moved_from_ on, and those before it
  // that have been free since.
  SharedRegion region_;
  std::uint32_t moved_from_ = 0;
  bool* moved_since_ = nullptr;
};

/// Records that a thread, or several one after another, has published and dropped, by kind_index(). Another
/// process reads it if it lies in a shared mapping.
struct RecordCounts {
  std::atomic<std::uint64_t>
      published[kRecordKinds];  ///< of windows; counted just before publishing, so never too few
  std::atomic<std::uint64_t> dropped[kRecordKinds];
};
static_assert(sizeof(RecordCounts) == 64);

/// Copies a count that other threads may be increasing and copying as well: the last copy is up to date.
void copy_count(const std::atomic<std::uint64_t>& from, std::atomic<std::uint64_t>& to) noexcept;

/// A thread's queue of records: single producer (the thread), single consumer (the drain thread), made of
/// blocks. If the pool is empty, the record is dropped and counted in `dropped`. The same happens to a record
/// of a signal handler that interrupts its thread inside push(). If the handler leaves by siglongjmp, the
/// record in progress is lost, and so are later ones until one is pushed from the same place in the stack, or
/// a little further out.
class RecordQueue {
 public:
  /// Producer. Has `fill(Record&)` construct a new record in place, and publishes it; false if it was
  /// dropped. If it were made elsewhere and copied, the copy would stall, because its loads are wider than
  /// the stores before them.
  template <typename Record, typename Fill>
  [[gnu::always_inline]] bool emplace(BlockPool& pool, RecordKind kind, const std::uint32_t& thread,
                                      Fill&& fill) noexcept {
    static_assert(sizeof(Record) == sizeof(Slot));
    const std::uintptr_t here = reinterpret_cast<std::uintptr_t>(__builtin_dwarf_cfa()) + kind_index(kind);
    const std::uintptr_t before = pushing_.load(std::memory_order_relaxed);
    if (before != 0 && !take_over(before, here)) [[unlikely]] {
      count_drop(kind);
      return false;
    }
    pushing_.store(here, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::uint32_t filled = next_slot();
    bool room = true;
    if (filled == Block::kSlots) [[unlikely]] {
      room = next_block(pool, thread);
      filled = 0;
    }
    if (room) [[likely]] {
      Slot& slot = tail_->slots[filled];
      Record& record = *::new (static_cast<void*>(&slot)) Record;
      fill(record);
      will_write(&slot + kAhead);
      if constexpr (requires { record.window; }) {
        if (record.window != 0) count_published(kind_index(kind));
      }
      // Release: a consumer that sees the new count sees the record.
      tail_->published.store((filled + 1) * kBlockSteps, std::memory_order_release);
      fill_.store(filled + 1, std::memory_order_relaxed);
      short_calls_ = 0;
    } else {
      count_drop(kind);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    pushing_.store(0, std::memory_order_relaxed);
    return room;
  }
  /// Producer. A short call has begun: prefetches what is written at its end.
  void expect_short_call() const noexcept {
    if (tail_ == nullptr) return;
    will_write(&tail_->published);
    will_write(tail_->slots + fill_.load(std::memory_order_relaxed));
    if (const RecordCounts* kept = kept_.load(std::memory_order_relaxed)) will_write(kept);
  }
  /// The same for a short call, which is added to the record of those before it.
  [[gnu::always_inline]] bool add_short_call(BlockPool& pool, std::uint32_t window,
                                             ShortCallsRecord::Call call,
                                             const std::uint32_t& thread) noexcept {
    const std::uintptr_t here = reinterpret_cast<std::uintptr_t>(__builtin_dwarf_cfa());
    const std::uintptr_t before = pushing_.load(std::memory_order_relaxed);
    if (before != 0 && !take_over(before, here)) [[unlikely]] {
      count_drop(RecordKind::kShortCalls);
      return false;
    }
    pushing_.store(here, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const std::uint32_t filled = fill_.load(std::memory_order_relaxed);
    const std::uint32_t number = short_calls_;
    bool room = true;
    ShortCallsRecord* const record =
        number == 0 || filled == Block::kSlots ? nullptr : short_calls_in(tail_->slots[filled]);
    if (record != nullptr && record->window == window) [[likely]] {
      record->calls[number] = call;
      count_published(kind_index(RecordKind::kShortCalls));
      const bool complete = number + 1 == ShortCallsRecord::kMost;
      if (complete) record->count = ShortCallsRecord::kMost;
      tail_->published.store(complete ? (filled + 1) * kBlockSteps : filled * kBlockSteps + number + 1,
                             std::memory_order_release);
      if (complete) fill_.store(filled + 1, std::memory_order_relaxed);
      short_calls_ = complete ? 0 : number + 1;
    } else {
      room = begin_short_calls(pool, window, call, thread);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    pushing_.store(0, std::memory_order_relaxed);
    return room;
  }
  /// The same for an existing record.
  template <typename Record>
  [[gnu::hot]] bool push(BlockPool& pool, const Record& record, const std::uint32_t& thread) noexcept {
    return emplace<Record>(pool, record.kind, thread, [&record](Record& place) { place = record; });
  }

  /// Producer. Counts a record that should have been made but will not be.
  void count_drop(RecordKind kind) noexcept;

  /// Consumer. Passes every published record to `use(const Slot&)`; finished blocks return to the pool.
  template <typename Use>
  void drain(BlockPool& pool, Use&& use) {
    drain(pool, use, [](const Block&, std::uint32_t, std::uint32_t, bool) {});
  }
  /// The same, and calls `taken(const Block&, BlockPosition from, BlockPosition to, bool done)` after the
  /// records between these positions in a block; a block that is `done` returns to the pool after that.
  template <typename Use, typename Taken>
  void drain(BlockPool& pool, Use&& use, Taken&& taken_from) {
    if (head_ == nullptr) {
      const std::uint32_t first = first_.load(std::memory_order_acquire);
      if (first == 0) return;
      head_ = pool.at(first - 1);
    }
    for (;;) {
      // The link first: a block that its producer has left, full or not, gets no further records.
      const std::uint32_t next = head_->next.load(std::memory_order_acquire);
      const BlockPosition published = head_->published.load(std::memory_order_acquire);
      const BlockPosition first = taken_;
      each_record(head_->slots, first, published, use);
      taken_ = published;
      if (published != first || next != 0) taken_from(*head_, first, published, next != 0);
      if (next == 0) {
        if (pool.awaits_move(pool.index(head_))) leave_block();
        return;
      }
      pool.give_back(head_);
      head_ = pool.at(next - 1);
      taken_ = 0;
    }
  }

  /// Consumer, after the producer has gone and drain() has emptied the queue: gives the last block back.
  void retire(BlockPool& pool) noexcept;

  /// Makes an empty queue that owns no block. Counts stay, because they are of all its threads.
  void reset() noexcept;

  std::uint64_t dropped(RecordKind kind) const noexcept {
    return dropped_[kind_index(kind)].load(std::memory_order_relaxed);
  }

  /// From now on, everything counted so far and later is also kept in `kept`. Called by the producer, or by
  /// the drain thread: in that case, what is counted at the same moment may appear only with the next record,
  /// or the next call of this function.
  void keep_counts(RecordCounts& kept) noexcept;

 private:
  static ShortCallsRecord* short_calls_in(Slot& slot) noexcept {
    return std::launder(reinterpret_cast<ShortCallsRecord*>(&slot));
  }
  // The slot for a new record, kSlots if it needs a new block. Completes a record of short calls.
  std::uint32_t next_slot() noexcept {
    // Read once: leave_block() may change it in between.
    const std::uint32_t filled = fill_.load(std::memory_order_relaxed);
    if (filled == Block::kSlots || short_calls_ == 0) return filled;
    short_calls_in(tail_->slots[filled])->count = static_cast<std::uint8_t>(short_calls_);
    // After a jump out of the push, the next record must not continue here in another block.
    if (filled + 1 == Block::kSlots) fill_.store(Block::kSlots, std::memory_order_relaxed);
    return filled + 1;
  }
  [[gnu::hot]] bool begin_short_calls(BlockPool& pool, std::uint32_t window, ShortCallsRecord::Call call,
                                      std::uint32_t thread) noexcept;
  bool next_block(BlockPool& pool, std::uint32_t thread) noexcept;
  bool take_over(std::uintptr_t before, std::uintptr_t here) noexcept;

  // The drain thread's core has read the slot before, and releases it for a write only some 100 ns after the
  // request. Beyond a block's end, the address belongs to the next block, or to nothing: prefetching it does
  // no harm.
  static constexpr std::uint32_t kAhead = 4;
  template <typename T>
  static void will_write(const T* place) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*place));  // GCC's own prefetches for reading
#else
    __builtin_prefetch(place, 1);
#endif
  }

  // Consumer. The next record goes into another block, unless the producer is about to publish one: then the
  // one after it, or the one after that. A record of short calls gets no further calls.
  void leave_block() noexcept {
    fill_.store(Block::kSlots, std::memory_order_relaxed);
  }

  // A separate store, because kept counts lie in a file: the sum must not depend on when they moved there.
  void count_published(unsigned kind) noexcept {
    const std::uint64_t count = published_[kind].load(std::memory_order_relaxed) + 1;
    published_[kind].store(count, std::memory_order_relaxed);
    if (RecordCounts* kept = kept_.load(std::memory_order_relaxed))
      kept->published[kind].store(count, std::memory_order_relaxed);
  }

  // Consumer's side, on a cache line of its own.
  BlockPosition taken_ = 0;
  Block* head_ = nullptr;
  // Shared, written once: the first block of the queue.
  alignas(64) std::atomic<std::uint32_t> first_{0};
  std::atomic<std::uint64_t> dropped_[kRecordKinds] = {};
  // Producer's side, except for leave_block(): pushing a record needs only this cache line of the queue.
  alignas(64) Block* tail_ = nullptr;
  std::atomic<std::uint32_t> fill_{Block::kSlots};  // complete records
  std::uint32_t short_calls_ = 0;  // in the record after them, unless that is the next block's
  // Where the frame of the push in progress begins, plus the kind_index() of its record. Read only by the
  // producer: by its signal handlers, and after one of them has jumped out of the push.
  std::atomic<std::uintptr_t> pushing_{0};
  std::atomic<RecordCounts*> kept_{nullptr};
  std::atomic<std::uint64_t> published_[kRecordKinds] = {};
};

}  // namespace inject
