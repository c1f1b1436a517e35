// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "libinject/model/call_shape.h"

namespace inject {

/// The collectives that one thread has put into its open group, combined into one shape at the end. Groups
/// nest, and the end of the outermost one submits the work. Calls are seen only inside windows: a group left
/// open by one window is forgotten in the next. Constant in size, however many calls a group has.
class CollectiveGroup {
 public:
  void start(std::uint32_t window) noexcept {
    if (window != window_) *this = CollectiveGroup();
    window_ = window;
    ++depth_;
  }

  bool is_open(std::uint32_t window) const noexcept { return depth_ != 0 && window == window_; }

  /// A call is about to be made, in the group if its role says so. `communicator`: its handle, which stands
  /// for one rank.
  void offer(const CollectiveShape& call, const void* communicator) noexcept {
    offered_ = call;
    offered_to_ = communicator;
  }
  /// The call has been made, and was not rejected.
  void accept() noexcept {
    if (offered_.role == GroupRole::kMember) add(offered_, offered_to_);
  }

  /// The end of a group. True if it is the outermost one and not empty: `submitted` is then what the library
  /// launches now.
  bool end(std::uint32_t window, CollectiveShape& submitted) noexcept;

 private:
  /// Among more ranks, it is unknown whether a group is all to all.
  static constexpr std::size_t kMaxRanks = 1024;

  struct Side {  // sends or receives
    std::uint32_t calls = 0;
    std::uint64_t bytes = 0;
    std::bitset<kMaxRanks> peers;

    bool has_each_once(std::uint32_t ranks) const noexcept {
      return calls == ranks && peers.count() == ranks;
    }
  };

  void add(const CollectiveShape& call, const void* communicator) noexcept;
  bool is_all_to_all() const noexcept;

  std::uint32_t window_ = 0;
  std::uint32_t depth_ = 0;
  std::uint32_t calls_ = 0;
  bool equal_ = true;
  bool same_size_ = true;
  bool one_communicator_ = true;
  CollectiveShape offered_;
  const void* offered_to_ = nullptr;
  const void* communicator_ = nullptr;
  CollectiveShape first_;
  CollectiveShape all_;
  Side sent_;
  Side received_;
};

}  // namespace inject
