// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Figures and names in human-readable form, for the summary and the evidence for a verdict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace inject {

/// Nanoseconds in a suitable unit: `999ns`, `21.040ms`.
std::string time_text(double nanoseconds);
/// Bytes in a suitable unit, powers of 1000: `512B`, `3.400MB`.
std::string size_text(double bytes);
/// Operations in a suitable unit: `1.240 TFLOP`.
std::string flops_text(double flops);
/// `12.3%`.
std::string percent_text(double value);
/// `12.3%`; 0 if the whole is 0.
std::string share_text(std::uint64_t part, std::uint64_t whole);
/// `19.0% (15.2 to 23.4)`: shares, 0 … 1.
std::string bounded_share_text(double share, double low, double high);
/// `1 copy`, `2 copies`, `3 memsets`, `4 launches`.
std::string plural(std::uint64_t count, std::string_view noun);

/// Control characters become `?`, bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view text);
/// The longest prefix of `text`, valid UTF-8, that fits into this many columns; wide characters take two.
std::string_view beginning(std::string_view text, std::size_t columns);
/// `name`, printable, in at most `columns` columns: if too long, without its return type and arguments, and
/// if still too long, with the middle left out.
std::string shortened(std::string_view name, std::size_t columns);

}  // namespace inject
