// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace inject {

/// Numbers distinct keys of N words in order of arrival, up to `limit` of them; every further key gets
/// kOther. A lookup usually touches one slot; the previous call's key is compared first, because launches
/// often repeat.
template <std::size_t N>
class KeyIndex {
 public:
  using Key = std::array<std::uint32_t, N>;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint32_t kOther = kNone - 1;

  explicit KeyIndex(std::uint32_t limit) : limit_(limit), slots_(kFirstSlots, kNone) {}

  std::uint32_t find_or_add(const Key& key) {
    if (last_ < keys_.size() && same(keys_[last_], key)) return last_;
    std::size_t slot = find_slot(key);
    if (slots_[slot] == kNone) {
      if (keys_.size() == limit_) {
        ++overflows_;
        return kOther;
      }
      if ((keys_.size() + 1) * 2 > slots_.size()) {
        grow();
        slot = find_slot(key);
      }
      slots_[slot] = static_cast<std::uint32_t>(keys_.size());
      keys_.push_back(key);
    }
    return last_ = slots_[slot];
  }

  /// The number of a key, kNone if it has none.
  std::uint32_t find(const Key& key) const { return slots_[find_slot(key)]; }

  const Key& key(std::uint32_t index) const { return keys_[index]; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(keys_.size()); }
  /// Lookups of keys that did not fit.
  std::uint64_t overflows() const { return overflows_; }

 private:
  static constexpr std::size_t kFirstSlots = 64;

  static std::size_t hash(const Key& key) {
    std::uint64_t h = N;
    for (std::size_t i = 0; i < N; i += 2) {
      const std::uint64_t high = i + 1 < N ? key[i + 1] : 0;
      h = (h ^ (high << 32 | key[i])) * 0x9e3779b97f4a7c15u;
      h ^= h >> 32;
    }
    return h;
  }

  /// Inline, where operator== would call memcmp(): a quarter of the time of a lookup.
  static bool same(const Key& a, const Key& b) {
    std::uint32_t different = 0;
    for (std::size_t i = 0; i < N; ++i) different |= a[i] ^ b[i];
    return different == 0;
  }

  std::size_t find_slot(const Key& key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = hash(key) & mask;
    while (slots_[slot] != kNone && !same(keys_[slots_[slot]], key)) slot = (slot + 1) & mask;
    return slot;
  }

  void grow() {
    slots_.assign(slots_.size() * 2, kNone);
    const std::size_t mask = slots_.size() - 1;
    for (std::uint32_t i = 0; i < keys_.size(); ++i) {
      std::size_t slot = hash(keys_[i]) & mask;
      while (slots_[slot] != kNone) slot = (slot + 1) & mask;
      slots_[slot] = i;
    }
  }

  std::uint32_t limit_;
  std::uint32_t last_ = 0;
  std::uint64_t overflows_ = 0;
  std::vector<std::uint32_t> slots_;
  std::vector<Key> keys_;
};

}  // namespace inject
