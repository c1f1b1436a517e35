// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Numbers, times and signals, as a window's text has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace inject {

inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// A whole number; `what` names it in `error`, which says what is wrong where the result is false.
bool parse_count(std::string_view text, std::string_view what, std::uint64_t& value, std::string& error);

/// A time with a unit (ms, s, m, h), decimals allowed, in nanoseconds; 0 needs no unit. Likewise.
bool parse_duration(std::string_view text, std::uint64_t& nanoseconds, std::string& error);
/// In the largest unit that needs no decimals; parse_duration() reads it back.
std::string duration_text(std::uint64_t nanoseconds);

/// A signal that can toggle windows, with or without SIG. Likewise.
bool parse_signal(std::string_view text, int& number, std::string& error);
/// `SIGUSR2`, of such a signal.
std::string signal_name(int number);

}  // namespace inject
