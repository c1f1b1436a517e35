// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace inject {

enum class BufferUse : std::uint8_t {
  kWorkspace,      ///< given to cuBLAS for its work
  kCommunication,  ///< a collective has read or written it
};

/// Device memory that the program has passed to libraries, by address, with the size passed last. The
/// program's threads note it without a lock; what does not fit is dropped. Nothing is noted unless open.
class LibraryBuffers {
 public:
  static constexpr std::size_t kRoom = 256;

  /// Empties the table and touches its memory, before launching threads do. Not concurrently with note().
  /// `sees_communication`: collectives are recorded.
  void open(bool sees_communication) noexcept;
  void close() noexcept { is_open_.store(false, std::memory_order_relaxed); }
  bool is_open() const noexcept { return is_open_.load(std::memory_order_relaxed); }

  void note(const void* address, std::uint64_t bytes, BufferUse use) noexcept {
    if (is_open() && address != nullptr && bytes != 0)
      keep(reinterpret_cast<std::uintptr_t>(address), bytes, use);
  }

  /// One bit per use of which some buffers may be missing.
  unsigned incomplete() const noexcept { return incomplete_.load(std::memory_order_relaxed); }

  /// Calls see(address, bytes, use) for each buffer.
  template <typename See>
  void each(const See& see) const {
    for (const Slot& slot : slots_) {
      const std::uint64_t said = slot.said.load(std::memory_order_acquire);
      if (said != 0)
        see(slot.address.load(std::memory_order_relaxed), said >> 1u, static_cast<BufferUse>(said & 1u));
    }
  }

 private:
  struct Slot {
    std::atomic<std::uintptr_t> address{0};  ///< 0: free
    std::atomic<std::uint64_t> said{0};      ///< bytes and, in the lowest bit, the use; 0: not yet
  };

  void keep(std::uintptr_t address, std::uint64_t bytes, BufferUse use) noexcept;

  std::atomic<bool> is_open_{false};
  std::atomic<unsigned> incomplete_{0};
  std::array<Slot, kRoom> slots_{};
};

extern constinit LibraryBuffers library_buffers;

}  // namespace inject
