// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "libinject/analysis/idle_time.h"

namespace inject {

/// Idle time caused by one call, or by one thread outside of calls.
struct IdleShare {
  IdleCause cause = IdleCause::kUnknown;
  FunctionId function = kNoFunction;
  std::uint32_t thread = 0;  ///< 0: none
  bool own_work = false;     ///< host computation too long to be preparation for a launch
  std::uint64_t gaps = 0;
  std::uint64_t time = 0;
};

/// Idle time by cause. The first kMaxKeys calls and threads are counted separately, others by cause alone.
class IdleShares {
 public:
  static constexpr std::size_t kMaxKeys = 1024;
  static constexpr std::size_t kMaxListed = 24;

  void add(const IdleShare& share);
  void merge(const IdleShares& more);
  /// By descending time, at most kMaxListed.
  std::vector<IdleShare> largest() const;

 private:
  struct Sum {
    std::uint64_t gaps = 0;
    std::uint64_t time = 0;
  };
  using Key = std::tuple<IdleCause, FunctionId, std::uint32_t, bool>;

  std::map<Key, Sum> sums_;
};

}  // namespace inject
