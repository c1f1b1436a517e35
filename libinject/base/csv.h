// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/base/uint128.h"

namespace inject {

/// Appends `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD: readers of CSV and JSON
/// reject a whole file for one such byte, and names come from the program unchecked.
void append_utf8(std::string& out, std::string_view text);

/// Appends a number with a fixed number of decimals, whatever the program's locale. Nothing if it is not
/// finite.
void append_decimal(std::string& out, double value, int decimals);

/// Rows as in RFC 4180, with lines ended by \n as Nsight Systems writes them. A field is quoted if it
/// contains a comma, a quote or a line break. Text comes from the program: text that a spreadsheet would take
/// for a formula, because it begins with = + - @, a tab or a line break, gets an apostrophe in front and is
/// quoted; control characters except tab and line breaks are replaced, like bytes that are not UTF-8; and no
/// text is longer than kMaxTextLength bytes, of which the last three are points if it was truncated.
class CsvRow {
 public:
  explicit CsvRow(std::string& out) : out_(out) {}
  CsvRow(const CsvRow&) = delete;
  CsvRow& operator=(const CsvRow&) = delete;

  /// Maximum length of stored names (NameTable).
  static constexpr std::size_t kMaxTextLength = 16 * 1024;
  CsvRow& text(std::string_view value);
  template <std::integral T>
  CsvRow& number(T value) {
    separate();
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), +value).ptr;
    out_.append(digits.data(), end);
    return *this;
  }
  CsvRow& number(Uint128 value) {
    separate();
    out_ += to_string(value);
    return *this;
  }
  CsvRow& decimal(double value, int decimals);
  /// Text that is quoted already; may contain several fields.
  CsvRow& raw(std::string_view fields) {
    separate();
    out_ += fields;
    return *this;
  }
  CsvRow& empty() {
    separate();
    return *this;
  }
  void end() {
    out_ += '\n';
    first_ = true;
  }

 private:
  static constexpr std::string_view kCutMark = "...";
  void separate() {
    if (!first_) out_ += ',';
    first_ = false;
  }

  std::string& out_;
  bool first_ = true;
};

}  // namespace inject
