// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/shape_table.h"

#include <algorithm>
#include <bit>
#include <new>

#include "libinject/base/mapping.h"

namespace inject {

namespace {

constexpr std::uint32_t kReservedShapes = 2;

std::uint64_t hash_of(const CallShape& shape) noexcept {
  // Four independent sums: sixteen dependent multiplications would take 20 ns.
  std::uint64_t a = kHashSeed;
  std::uint64_t b = a + 1;
  std::uint64_t c = a + 2;
  std::uint64_t d = a + 3;
  const CallShape::Words& words = shape.words();
  for (std::size_t i = 0; i < words.size(); i += 4) {
    a = (a ^ words[i]) * 0xD6E8'FEB8'6659'FD93u;
    b = (b ^ words[i + 1]) * 0x9E37'79B9'7F4A'7C15u;
    c = (c ^ words[i + 2]) * 0xC2B2'AE3D'27D4'EB4Fu;
    d = (d ^ words[i + 3]) * 0x1656'67B1'9E37'79F9u;
    a ^= a >> 29;
    b ^= b >> 31;
    c ^= c >> 30;
    d ^= d >> 32;
  }
  return hash_mix((a + std::rotl(b, 13)) ^ (std::rotl(c, 29) + std::rotl(d, 47)));
}

}  // namespace

ShapeTable::ShapeTable(std::uint32_t capacity) noexcept
    : capacity_(capacity < kReservedShapes ? kReservedShapes : capacity) {
  const std::uint32_t slots = std::bit_ceil(capacity_ * 2u);
  const std::size_t slot_bytes = slots * sizeof(std::atomic<std::uint64_t>);
  mapped_ = slot_bytes + capacity_ * sizeof(CallShape);
  base_ = map_memory(mapped_);
  if (base_ == nullptr) {
    capacity_ = 0;
    return;
  }
  // Zeroed memory is a valid array of zero atomics on every supported platform.
  slots_ = static_cast<std::atomic<std::uint64_t>*>(base_);
  shapes_ = reinterpret_cast<CallShape*>(static_cast<char*>(base_) + slot_bytes);
  slot_mask_ = slots - 1;
  count_.store(kReservedShapes, std::memory_order_relaxed);
}

ShapeTable::~ShapeTable() {
  unmap_memory(base_, mapped_);
}

// Slots are used all over their part, shapes in order.
std::span<std::uint8_t> ShapeTable::used_first() noexcept {
  constexpr std::size_t kShapes = std::size_t{64} << 10;
  if (base_ == nullptr) return {};
  const std::size_t slot_bytes = (std::size_t{slot_mask_} + 1) * sizeof(std::atomic<std::uint64_t>);
  return {static_cast<std::uint8_t*>(base_), std::min(mapped_, slot_bytes + kShapes)};
}

std::uint32_t ShapeTable::intern(const CallShape& shape) noexcept {
  if (base_ == nullptr) {
    overflows_.fetch_add(1, std::memory_order_relaxed);
    return kOther;
  }
  const std::uint64_t hash = hash_of(shape);
  const std::uint64_t tag = hash & 0xFFFF'FFFF'0000'0000u;
  std::uint32_t fresh = 0;  // entered by this call, not yet published
  for (std::uint32_t probe = 0, at = static_cast<std::uint32_t>(hash) & slot_mask_; probe <= slot_mask_;
       ++probe, at = (at + 1) & slot_mask_) {
    std::uint64_t there = slots_[at].load(std::memory_order_acquire);
    if (there == 0) {
      if (fresh == 0) {
        fresh = count_.fetch_add(1, std::memory_order_relaxed);
        if (fresh >= capacity_) {
          // The counter stays at its limit: it must not wrap however often a full table is used.
          count_.fetch_sub(1, std::memory_order_relaxed);
          overflows_.fetch_add(1, std::memory_order_relaxed);
          return kOther;
        }
        ::new (static_cast<void*>(shapes_ + fresh)) CallShape(shape);
      }
      // Release: a reader of the slot sees the shape.
      if (slots_[at].compare_exchange_strong(there, tag | fresh, std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
        return fresh;
      }
    }
    // An entry lost to another thread stays unused.
    const auto number = static_cast<std::uint32_t>(there);
    if ((there & 0xFFFF'FFFF'0000'0000u) == tag && shapes_[number] == shape) return number;
  }
  overflows_.fetch_add(1, std::memory_order_relaxed);
  return kOther;
}

CallShape ShapeTable::shape(std::uint32_t id) const noexcept {
  if (id < kReservedShapes || id >= capacity_ || id >= count_.load(std::memory_order_acquire)) return {};
  return shapes_[id];
}

ShapeKind ShapeTable::kind(std::uint32_t id) const noexcept {
  const bool known = id >= kReservedShapes && id < capacity_ && id < count_.load(std::memory_order_acquire);
  return known ? shapes_[id].kind() : ShapeKind::kNone;
}

}  // namespace inject
