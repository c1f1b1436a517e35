// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

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

  /// A call is about to be made, in the group if its role says so.
  void offer(const CollectiveShape& call) noexcept { offered_ = call; }
  /// The call has been made, and was not rejected.
  void accept() noexcept {
    if (offered_.role == GroupRole::kMember) add(offered_);
  }

  /// The end of a group. True if it is the outermost one and not empty: `submitted` is then what the library
  /// launches now.
  bool end(std::uint32_t window, CollectiveShape& submitted) noexcept;

 private:
  struct Side {  // sends or receives
    std::uint32_t calls = 0;
    std::uint64_t bytes = 0;
    std::uint64_t peers = 0;  // sum: distinguishes "every rank once" from most other patterns
  };

  void add(const CollectiveShape& call) noexcept;
  bool is_all_to_all() const noexcept;

  std::uint32_t window_ = 0;
  std::uint32_t depth_ = 0;
  std::uint32_t calls_ = 0;
  bool equal_ = true;
  bool same_size_ = true;
  CollectiveShape offered_;
  CollectiveShape first_;
  CollectiveShape all_;
  Side sent_;
  Side received_;
};

}  // namespace inject
