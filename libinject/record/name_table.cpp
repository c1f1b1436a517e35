// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/name_table.h"

#include <bit>
#include <cstring>

#include "libinject/base/mapping.h"

namespace inject {

namespace {
constexpr std::size_t kMaxNameLength = 16 * 1024;
constexpr std::uint32_t kReservedNames = 2;
constexpr std::string_view kOtherText = "[other]";
}  // namespace

// Written once by the thread that enters the name, before the slot that refers to it is published.
struct NameTable::Entry {
  std::size_t offset;
  std::uint32_t length;
  std::uint32_t hash;
};

NameTable::NameTable(std::uint32_t max_names, std::size_t max_bytes) noexcept
    : max_names_(max_names < kReservedNames ? kReservedNames : max_names), max_bytes_(max_bytes) {
  const std::uint32_t slots = std::bit_ceil(max_names_ * 2u);
  const std::size_t slot_bytes = slots * sizeof(std::atomic<std::uint32_t>);
  const std::size_t entry_bytes = max_names_ * sizeof(Entry);
  mapped_ = slot_bytes + entry_bytes + max_bytes_;
  base_ = static_cast<char*>(map_memory(mapped_));
  if (base_ == nullptr) {
    max_names_ = 0;
    return;
  }
  // Zeroed memory is a valid array of zero atomics on every supported platform.
  slots_ = reinterpret_cast<std::atomic<std::uint32_t>*>(base_);
  entries_ = reinterpret_cast<Entry*>(base_ + slot_bytes);
  text_ = base_ + slot_bytes + entry_bytes;
  slot_mask_ = slots - 1;
  count_.store(kReservedNames, std::memory_order_relaxed);
}

NameTable::~NameTable() {
  unmap_memory(base_, mapped_);
}

std::uint32_t NameTable::intern(std::string_view name, Room room) noexcept {
  if (name.empty()) return kEmpty;
  if (name.size() > kMaxNameLength) name = name.substr(0, kMaxNameLength);
  if (name == kOtherText) return kOther;
  if (base_ == nullptr) {
    overflows_.fetch_add(1, std::memory_order_relaxed);
    return kOther;
  }
  const std::uint64_t full_hash = hash_bytes(name);
  const auto hash = static_cast<std::uint32_t>(full_hash >> 32);
  std::uint32_t fresh = 0;  // entry filled by this call, not yet published
  for (std::uint32_t probe = 0, slot = static_cast<std::uint32_t>(full_hash) & slot_mask_;
       probe <= slot_mask_; ++probe, slot = (slot + 1) & slot_mask_) {
    std::uint32_t value = slots_[slot].load(std::memory_order_acquire);
    if (value == 0) {
      if (fresh == 0) {
        // Before taking a number, because other threads take the next ones.
        if (room == Room::kMost && !has_most_room(name.size())) break;
        const std::uint32_t id = count_.fetch_add(1, std::memory_order_relaxed);
        const std::size_t offset = text_used_.fetch_add(name.size(), std::memory_order_relaxed);
        if (id >= max_names_ || offset + name.size() > max_bytes_) {
          // Keep the counters at their limits: they must not wrap however often a full table is used.
          if (id >= max_names_) count_.fetch_sub(1, std::memory_order_relaxed);
          text_used_.fetch_sub(name.size(), std::memory_order_relaxed);
          overflows_.fetch_add(1, std::memory_order_relaxed);
          return kOther;
        }
        std::memcpy(text_ + offset, name.data(), name.size());
        entries_[id] = Entry{offset, static_cast<std::uint32_t>(name.size()), hash};
        fresh = id;
      }
      // Release: a reader of the slot sees the entry and its text.
      if (slots_[slot].compare_exchange_strong(value, fresh, std::memory_order_acq_rel,
                                               std::memory_order_acquire)) {
        return fresh;
      }
    }
    const Entry& entry = entries_[value];
    if (entry.hash == hash && entry.length == name.size() &&
        std::memcmp(text_ + entry.offset, name.data(), name.size()) == 0) {
      return value;  // a `fresh` entry lost to another thread stays unused
    }
  }
  overflows_.fetch_add(1, std::memory_order_relaxed);
  return kOther;
}

bool NameTable::has_most_room(std::size_t bytes) const noexcept {
  return count_.load(std::memory_order_relaxed) < max_names_ / 4 * 3 &&
         text_used_.load(std::memory_order_relaxed) + bytes <= max_bytes_ / 4 * 3;
}

std::string_view NameTable::name(std::uint32_t id) const noexcept {
  if (id == kOther) return kOtherText;
  if (id < kReservedNames || id >= max_names_ || id >= count_.load(std::memory_order_acquire)) return {};
  const Entry& entry = entries_[id];
  return {text_ + entry.offset, entry.length};
}

std::uint32_t NameTable::size() const noexcept {
  return count_.load(std::memory_order_relaxed);
}

}  // namespace inject
