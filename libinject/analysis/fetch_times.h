// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "libinject/model/records.h"

namespace inject {

/// A thread fetches a batch from a data loader.
struct HostFetch {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;  ///< the largest possible value while unknown
  FetchKind kind = FetchKind::kWaiting;
};

/// Time in fetches, by FetchKind.
using FetchTimes = std::array<std::uint64_t, kFetchKinds>;

inline std::uint64_t total(const FetchTimes& times) {
  return times[0] + times[1];
}

/// Adds a thread's latest fetch to its earlier ones, or sets the end of its latest one. `end` 0: it is still
/// in progress. Returns whether a fetch was added.
bool add_fetch(std::vector<HostFetch>& fetches, HostFetch fetch);

/// The time in [begin, end) covered by these fetches of one thread.
FetchTimes fetch_times(std::span<const HostFetch> fetches, Nanoseconds begin, Nanoseconds end);

}  // namespace inject
