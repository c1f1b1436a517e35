// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>

namespace inject {

/// Which of one thread's push/pop ranges the window trigger is inside of, kept separately from the range
/// tree: a full tree must not make a window open or close at another range's edge. In each domain only the
/// outermost watched range counts, so a depth is enough. Bounded: watched ranges of a fifth domain, inside
/// those of four others, are not noticed.
class WatchedRanges {
 public:
  static constexpr std::size_t kMaxDomains = 4;

  /// A range was pushed in `domain`; true if it is the outermost watched one there.
  bool push(std::uint32_t domain, bool watched) noexcept {
    Domain* free = nullptr;
    for (Domain& known : domains_) {
      if (known.depth != 0 && known.domain == domain) {
        ++known.depth;
        return false;
      }
      if (known.depth == 0) free = &known;
    }
    if (!watched || free == nullptr) return false;
    *free = {domain, 1};
    return true;
  }

  /// The innermost range of `domain` was popped; true if it was the outermost watched one.
  bool pop(std::uint32_t domain) noexcept {
    for (Domain& known : domains_) {
      if (known.depth != 0 && known.domain == domain) return --known.depth == 0;
    }
    return false;
  }

 private:
  struct Domain {
    std::uint32_t domain = 0;
    std::uint32_t depth = 0;  // 0: not in use
  };
  std::array<Domain, kMaxDomains> domains_;
};

}  // namespace inject
