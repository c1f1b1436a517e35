// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A few blocks of one size, used if there is no other memory.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace inject {

/// Constant-initialised, and all zero: it takes no memory until a block is used. Any thread may call it, also
/// in a signal handler: there is no lock.
template <std::size_t kBlockSize, std::size_t kBlocks>
class SpareBlocks {
  static_assert(kBlockSize % alignof(std::max_align_t) == 0 && kBlocks % 64 == 0);

 public:
  /// A block of kBlockSize bytes, aligned for every type, not cleared; nullptr if all are in use.
  void* take() noexcept {
    for (std::size_t word = 0; word < taken_.size(); ++word) {
      std::uint64_t taken = taken_[word].load(std::memory_order_relaxed);
      while (~taken != 0) {
        const auto bit = static_cast<std::size_t>(std::countr_one(taken));
        if (taken_[word].compare_exchange_weak(taken, taken | std::uint64_t{1} << bit,
                                               std::memory_order_acquire, std::memory_order_relaxed)) {
          return &memory_[(word * 64 + bit) * kBlockSize];
        }
      }
    }
    return nullptr;
  }

  /// False if `block` was not taken here.
  bool give_back(const void* block) noexcept {
    const std::size_t offset =
        reinterpret_cast<std::uintptr_t>(block) - reinterpret_cast<std::uintptr_t>(memory_.data());
    if (offset >= memory_.size()) return false;
    const std::size_t index = offset / kBlockSize;
    taken_[index / 64].fetch_and(~(std::uint64_t{1} << index % 64), std::memory_order_release);
    return true;
  }

 private:
  std::array<std::atomic<std::uint64_t>, kBlocks / 64> taken_{};
  alignas(std::max_align_t) std::array<std::byte, kBlockSize * kBlocks> memory_{};
};

}  // namespace inject
