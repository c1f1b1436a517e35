// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace inject {

/// Identifies a communicator, with the same value on all of its ranks; 0: not known.
using CommunicatorId = std::uint64_t;

/// Derived from the unique id that its ranks share. That id, which contains an address, can't be recovered.
CommunicatorId communicator_id(std::string_view unique_id) noexcept;

/// The id of the ranks with one colour after the `number`th split of a communicator, counted from 0: all of
/// its ranks take part in each split, so they count alike. 0 if the parent's is not known.
CommunicatorId split_communicator_id(CommunicatorId parent, int color, std::uint32_t number) noexcept;

/// Ids of communicators, from their creation to their end. Any thread may call anything; there is no lock.
/// Bounded: a communicator that does not fit is not known. Zero-initialised.
class CommunicatorIds {
 public:
  /// The communicator has just been created.
  void remember(const void* communicator, CommunicatorId id) noexcept;
  CommunicatorId id(const void* communicator) noexcept;
  /// The communicator is being split: returns the id of its ranks with this colour, 0 if it is not known.
  /// `color` < 0: this rank takes part, and gets no id.
  CommunicatorId split(const void* communicator, int color) noexcept;
  /// The communicator is about to be destroyed.
  void forget(const void* communicator) noexcept;

  static constexpr std::size_t kMax = 2048;

 private:
  struct Entry {
    std::atomic<std::uintptr_t> communicator{0};  // 0: never used; else kFree, kBusy or the address
    std::atomic<CommunicatorId> id{0};
    std::atomic<std::uint32_t> splits{0};
  };
  static constexpr std::uintptr_t kFree = 1;  // was used: a search continues past it
  static constexpr std::uintptr_t kBusy = 2;  // being written

  Entry* find(std::uintptr_t key) noexcept;
  static std::size_t place(std::uintptr_t key) noexcept;

  std::array<Entry, kMax> entries_{};
};

}  // namespace inject
