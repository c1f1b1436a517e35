// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/line_table.h"

namespace inject {

namespace {

// _PyCodeLocationInfoKind (cpython/code.h). Kinds below kOneLine are on the line before.
constexpr unsigned kOneLine = 10;
constexpr unsigned kNoColumns = 13;
constexpr unsigned kLong = 14;
constexpr unsigned kNoLocation = 15;

int line_of_number(std::int64_t line) noexcept {
  return line > 0 && line <= INT32_MAX ? static_cast<int>(line) : PythonLine::kNone;
}

/// Pairs of bytes: the increments of the instruction's offset and of the line.
PythonLine find_in_pairs(std::span<const unsigned char> table, int first_line, std::uint64_t unit) noexcept {
  constexpr int kNoLine = -128;
  std::int64_t line = first_line;
  std::uint64_t end = 0;
  for (std::size_t at = 0; at + 1 < table.size(); at += 2) {
    end += table[at];
    const int step = table[at + 1] < 128 ? table[at + 1] : table[at + 1] - 256;
    if (step != kNoLine) line += step;
    // An entry without instructions only moves the line. Offsets are in bytes here.
    if (unit != kBeyondCode && unit * 2 < end)
      return {.line = step == kNoLine ? PythonLine::kNone : line_of_number(line), .units = 0};
  }
  return {.line = PythonLine::kNone, .units = end / 2};
}

/// The signed number that begins at `at`: six bits per byte, the lowest first, the sign in the lowest bit.
std::int64_t signed_number(std::span<const unsigned char> table, std::size_t at) noexcept {
  constexpr unsigned kContinues = 0x40;
  std::uint64_t value = 0;
  for (unsigned shift = 0; at < table.size() && shift < 36; ++at, shift += 6) {
    value |= std::uint64_t{table[at] & 0x3Fu} << shift;
    if ((table[at] & kContinues) == 0) break;
  }
  const auto magnitude = static_cast<std::int64_t>(value >> 1u);
  return (value & 1u) != 0 ? -magnitude : magnitude;
}

/// Each entry begins with a byte whose top bit is set; its other bytes have it clear.
PythonLine find_in_locations(std::span<const unsigned char> table, int first_line,
                             std::uint64_t unit) noexcept {
  constexpr unsigned kBegins = 0x80;
  std::int64_t line = first_line;
  std::uint64_t end = 0;
  for (std::size_t at = 0; at < table.size();) {
    const unsigned kind = (table[at] >> 3u) & 15u;
    end += (table[at] & 7u) + 1;
    if (kind == kLong || kind == kNoColumns) {
      line += signed_number(table, at + 1);
    } else if (kind >= kOneLine && kind < kNoColumns) {
      line += kind - kOneLine;
    }
    if (unit < end)
      return {.line = kind == kNoLocation ? PythonLine::kNone : line_of_number(line), .units = 0};
    do {
      ++at;
    } while (at < table.size() && (table[at] & kBegins) == 0);
  }
  return {.line = PythonLine::kNone, .units = end};
}

}  // namespace

PythonLine find_line(std::span<const unsigned char> table, bool pairs, int first_line,
                     std::uint64_t unit) noexcept {
  return pairs ? find_in_pairs(table, first_line, unit) : find_in_locations(table, first_line, unit);
}

}  // namespace inject
