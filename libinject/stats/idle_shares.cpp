// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/idle_shares.h"

#include <algorithm>

namespace inject {

void IdleShares::add(const IdleShare& share) {
  const Key key{share.cause, share.function, share.thread, share.own_work};
  const bool room = sums_.size() < kMaxKeys || sums_.count(key) != 0;
  Sum& sum = sums_[room ? key : Key{share.cause, kNoFunction, 0, share.own_work}];
  sum.gaps += share.gaps;
  sum.time += share.time;
}

void IdleShares::merge(const IdleShares& more) {
  for (const auto& [key, sum] : more.sums_) {
    const auto& [cause, function, thread, own_work] = key;
    add({cause, function, thread, own_work, sum.gaps, sum.time});
  }
}

std::vector<IdleShare> IdleShares::largest() const {
  std::vector<IdleShare> result;
  for (const auto& [key, sum] : sums_) {
    const auto& [cause, function, thread, own_work] = key;
    result.push_back({cause, function, thread, own_work, sum.gaps, sum.time});
  }
  std::sort(result.begin(), result.end(),
            [](const IdleShare& a, const IdleShare& b) { return a.time > b.time; });
  if (result.size() > kMaxListed) result.resize(kMaxListed);
  return result;
}

}  // namespace inject
