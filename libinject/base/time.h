// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

namespace inject {

/// Durations, and times on CLOCK_MONOTONIC: both of host calls and, through CUPTI's timestamp callback, of
/// device activity.
using Nanoseconds = std::uint64_t;

inline constexpr Nanoseconds kMicrosecond = 1'000;
inline constexpr Nanoseconds kMillisecond = 1'000 * kMicrosecond;
inline constexpr Nanoseconds kSecond = 1'000 * kMillisecond;

}  // namespace inject
