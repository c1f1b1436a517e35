// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A program's launches as text, for tests of the iteration search.
#pragma once

#include <cstdint>
#include <string_view>

#include "libinject/iterations/sign_history.h"
#include "libinject/record/launch_sign.h"

namespace inject {

inline constexpr Nanoseconds kLetterTime = 10'000;

/// Identifies a letter's events.
constexpr std::uint64_t letter_hash(char letter) {
  return static_cast<std::uint64_t>(letter) * 1001;
}

/// `d`: a copy to the device; `h`: to the host; `s`: a synchronization; any other letter: a kernel.
inline LaunchSign letter_sign(char letter, Nanoseconds time) {
  LaunchSign sign;
  sign.kind = letter == 'd'   ? SignKind::kCopyToDevice
              : letter == 'h' ? SignKind::kCopyToHost
              : letter == 's' ? SignKind::kSync
                              : SignKind::kKernel;
  sign.function = letter_hash(letter);
  sign.shape = sign.function + 1;
  sign.time = time;
  return sign;
}

/// One event per letter, kLetterTime apart; position p has the time (p + 1) * kLetterTime.
inline void add_letters(SignHistory& history, std::string_view letters) {
  for (const char letter : letters) history.add(letter_sign(letter, (history.total() + 1) * kLetterTime));
}

}  // namespace inject
