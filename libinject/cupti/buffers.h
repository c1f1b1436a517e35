// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace inject {

/// The buffers that CUPTI fills with activity records: a fixed number out of one reserved mapping. CUPTI
/// takes one a launching thread at a time and asks on that thread, so both ends are lock-free. None left:
/// CUPTI gets no buffer, drops records and counts them. A buffer is zeroed by the drain thread as it comes
/// back, because CUPTI would otherwise zero it on the launching thread
/// (CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER).
class ActivityBuffers {
 public:
  explicit ActivityBuffers(std::size_t total_bytes) noexcept;
  ~ActivityBuffers();
  ActivityBuffers(const ActivityBuffers&) = delete;
  ActivityBuffers& operator=(const ActivityBuffers&) = delete;

  std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }

  /// A zeroed buffer, or nullptr (counted in refusals()).
  std::uint8_t* take(std::uint16_t generation) noexcept;
  /// CUPTI is done with `buffer`; its first `valid` bytes are records. False if the buffer is not one of
  /// ours.
  bool complete(std::uint8_t* buffer, std::size_t valid) noexcept;

  /// Drain thread: Use(std::uint8_t* buffer, std::size_t valid, std::uint16_t generation) for each completed
  /// buffer, oldest first. The generation is that of the attachment that took it.
  template <typename Use>
  void drain(Use&& use) {
    std::uint32_t chain = reversed(completed_.exchange(0, std::memory_order_acquire));
    while (chain != 0) {
      const std::uint32_t index = chain - 1;
      chain = states_[index].link.load(std::memory_order_relaxed);
      use(base_ + index * buffer_bytes_, states_[index].valid, states_[index].generation);
      recycle(index);
    }
  }

  std::uint32_t count() const noexcept { return count_; }
  /// Buffers that are in CUPTI's hands.
  std::uint32_t outstanding() const noexcept { return outstanding_.load(std::memory_order_acquire); }
  std::uint64_t refusals() const noexcept { return refusals_.load(std::memory_order_relaxed); }
  std::uint64_t handled() const noexcept { return handled_.load(std::memory_order_relaxed); }

  /// After CUPTI has been finalized: buffers that it never gave back are ours again.
  void reclaim_outstanding() noexcept;

 private:
  struct State {
    std::atomic<std::uint32_t> link;
    std::atomic<std::uint32_t> taken;
    std::size_t valid;
    std::uint16_t generation;
  };
  static constexpr std::uint32_t kMost = 256;

  std::uint32_t reversed(std::uint32_t chain) noexcept;
  void recycle(std::uint32_t index) noexcept;
  void push_free(std::uint32_t index) noexcept;

  std::uint8_t* base_ = nullptr;
  std::size_t buffer_bytes_ = 0;
  std::uint32_t count_ = 0;
  State states_[kMost] = {};
  std::atomic<std::uint64_t> free_{0};  // pop count << 32 | (index + 1)
  std::atomic<std::uint32_t> completed_{0};
  std::atomic<std::uint32_t> outstanding_{0};
  std::atomic<std::uint64_t> refusals_{0};
  std::atomic<std::uint64_t> handled_{0};
};

}  // namespace inject
