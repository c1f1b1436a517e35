// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Numbers, times and signals, as written in INJECT_WINDOW.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace inject {

inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Parses a whole number. On failure, returns false and sets `error`, which refers to the number as `what`.
bool parse_count(std::string_view text, std::string_view what, std::uint64_t& value, std::string& error);

/// Parses a time with a unit (ms, s, m, h), decimals allowed, into nanoseconds; 0 needs no unit. False: see
/// `error`.
bool parse_duration(std::string_view text, std::uint64_t& nanoseconds, std::string& error);
/// The time in the largest unit that needs no decimals; parse_duration() reads it back.
std::string duration_text(std::uint64_t nanoseconds);

/// Parses the name of a signal that can toggle windows, with or without SIG. False: see `error`.
bool parse_signal(std::string_view text, int& number, std::string& error);
/// The name of such a signal, for example `SIGUSR2`.
std::string signal_name(int number);

}  // namespace inject
