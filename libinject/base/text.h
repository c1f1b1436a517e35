// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace inject {

/// `text` in single quotes for a message of one line: control characters and bytes that are not ASCII as
/// \xNN, cut after 80 characters.
std::string quoted(std::string_view text);

/// `text` for a line of its own: control characters as ?, cut after `longest` bytes.
std::string one_line(std::string_view text, std::size_t longest);

/// `12.345 ms`.
std::string in_ms(std::uint64_t nanoseconds);

/// Whether `pattern` stands for all of `text`: `*` for any characters, `?` for one (of UTF-8), a backslash
/// before `*`, `?` or a backslash for that character itself.
bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

/// Number of inserted, deleted, replaced or swapped neighbouring characters that turn one text into the
/// other.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace inject
