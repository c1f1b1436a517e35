// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace inject {

/// Which launches were made outside all windows: a bit for each correlation id of the current attachment, for
/// the last 16,777,216 ids (ids count every call that CUPTI sees). Takes 8 KiB at first and 2 MiB at most.
/// One thread.
class OutsideLaunches {
 public:
  static constexpr std::uint32_t kMaxIds = 1u << 24;

  /// Ignored if it is from an earlier attachment, or too old.
  void add(std::uint16_t generation, std::uint32_t correlation) {
    if (generation != generation_ || !any_) {
      const auto ahead = static_cast<std::int16_t>(static_cast<std::uint16_t>(generation - generation_));
      if (any_ && ahead < 0) return;
      any_ = true;
      generation_ = generation;
      std::fill(words_.begin(), words_.end(), 0);
      last_ = word_of(correlation);
    }
    const std::uint32_t word = word_of(correlation);
    if (is_newer(word)) advance_to(word);
    if (age(word) < words_.size()) words_[slot_of(word)] |= bit_of(correlation);
  }

  bool contains(std::uint16_t generation, std::uint32_t correlation) const {
    const std::uint32_t word = word_of(correlation);
    return any_ && generation == generation_ && !is_newer(word) && age(word) < words_.size() &&
           (words_[slot_of(word)] & bit_of(correlation)) != 0;
  }

 private:
  // Ids wrap after 2^32, words after 2^26.
  static constexpr std::uint32_t kWordBits = 26;
  static constexpr std::uint32_t kWordMask = (1u << kWordBits) - 1;
  static constexpr std::size_t kFirstWords = 1024;

  static std::uint32_t word_of(std::uint32_t correlation) { return correlation / 64; }
  static std::uint64_t bit_of(std::uint32_t correlation) { return std::uint64_t{1} << (correlation % 64); }
  std::size_t slot_of(std::uint32_t word) const { return word & (words_.size() - 1); }
  std::uint32_t age(std::uint32_t word) const { return (last_ - word) & kWordMask; }
  bool is_newer(std::uint32_t word) const {
    const std::uint32_t ahead = (word - last_) & kWordMask;
    return ahead != 0 && ahead <= kWordMask / 2;
  }

  void advance_to(std::uint32_t word) {
    if (((word - last_) & kWordMask) >= kMaxIds / 64) {
      std::fill(words_.begin(), words_.end(), 0);
      last_ = word;
    }
    while (last_ != word) {
      const std::uint32_t next = (last_ + 1) & kWordMask;
      while (words_[slot_of(next)] != 0 && words_.size() < kMaxIds / 64) grow();
      last_ = next;
      words_[slot_of(next)] = 0;
    }
  }

  void grow() {
    std::vector<std::uint64_t> larger(words_.size() * 2);
    for (std::uint32_t back = 0; back < words_.size(); ++back) {
      const std::uint32_t word = (last_ - back) & kWordMask;
      larger[word & (larger.size() - 1)] = words_[slot_of(word)];
    }
    words_ = std::move(larger);
  }

  std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(kFirstWords);  // indexed by slot_of()
  std::uint32_t last_ = 0;                                                      // the newest word
  std::uint16_t generation_ = 0;
  bool any_ = false;
};

}  // namespace inject
