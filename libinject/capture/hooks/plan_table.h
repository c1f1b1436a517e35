// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace inject {

/// cuDNN's execution plans, identified by their addresses, and what each computes. Lock-free: any thread may
/// look a plan up while others enter and remove theirs. Bounded: a plan that does not fit has no shape.
/// Zeroed memory is an empty table.
class PlanTable {
 public:
  static constexpr std::size_t kSlots = std::size_t{1} << 14;
  /// A shape's number is less than this.
  static constexpr std::uint32_t kShapeEnd = 1u << 19;

  /// Enters a plan, or changes what it computes (0: not known yet). False if it does not fit.
  bool set(const void* plan, std::uint32_t shape) noexcept;
  /// The shape of a plan, 0 if it is not known yet; nothing if it has not been entered.
  std::optional<std::uint32_t> find(const void* plan) const noexcept;
  void remove(const void* plan) noexcept;

 private:
  // Maximum number of slots searched for a plan, starting at that of its address; a slot that was never used
  // ends the search.
  static constexpr std::size_t kProbes = 64;

  std::atomic<std::uint64_t>* slot_of(const void* plan) noexcept;

  // The address and the shape in one word, so that neither is ever seen with another plan's.
  std::array<std::atomic<std::uint64_t>, kSlots> slots_{};
};

}  // namespace inject
