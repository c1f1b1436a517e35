// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace inject {

/// Decides when the search for iterations analyses the latest events again, how many of them, and how many
/// event visits (about 2 ns each) that may cost.
class AnalysisSchedule {
 public:
  /// An analysis covers this many of the latest events, and is repeated when a sixteenth of them is new: the
  /// lock comes at most a quarter of an iteration late once four iterations are there, and the cost is about
  /// 30 visits per event.
  static constexpr std::array<std::uint64_t, 8> kDepths = {1u << 6,  1u << 8,  1u << 10, 1u << 12,
                                                           1u << 14, 1u << 16, 1u << 18, 1u << 20};
  static constexpr std::uint64_t kDueShare = 16;
  /// While there is a lock, only a better one is searched for.
  static constexpr std::uint64_t kLockedDueShare = 2;

  /// Limits the events that analyses may visit until the next call; beyond that they pause.
  void allow(std::int64_t visits) { allowed_ = visits; }

  /// An event has arrived.
  void count_event() { credit_ = std::min(credit_ + kCreditPerEvent, kFirstCredit); }
  /// Whether to analyse the latest kDepths[i] of `total` events now, which requires that a `share`th of them
  /// is new. To be called for each event and depth, followed by charge() whenever it returns true.
  bool is_due(std::size_t i, std::uint64_t total, std::uint64_t share) {
    shares_[i] = std::min<std::int64_t>(shares_[i] + kShareOfDepth, 0);
    scarce_ = credit_ <= 0;
    const std::uint64_t fresh = std::max<std::uint64_t>(kDepths[i] / share, 4);
    if (total - analysed_at_[i] < fresh || (scarce_ && shares_[i] != 0) || allowed_ <= 0) return false;
    analysed_at_[i] = total;
    return true;
  }
  /// Whether the analysis just permitted by is_due() should try fewer pivots.
  bool is_scarce() const { return scarce_; }
  void charge(std::size_t i, std::int64_t visits) {
    allowed_ -= visits;
    (scarce_ ? shares_[i] : credit_) -= visits;
  }

 private:
  // This many visits are granted at first, which covers the search in nearly all programs, and this many more
  // per event.
  static constexpr std::int64_t kFirstCredit = 100'000'000;
  static constexpr std::int64_t kCreditPerEvent = 32;
  // Once those are used up, each depth has its own share; otherwise the small ones, which are due more often,
  // would leave nothing to the others.
  static constexpr std::int64_t kShareOfDepth = 7;

  std::int64_t credit_ = kFirstCredit;
  std::int64_t allowed_ = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, kDepths.size()> shares_{};  // at most 0
  std::array<std::uint64_t, kDepths.size()> analysed_at_{};
  bool scarce_ = false;
};

}  // namespace inject
