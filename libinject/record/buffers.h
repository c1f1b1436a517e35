// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "libinject/base/shared_region.h"

namespace inject {

/// What another process needs to know about a buffer, stored beside it in a shared mapping: one for each unit
/// of memory, used for the buffer that begins there.
struct BufferMark {
  std::atomic<std::uint64_t> sequence;  ///< 0 unless the buffer is complete; unique to this use
  std::uint32_t units;
  std::uint16_t generation;
  std::uint16_t reserved;
  std::uint64_t valid;  ///< bytes of records
  std::uint64_t reserved2;
};
static_assert(sizeof(BufferMark) == 32);

/// The buffers that CUPTI fills with activity records: a fixed number out of one reserved mapping. CUPTI
/// takes one at a time per launching thread and requests it on that thread, so both ends are lock-free. Once
/// a quarter of the memory is in use, the rest is handed out in quarters of a buffer, because each thread
/// holds its own however little it launches. If none is left, CUPTI gets no buffer, drops records and counts
/// them. A buffer is zeroed by the drain thread when it is returned, because CUPTI would otherwise zero it on
/// the launching thread (CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER).
class ActivityBuffers {
 public:
  explicit ActivityBuffers(std::size_t total_bytes) noexcept;
  ~ActivityBuffers();
  ActivityBuffers(const ActivityBuffers&) = delete;
  ActivityBuffers& operator=(const ActivityBuffers&) = delete;

  struct Buffer {
    std::uint8_t* data = nullptr;
    std::size_t bytes = 0;
  };
  /// A zeroed buffer, or none (counted in refusals()).
  Buffer take(std::uint16_t generation) noexcept;
  /// CUPTI has finished with `buffer`; its first `valid` bytes are records. False if the buffer is not one of
  /// ours.
  bool complete(std::uint8_t* buffer, std::size_t valid) noexcept;

  /// The buffers that are complete by now, for handle().
  enum class Completed : std::uint32_t {};
  /// Drain thread. Each result must be passed to handle(), once.
  Completed take_completed() noexcept {
    return Completed{reversed(completed_.exchange(0, std::memory_order_acquire))};
  }
  /// Drain thread: calls Use(std::uint8_t* buffer, std::size_t valid, std::uint16_t generation, std::uint64_t
  /// sequence) for each buffer, oldest first. The generation is that of the attachment that took it.
  template <typename Use>
  void handle(Completed completed, Use&& use) {
    auto chain = static_cast<std::uint32_t>(completed);
    while (chain != 0) {
      const std::uint32_t index = chain - 1;
      chain = states_[index].link.load(std::memory_order_relaxed);
      use(base_ + index * unit_bytes_, states_[index].valid, states_[index].generation,
          states_[index].sequence);
      recycle(index);
    }
  }

  /// Undivided buffers in total, and those that CUPTI holds; a part counts as a whole one.
  std::uint32_t count() const noexcept { return units_ / units_per_buffer_; }
  std::uint32_t outstanding() const noexcept {
    return (outstanding_.load(std::memory_order_acquire) + units_per_buffer_ - 1) / units_per_buffer_;
  }
  std::uint64_t refusals() const noexcept { return refusals_.load(std::memory_order_relaxed); }
  std::uint64_t handled() const noexcept { return handled_.load(std::memory_order_relaxed); }

  /// After CUPTI has been finalized: takes back the buffers that it never returned.
  void reclaim_outstanding() noexcept;

  /// Drain thread, once: moves the buffers into a file's mapping of total_bytes(), with `marks` for units()
  /// of them, so that completed buffers outlive the process. Those in use, possibly all, follow once they are
  /// handled; until then, their contents are copied there on completion. False if the kernel refused to move
  /// one.
  bool move_to(const SharedRegion& region, BufferMark* marks) noexcept;
  std::uint8_t* memory() noexcept { return base_; }
  /// The memory of the buffers used first.
  std::span<std::uint8_t> used_first() noexcept;
  std::size_t unit_bytes() const noexcept { return unit_bytes_; }
  std::uint32_t units() const noexcept { return units_; }
  std::size_t total_bytes() const noexcept { return units_ * unit_bytes_; }

 private:
  // State of the unit with which a buffer begins.
  struct State {
    std::atomic<std::uint32_t> link;
    std::atomic<std::uint32_t> taken;
    std::uint32_t units;
    std::uint16_t generation;
    bool moved;
    bool copied;  // to its future place
    std::size_t valid;
    std::uint64_t sequence;
  };
  /// Pop count << 32 | (index + 1).
  using FreeList = std::atomic<std::uint64_t>;

  std::uint32_t reversed(std::uint32_t chain) noexcept;
  void recycle(std::uint32_t index) noexcept;
  void push(std::uint32_t index) noexcept;
  std::uint32_t pop(FreeList& list) noexcept;
  std::uint32_t pop_whole() noexcept;
  std::uint32_t pop_part() noexcept;
  std::uint32_t split_one() noexcept;
  bool move(std::uint32_t index) noexcept;

  std::uint8_t* base_ = nullptr;
  State* states_ = nullptr;
  std::size_t unit_bytes_ = 0;
  std::uint32_t units_per_buffer_ = 1;  // of an undivided buffer
  std::uint32_t units_ = 0;
  // Buffers that have moved are taken first.
  FreeList free_{0};
  FreeList free_parts_{0};
  FreeList free_moved_{0};
  FreeList free_moved_parts_{0};
  std::atomic<std::uint32_t> in_use_{0};  // units that are not free
  std::atomic<std::uint32_t> completed_{0};
  std::atomic<std::uint32_t> outstanding_{0};
  std::atomic<std::uint64_t> refusals_{0};
  std::atomic<std::uint64_t> handled_{0};
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<BufferMark*> marks_{nullptr};  // set once
  SharedRegion region_;                      // set before marks_
};

}  // namespace inject
