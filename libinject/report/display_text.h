// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Figures and names as people read them: in the summary, and in the evidence for a verdict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace inject {

/// Nanoseconds in the unit that suits: `999ns`, `21.040ms`.
std::string time_text(double nanoseconds);
/// Bytes in the unit that suits, powers of 1000: `512B`, `3.400MB`.
std::string size_text(double bytes);
/// `12.3%`.
std::string percent_text(double value);
/// `12.3%` of the whole; 0 of nothing.
std::string share_text(std::uint64_t part, std::uint64_t whole);
/// `1 copy`, `2 copies`, `3 memsets`, `4 launches`.
std::string plural(std::uint64_t count, std::string_view noun);

/// Control characters become `?`, bytes that are not UTF-8 U+FFFD.
std::string printable(std::string_view text);
/// The longest beginning of `text`, valid UTF-8, that fits into so many columns; wide characters take two.
std::string_view beginning(std::string_view text, std::size_t columns);
/// `name`, printable, in at most `columns` columns: first without its return type and arguments, then with
/// the middle left out.
std::string shortened(std::string_view name, std::size_t columns);

}  // namespace inject
