// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace inject {

/// Interned strings: id 0 is the empty name, id 1 is `[other]`, which stands for every name that no longer
/// fits. Any thread may intern and read without a lock; names live as long as the table. Bounded by the
/// number of names and by the bytes of text given to the constructor; both are reserved, not touched, so
/// unused room costs no memory.
class NameTable {
 public:
  static constexpr std::uint32_t kEmpty = 0;
  static constexpr std::uint32_t kOther = 1;

  NameTable(std::uint32_t max_names, std::size_t max_bytes) noexcept;
  ~NameTable();
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  enum class Room : std::uint8_t { kAll, kMost };

  /// The id of `name`, which is entered if it is new; kOther if the table is full (counted in overflows()).
  /// Names longer than 16 KiB are truncated. Names of which a program may make any number, such as those of
  /// an NVTX range for each step, get most of the room (kMost): the last quarter is reserved for others.
  std::uint32_t intern(std::string_view name, Room room = Room::kAll) noexcept;

  /// The text of an id that intern() returned; empty for an unknown id.
  std::string_view name(std::uint32_t id) const noexcept;

  std::uint32_t size() const noexcept;
  std::uint64_t overflows() const noexcept { return overflows_.load(std::memory_order_relaxed); }

 private:
  struct Entry;

  bool has_most_room(std::size_t bytes) const noexcept;

  std::uint32_t max_names_;
  std::uint32_t slot_mask_ = 0;
  std::size_t max_bytes_;
  std::size_t mapped_ = 0;
  char* base_ = nullptr;                         // one mapping: slots, entries, text
  std::atomic<std::uint32_t>* slots_ = nullptr;  // open addressing, value = entry + 1
  Entry* entries_ = nullptr;
  char* text_ = nullptr;
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::size_t> text_used_{0};
  std::atomic<std::uint64_t> overflows_{0};
};

}  // namespace inject
