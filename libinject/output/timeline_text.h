// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the timeline's events share with its beginning and end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/base/json_text.h"
#include "libinject/base/time.h"
#include "libinject/output/event_text.h"

namespace inject::timeline {

// A run's device numbers stay small; a number from a damaged record must not cost memory.
inline constexpr std::uint32_t kMaxDevices = 1u << 10;
// Linux pids and tids do not exceed 2^22. As with Kineto, devices are shown as processes whose pids are the
// device numbers; a program whose own pid is that small, as in a container, gets another one.
inline constexpr std::uint64_t kOtherPid = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kWindowRow = kOtherPid + 1;
inline constexpr std::uint64_t kIterationRow = kOtherPid + 2;
// From here on, kPlaceRows for each thread.
inline constexpr std::uint64_t kFirstPlaceRow = kOtherPid + 16;
// A name fits into an event even when escaped, which makes it at most six times as long.
inline constexpr std::size_t kMaxNameLength = 16 * 1024;
static_assert(6 * kMaxNameLength + 4096 < EventText::kMaxEvent);

/// In quotes, and truncated if it is too long.
inline std::string quoted_text(std::string_view text) {
  std::string quoted;
  if (text.size() < kMaxNameLength) {
    append_json_string(quoted, text);
  } else {
    // Not with +, for which GCC 12 gives a false warning (-Warray-bounds) if much is inlined.
    std::string cut(text.substr(0, kMaxNameLength - 3));
    append_json_string(quoted, cut.append("..."));
  }
  return quoted;
}

inline std::uint64_t length(Nanoseconds begin, Nanoseconds end) {
  return end > begin ? end - begin : 0;
}

}  // namespace inject::timeline
