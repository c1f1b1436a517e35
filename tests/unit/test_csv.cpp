// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/csv.h"

#include <clocale>
#include <limits>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

std::string field(std::string_view text) {
  std::string out;
  CsvRow(out).text(text);
  return out;
}

std::string utf8(std::string_view text) {
  std::string out;
  append_utf8(out, text);
  return out;
}

std::string decimal(double value, int decimals) {
  std::string out;
  append_decimal(out, value, decimals);
  return out;
}

const std::string kReplacement = "\xef\xbf\xbd";

}  // namespace

TEST_CASE("Fields are quoted where RFC 4180 asks for it", "[output]") {
  CHECK(field("plain") == "plain");
  CHECK(field("") == "");
  CHECK(field(" spaces ") == " spaces ");
  CHECK(field("burn(float*, int)") == "\"burn(float*, int)\"");
  CHECK(field("say \"hi\"") == "\"say \"\"hi\"\"\"");
  CHECK(field("\"") == "\"\"\"\"");
  CHECK(field("two\nlines") == "\"two\nlines\"");
  CHECK(field("cr\r") == "\"cr\r\"");
  CHECK(field("a,\"\xff\"") == "\"a,\"\"" + kReplacement + "\"\"\"");
}

TEST_CASE("No field is a formula to a spreadsheet", "[output]") {
  CHECK(field("=1+1") == "\"'=1+1\"");
  CHECK(field("+1") == "\"'+1\"");
  CHECK(field("-1") == "\"'-1\"");
  CHECK(field("@SUM(A1)") == "\"'@SUM(A1)\"");
  CHECK(field("\t=1") == "\"'\t=1\"");
  CHECK(field("\r=1") == "\"'\r=1\"");
  CHECK(field("\n=1") == "\"'\n=1\"");
  // A text that begins with an apostrophe gets another one.
  CHECK(field("'=1+1") == "\"''=1+1\"");
  CHECK(field("''=1+1") == "\"'''=1+1\"");
  CHECK(field("'quoted'") == "'quoted'");
  CHECK(field("''") == "''");
  CHECK(field("=HYPERLINK(\"http://x\",\"y\")") == "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\"");
  // Within a name these characters are harmless, and numbers remain numbers.
  CHECK(field("a=b") == "a=b");
  CHECK(field(":-step") == ":-step");
  CHECK(field("[CUDA memset]") == "[CUDA memset]");
  CHECK(field("operator-(int)") == "operator-(int)");
  std::string out;
  CsvRow(out).number(-5).decimal(-0.5, 1);
  CHECK(out == "-5,-0.5");
}

TEST_CASE("Control characters do not come through", "[output]") {
  CHECK(field("a\x1b[2Jb") == "a" + kReplacement + "[2Jb");
  CHECK(field(std::string_view("a\0b", 3)) == "a" + kReplacement + "b");
  CHECK(field("\x7f\x01") == kReplacement + kReplacement);
  CHECK(field("\xc2\x9b"
              "31m") == kReplacement + "31m");
  CHECK(field("\xc2\xa0") == "\xc2\xa0");
  CHECK(field("\xc2") == kReplacement);
  CHECK(field("a\tb") == "a\tb");
  CHECK(field("a,\x1b\"") == "\"a," + kReplacement + "\"\"\"");
}

TEST_CASE("A long text is cut, and shows it", "[output]") {
  const std::string longest(CsvRow::kMaxTextLength - 1, 'x');
  CHECK(field(longest) == longest);
  CHECK(field(longest + "y") == longest.substr(2) + "...");
  CHECK(field(std::string(1 << 20, 'x')).size() == CsvRow::kMaxTextLength);
  std::string wide = "x";
  while (wide.size() < CsvRow::kMaxTextLength) wide += "ä";
  CHECK(field(wide) == wide.substr(0, CsvRow::kMaxTextLength - 3) + "...");
  wide.insert(0, "y");
  CHECK(field(wide) == wide.substr(0, CsvRow::kMaxTextLength - 4) + "...");
}

TEST_CASE("Rows", "[output]") {
  std::string out;
  CsvRow row(out);
  row.number(1).text("a,b").decimal(2.25, 1).empty().number(std::int64_t{-5}).raw("x,y").end();
  row.empty().empty().end();
  row.number(std::numeric_limits<std::uint64_t>::max()).end();
  CHECK(out == "1,\"a,b\",2.2,,-5,x,y\n,\n18446744073709551615\n");
}

TEST_CASE("Decimals have a point in every locale and no other form", "[output]") {
  CHECK(decimal(0, 1) == "0.0");
  CHECK(decimal(1227, 1) == "1227.0");
  CHECK(decimal(176.4851, 1) == "176.5");
  CHECK(decimal(0.0004, 3) == "0.000");
  CHECK(decimal(1e21, 1) == "1000000000000000000000.0");
  CHECK(decimal(std::numeric_limits<double>::max(), 3).size() == 313);
  CHECK(decimal(std::numeric_limits<double>::infinity(), 1).empty());
  CHECK(decimal(std::numeric_limits<double>::quiet_NaN(), 1).empty());
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"}) {
    if (std::setlocale(LC_NUMERIC, name) != nullptr) CHECK(decimal(1.5, 1) == "1.5");
  }
  std::setlocale(LC_NUMERIC, before.c_str());
}

TEST_CASE("Bytes that are not UTF-8 are replaced one by one", "[output]") {
  CHECK(utf8("äß€😀") == "äß€😀");
  CHECK(utf8("a\xff"
             "b") == "a" + kReplacement + "b");
  CHECK(utf8("\xc3") == kReplacement);                     // truncated
  CHECK(utf8("\xe2\x82") == kReplacement + kReplacement);  // truncated
  CHECK(utf8("\xc0\xaf") == kReplacement + kReplacement);  // overlong
  CHECK(utf8("\xe0\x80\x80") == kReplacement + kReplacement + kReplacement);
  CHECK(utf8("\xed\xa0\x80") == kReplacement + kReplacement + kReplacement);  // surrogate
  CHECK(utf8("\xf4\x90\x80\x80").size() == 12);                               // beyond U+10FFFF
  CHECK(utf8("\xf0\x80\x80\x80").size() == 12);                               // overlong
  CHECK(utf8("\x80") == kReplacement);
  CHECK(utf8(std::string_view("a\0b", 3)) == std::string_view("a\0b", 3));
}
