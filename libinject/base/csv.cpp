// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/csv.h"

#include <array>
#include <charconv>
#include <cmath>

namespace inject {

namespace {

/// Length of the valid UTF-8 sequence at `position`, 0 if there is none.
std::size_t sequence_length(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t length = 0;
  unsigned char lowest = 0x80;
  unsigned char highest = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) lowest = 0xa0;   // overlong forms
    if (lead == 0xed) highest = 0x9f;  // surrogates
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) lowest = 0x90;
    if (lead == 0xf4) highest = 0x8f;
  } else {
    return 0;
  }
  if (position + length > text.size() || byte(1) < lowest || byte(1) > highest) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return length;
}

/// True if a control character, as terminals know them, begins at `position`: excluding tab and line breaks,
/// which a quoted field may contain.
bool is_control(std::string_view text, std::size_t position) {
  const auto byte = static_cast<unsigned char>(text[position]);
  if (byte == '\t' || byte == '\n' || byte == '\r') return false;
  if (byte < 0x20 || byte == 0x7f) return true;
  // U+0080 to U+009F
  return byte == 0xc2 && position + 1 < text.size() &&
         (static_cast<unsigned char>(text[position + 1]) & 0xe0) == 0x80;
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace

void append_utf8(std::string& out, std::string_view text) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = sequence_length(text, i);
    if (length != 0) {
      i += length;
      continue;
    }
    out.append(text.substr(begin, i - begin));
    out += kReplacement;
    begin = ++i;
  }
  out.append(text.substr(begin));
}

void append_decimal(std::string& out, double value, int decimals) {
  if (!std::isfinite(value)) return;
  // The longest double in fixed notation has 309 digits before the point.
  std::array<char, 352> digits;
  const auto [end, code] =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed, decimals);
  if (code == std::errc()) out.append(digits.data(), end);
}

// In one pass for typical names.
CsvRow& CsvRow::text(std::string_view value) {
  separate();
  const bool cut = value.size() >= kMaxTextLength;
  if (cut) {
    std::size_t length = kMaxTextLength - kCutMark.size();
    while (length > 0 && (static_cast<unsigned char>(value[length]) & 0xc0) == 0x80) --length;
    value = value.substr(0, length);
  }
  // Apostrophes before a formula are part of the text: with one added, it can be read back.
  const std::size_t first = value.find_first_not_of('\'');
  const bool formula = first != std::string_view::npos &&
                       std::string_view("=+-@\t\r\n").find(value[first]) != std::string_view::npos;
  const bool quoted = formula || value.find_first_of(",\"\r\n") != std::string_view::npos;
  if (quoted) out_ += '"';
  if (formula) out_ += '\'';
  std::size_t begin = 0;
  const auto replace = [&](std::size_t at, std::size_t length, std::string_view with) {
    append_utf8(out_, value.substr(begin, at - begin));
    out_ += with;
    begin = at + length;
  };
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] == '"') {
      replace(i, 1, "\"\"");
    } else if (is_control(value, i)) {
      const std::size_t length = value[i] == '\xc2' ? 2 : 1;
      replace(i, length, kReplacement);
      i += length - 1;
    }
  }
  append_utf8(out_, value.substr(begin));
  if (cut) out_ += kCutMark;
  if (quoted) out_ += '"';
  return *this;
}

CsvRow& CsvRow::decimal(double value, int decimals) {
  separate();
  append_decimal(out_, value, decimals);
  return *this;
}

}  // namespace inject
