// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace inject {

/// When the search for iterations looks at the latest events again, how many of them, and what that may cost
/// in events visited (some 2 ns each).
class AnalysisSchedule {
 public:
  /// An analysis looks at so many of the latest events, and again when a sixteenth of them is new: the lock
  /// comes at most a quarter of an iteration late once four are there, and the work is some 30 looks an
  /// event.
  static constexpr std::array<std::uint64_t, 8> kDepths = {1u << 6,  1u << 8,  1u << 10, 1u << 12,
                                                           1u << 14, 1u << 16, 1u << 18, 1u << 20};
  static constexpr std::uint64_t kDueShare = 16;
  /// While there is a lock, only a better one is looked for.
  static constexpr std::uint64_t kLockedDueShare = 2;

  /// Analyses pause once they have visited so many events, until the next call.
  void allow(std::int64_t visits) { allowed_ = visits; }

  /// An event has come.
  void count_event() { credit_ = std::min(credit_ + kCreditPerEvent, kFirstCredit); }
  /// Whether to look at the latest kDepths[i] of `total` events now, where a `share`th of them is to be new.
  /// To be asked of each event and depth, with charge() after each yes.
  bool is_due(std::size_t i, std::uint64_t total, std::uint64_t share) {
    shares_[i] = std::min<std::int64_t>(shares_[i] + kShareOfDepth, 0);
    scarce_ = credit_ <= 0;
    const std::uint64_t fresh = std::max<std::uint64_t>(kDepths[i] / share, 4);
    if (total - analysed_at_[i] < fresh || (scarce_ && shares_[i] != 0) || allowed_ <= 0) return false;
    analysed_at_[i] = total;
    return true;
  }
  /// Whether the analysis that is_due() said yes to should take fewer pivots.
  bool is_scarce() const { return scarce_; }
  void charge(std::size_t i, std::int64_t visits) {
    allowed_ -= visits;
    (scarce_ ? shares_[i] : credit_) -= visits;
  }

 private:
  // So many looks at first, which covers the search in nearly all programs, and so many more with every
  // event.
  static constexpr std::int64_t kFirstCredit = 100'000'000;
  static constexpr std::int64_t kCreditPerEvent = 32;
  // When that is used up, each depth has a share of its own, or the small ones, which are due more often,
  // would leave nothing to the others.
  static constexpr std::int64_t kShareOfDepth = 7;

  std::int64_t credit_ = kFirstCredit;
  std::int64_t allowed_ = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, kDepths.size()> shares_{};  // at most 0
  std::array<std::uint64_t, kDepths.size()> analysed_at_{};
  bool scarce_ = false;
};

}  // namespace inject
