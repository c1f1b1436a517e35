// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/fetch_times.h"

#include <algorithm>

namespace inject {

namespace {

constexpr Nanoseconds kNotOver = ~Nanoseconds{0};

}  // namespace

bool add_fetch(std::vector<HostFetch>& fetches, HostFetch fetch) {
  if (fetch.end == 0) fetch.end = kNotOver;
  if (fetch.end < fetch.begin) return false;
  if (!fetches.empty()) {
    HostFetch& latest = fetches.back();
    if (latest.begin == fetch.begin) {
      latest = fetch;
      return false;
    }
    if (fetch.begin < latest.begin) return false;
    // The record of its end did not fit: how much of the time was one fetch is unknown.
    if (latest.end == kNotOver) latest.end = latest.begin;
    if (fetch.begin < latest.end) return false;
  }
  fetches.push_back(fetch);
  return true;
}

FetchTimes fetch_times(std::span<const HostFetch> fetches, Nanoseconds begin, Nanoseconds end) {
  FetchTimes times{};
  auto fetch = std::upper_bound(fetches.begin(), fetches.end(), begin,
                                [](Nanoseconds time, const HostFetch& one) { return time < one.end; });
  for (; fetch != fetches.end() && fetch->begin < end; ++fetch)
    times[static_cast<std::size_t>(fetch->kind)] += std::min(fetch->end, end) - std::max(fetch->begin, begin);
  return times;
}

}  // namespace inject
