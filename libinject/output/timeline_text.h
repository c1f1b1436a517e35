// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the timeline's events and its beginning and end have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/base/json_text.h"
#include "libinject/model/records.h"
#include "libinject/output/event_text.h"

namespace inject::timeline {

// A number that a run gives to its devices stays small; a damaged record must not cost memory.
inline constexpr std::uint32_t kMaxDevices = 1u << 10;
// Linux numbers no process and no thread above 2^22. Devices are processes by their own numbers, as with
// Kineto, so that a program with such a small number, as in a container, gets another one.
inline constexpr std::uint64_t kOtherPid = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kWindowRow = kOtherPid + 1;
inline constexpr std::uint64_t kIterationRow = kOtherPid + 2;
// Escaped, that is six times as long at most, a name fits into an event.
inline constexpr std::size_t kMaxNameLength = 16 * 1024;
static_assert(6 * kMaxNameLength + 4096 < EventText::kMaxEvent);

/// In quotes, and cut where it is too long.
inline std::string quoted_text(std::string_view text) {
  std::string quoted;
  if (text.size() < kMaxNameLength) {
    append_json_string(quoted, text);
  } else {
    append_json_string(quoted, std::string(text.substr(0, kMaxNameLength - 3)) + "...");
  }
  return quoted;
}

inline std::uint64_t length(Nanoseconds begin, Nanoseconds end) {
  return end > begin ? end - begin : 0;
}

}  // namespace inject::timeline
