// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/library_buffers.h"

namespace inject {

constinit LibraryBuffers library_buffers;

namespace {

unsigned use_bit(BufferUse use) noexcept {
  return 1u << static_cast<unsigned>(use);
}

}  // namespace

void LibraryBuffers::open(bool sees_communication) noexcept {
  incomplete_.store(sees_communication ? 0 : use_bit(BufferUse::kCommunication), std::memory_order_relaxed);
  for (Slot& slot : slots_) {
    slot.said.store(0, std::memory_order_relaxed);
    slot.address.store(0, std::memory_order_relaxed);
  }
  is_open_.store(true, std::memory_order_release);
}

void LibraryBuffers::keep(std::uintptr_t address, std::uint64_t bytes, BufferUse use) noexcept {
  constexpr std::size_t kLooks = 16;
  const std::uint64_t said = bytes << 1u | static_cast<std::uint64_t>(use);
  // Allocations are 512 bytes apart and more.
  std::size_t at = static_cast<std::size_t>((address >> 9u) * 0x9E3779B97F4A7C15u >> 56u);
  static_assert(kRoom == 1u << 8u);
  for (std::size_t look = 0; look < kLooks; ++look, at = (at + 1) % kRoom) {
    Slot& slot = slots_[at];
    std::uintptr_t there = slot.address.load(std::memory_order_relaxed);
    if (there == 0 && slot.address.compare_exchange_strong(there, address, std::memory_order_relaxed))
      there = address;
    if (there != address) continue;
    if (slot.said.load(std::memory_order_relaxed) != said) slot.said.store(said, std::memory_order_release);
    return;
  }
  incomplete_.fetch_or(use_bit(BufferUse::kWorkspace) | use_bit(BufferUse::kCommunication),
                       std::memory_order_relaxed);
}

}  // namespace inject
