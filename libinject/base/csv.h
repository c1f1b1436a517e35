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
/// refuse a whole file for one such byte, and names come from the program as they are.
void append_utf8(std::string& out, std::string_view text);

/// A number with a fixed number of decimals, whatever the program's locale is. Not a finite number: empty.
void append_decimal(std::string& out, double value, int decimals);

/// Rows of RFC 4180, lines ended by \n as Nsight Systems writes them. A field is quoted if it holds a comma,
/// a quote or a line break. Text comes from the program: what a spreadsheet would take for a formula, as it
/// begins with = + - @, a tab or a line break, gets an apostrophe before it and is quoted; control characters
/// but tab and line breaks are replaced, like bytes that are not UTF-8; and no text is longer than
/// kMaxTextLength bytes, of which the last three are points where more has been cut off.
class CsvRow {
 public:
  explicit CsvRow(std::string& out) : out_(out) {}
  CsvRow(const CsvRow&) = delete;
  CsvRow& operator=(const CsvRow&) = delete;

  /// Names are kept up to this length (NameTable).
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
  /// Text that is quoted already; may hold several fields.
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
