// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace inject {

/// `text` in single quotes for a message of one line: control characters and bytes that are not ASCII as
/// \xNN, truncated after 80 characters.
std::string quoted(std::string_view text);

/// An error number's description.
std::string error_text(int code);

/// `text` as a single line: control characters as ?, truncated after `longest` bytes.
std::string one_line(std::string_view text, std::size_t longest);

/// Parses all of `text` as a number.
template <typename Number>
bool read_number(std::string_view text, Number& number) noexcept {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && end == text.data() + text.size();
}

/// `12.345 ms`.
std::string in_ms(std::uint64_t nanoseconds);

/// True if `pattern` matches all of `text`: `*` matches any characters, `?` one (of UTF-8), a backslash
/// before `*`, `?` or a backslash that character itself.
bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

/// Number of insertions, deletions, replacements or swaps of adjacent characters that turn one text into the
/// other.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace inject
