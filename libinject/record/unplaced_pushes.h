// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>

namespace inject {

/// A thread's NVTX pushes that did not fit in the RangeTree, by domain: their pops must not end ranges that
/// did. If eight domains have some, those of all others are counted together.
class UnplacedPushes {
 public:
  std::uint32_t count(std::uint32_t domain) const noexcept {
    const std::uint32_t at = find(domain);
    return at == used_ ? others_ : counts_[at].pushes;
  }
  void add(std::uint32_t domain) noexcept {
    const std::uint32_t at = find(domain);
    if (at != used_) {
      ++counts_[at].pushes;
    } else if (used_ == kMost || others_ != 0) {
      ++others_;
    } else {
      counts_[used_++] = {domain, 1};
    }
  }
  /// A pop: true if it belongs to such a push.
  bool take(std::uint32_t domain) noexcept {
    const std::uint32_t at = find(domain);
    if (at == used_) {
      if (others_ == 0) return false;
      --others_;
    } else if (--counts_[at].pushes == 0) {
      counts_[at] = counts_[--used_];
    }
    return true;
  }
  void clear() noexcept { used_ = others_ = 0; }

 private:
  static constexpr std::uint32_t kMost = 8;

  struct Count {
    std::uint32_t domain;
    std::uint32_t pushes;
  };

  std::uint32_t find(std::uint32_t domain) const noexcept {
    std::uint32_t at = 0;
    while (at < used_ && counts_[at].domain != domain) ++at;
    return at;
  }

  std::array<Count, kMost> counts_{};
  std::uint32_t used_ = 0;
  std::uint32_t others_ = 0;
};

}  // namespace inject
