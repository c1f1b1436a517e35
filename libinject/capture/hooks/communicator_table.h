// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "libinject/capture/hooks/communicator_ids.h"

namespace inject {

struct CommunicatorFacts {
  std::uint32_t ranks = 0;  ///< 0: not known
  CommunicatorId id = 0;

  bool operator==(const CommunicatorFacts&) const = default;
};

/// Caches what the library reports about communicators, such as their number of ranks, because a query costs
/// more than a hook may. Valid for one window, because outside of windows a communicator may be destroyed and
/// another created at its address unseen. Lock-free; bounded: if there are too many at once, some are queried
/// again. Zero-initialised.
class CommunicatorTable {
 public:
  /// The facts; nothing is known if `ranks` is 0.
  CommunicatorFacts facts(const void* communicator, std::uint32_t window) const noexcept;
  void remember(const void* communicator, std::uint32_t window, const CommunicatorFacts& facts) noexcept;
  /// The communicator is about to be destroyed.
  void forget(const void* communicator) noexcept;

  static constexpr unsigned kSets = 64;
  static constexpr unsigned kWays = 8;  // number of slots in which a communicator can be

 private:
  struct alignas(32) Entry {
    std::atomic<std::uintptr_t> communicator{0};  // 0: free, kBusy: being written
    std::atomic<std::uint64_t> value{0};          // window, ranks
    std::atomic<CommunicatorId> id{0};
  };
  static constexpr std::uintptr_t kBusy = 1;
  static constexpr std::size_t set_of(std::uintptr_t communicator) noexcept {
    return (communicator * 0x9E37'79B9'7F4A'7C15u) >> 58;
  }

  std::array<std::array<Entry, kWays>, kSets> entries_{};
};

}  // namespace inject
