// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Names of kernels, ranges and threads are the program's: what reads them, and what puts them into a table, a
// message, JSON or a line of the summary.
#include <string>
#include <vector>

#include "libinject/analysis/kernel_class.h"
#include "libinject/base/csv.h"
#include "libinject/base/demangle.h"
#include "libinject/base/json_text.h"
#include "libinject/base/text.h"
#include "libinject/report/display_text.h"
#include "tests/fuzz/fuzz.h"

using namespace inject;

namespace {

/// The fields of RFC 4180's first row; nothing if the text is not one row of it.
std::vector<std::string> csv_fields(std::string_view text) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  bool closed = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        fields.back() += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        fields.back() += c;
        ++i;
      } else {
        quoted = false;
        closed = true;
      }
    } else if (c == ',') {
      fields.emplace_back();
      closed = false;
    } else if (c == '\n') {
      return i + 1 == text.size() ? fields : std::vector<std::string>{};
    } else if (c == '"' && fields.back().empty() && !closed) {
      quoted = true;
    } else if (c == '"' || c == '\r' || closed) {
      return {};
    } else {
      fields.back() += c;
    }
  }
  return {};
}

/// The text of a field as a table has it: what is in it is the name, a formula is not.
void check_field(std::string_view name, std::string_view cell) {
  std::string clean;
  append_utf8(clean, name);
  if (name.size() >= CsvRow::kMaxTextLength) {
    fuzz::require(cell.size() <= 3 * CsvRow::kMaxTextLength && cell.ends_with("..."),
                  "a long name is cut, and shows it");
    return;
  }
  fuzz::require(cell.empty() || std::string_view("=+-@\t\r\n").find(cell[0]) == std::string_view::npos,
                "no field is a formula");
  if (!cell.empty() && cell[0] == '\'' && cell.substr(0, 2) != clean.substr(0, 2)) cell.remove_prefix(1);
  const auto is_plain = [](char c) {
    return (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) || c == '\t' || c == '\r' || c == '\n';
  };
  bool plain = clean.find("\xc2") == std::string::npos;  // U+0080 to U+009F may be there
  for (const char c : clean) plain = plain && is_plain(c);
  for (const char c : cell) fuzz::require(is_plain(c), "no control characters come through");
  if (plain) fuzz::require(cell == clean, "a field is read back");
}

bool is_utf8(std::string_view text) {
  std::string clean;
  append_utf8(clean, text);
  return clean == text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::string first(input.until('\0'));
  const std::string second(input.rest());

  for (const std::string& name : {first, second}) {
    std::string clean;
    append_utf8(clean, name);
    fuzz::require(is_utf8(clean), "what is cleaned is clean");
    const std::string plain = demangle(name);
    fuzz::require(plain.size() <= kMaxDemangledLength || plain == name, "demangled names are bounded");
    family_of(plain);
    tensor_cores_of(plain);
    convolution_algorithm_of(plain);
    const std::string line = one_line(name, 100);
    fuzz::require(fuzz::is_one_line(line) && line.size() <= 100 + 3, "a line is one, and bounded");
    fuzz::require(fuzz::is_one_line(quoted(name)), "a quoted value is one line");
    for (const std::size_t columns : {std::size_t{8}, std::size_t{60}}) {
      const std::string cut = shortened(plain, columns);
      fuzz::require(fuzz::is_one_line(cut) && is_utf8(cut), "a name in the summary is one line of text");
    }
  }

  std::string row;
  CsvRow(row).text(first).text(second).number(7).end();
  const std::vector<std::string> fields = csv_fields(row);
  fuzz::require(fields.size() == 3 && fields[2] == "7" && is_utf8(row), "a row is read back");
  check_field(first, fields[0]);
  check_field(second, fields[1]);

  fuzz::require(glob_matches("*", first), "anything matches *");
  glob_matches(first, second);
  return 0;
}
