// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/display_text.h"

#include <array>
#include <span>

#include "libinject/base/csv.h"
#include "libinject/base/format.h"

namespace inject {

namespace {

/// A character and its bytes.
struct Character {
  char32_t code = 0;
  std::size_t size = 1;
};

/// `text` is valid UTF-8.
Character character_at(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  auto code = static_cast<char32_t>(lead & (0xffu >> (size + 1)));
  for (std::size_t i = 1; i < size; ++i) code = code << 6 | (byte(i) & 0x3fu);
  return {code, size};
}

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

/// East Asian wide and emoji blocks, roughly: an upper bound is enough here.
std::size_t columns_of(char32_t code) {
  struct Block {
    char32_t first;
    char32_t last;
  };
  constexpr std::array<Block, 9> kWide{{{0x1100, 0x115f},
                                        {0x2e80, 0xa4cf},
                                        {0xac00, 0xd7a3},
                                        {0xf900, 0xfaff},
                                        {0xfe30, 0xfe6f},
                                        {0xff00, 0xff60},
                                        {0xffe0, 0xffe6},
                                        {0x1f300, 0x1faff},
                                        {0x20000, 0x3fffd}}};
  for (const Block& block : kWide) {
    if (code >= block.first && code <= block.last) return 2;
  }
  return 1;
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    columns += columns_of(c.code);
    i += c.size;
  }
  return columns;
}

/// The longest suffix of `text` that fits.
std::string_view ending(std::string_view text, std::size_t columns) {
  std::size_t all = columns_of(text);
  std::size_t begin = 0;
  while (all > columns) {
    const Character c = character_at(text, begin);
    all -= columns_of(c.code);
    begin += c.size;
  }
  return text.substr(begin);
}

/// A C++ function's name without its arguments and return type; template arguments stay.
std::string_view without_signature(std::string_view name) {
  if (name.empty() || name.back() != ')') return name;
  // Go back from the closing parenthesis to the matching one, where the arguments begin.
  std::size_t depth = 0;
  std::size_t open = name.size();
  while (open > 0) {
    --open;
    if (name[open] == ')') ++depth;
    if (name[open] == '(' && --depth == 0) break;
  }
  if (depth != 0 || open == 0) return name;
  name = name.substr(0, open);
  // The return type, which only templates have, ends at a space outside all brackets.
  int brackets = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '<' || c == '(' || c == '{' || c == '[') ++brackets;
    if (c == '>' || c == ')' || c == '}' || c == ']') --brackets;
    if (c == ' ' && brackets == 0) start = i + 1;
  }
  return start < name.size() ? name.substr(start) : name;
}

std::string with_unit(double value, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && value >= 999.9995) {
    value /= 1000;
    ++unit;
  }
  std::string text;
  // Whole numbers of the smallest unit; otherwise as many decimals as six columns hold.
  append_decimal(text, value, unit == 0 ? 0 : value < 100 ? 3 : 2);
  return text.append(units[unit]);
}

}  // namespace

std::string printable(std::string_view name) {
  std::string valid;
  append_utf8(valid, name);
  std::string result;
  for (std::size_t i = 0; i < valid.size();) {
    const Character c = character_at(valid, i);
    if (is_control(c.code)) {
      result += '?';
    } else {
      result.append(valid, i, c.size);
    }
    i += c.size;
  }
  return result;
}

std::string_view beginning(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  while (end < text.size()) {
    const Character c = character_at(text, end);
    if (columns_of(c.code) > columns) break;
    columns -= columns_of(c.code);
    end += c.size;
  }
  return text.substr(0, end);
}

std::string percent_text(double value) {
  std::string text;
  append_decimal(text, value, 1);
  return text + "%";
}

std::string plural(std::uint64_t count, std::string_view noun) {
  if (count == 1) return str_format("1 {}", noun);
  if (noun.ends_with('y')) return str_format("{} {}ies", count, noun.substr(0, noun.size() - 1));
  return str_format("{} {}{}", count, noun, noun.ends_with("ch") ? "es" : "s");
}

std::string time_text(double nanoseconds) {
  constexpr std::array<std::string_view, 4> kUnits{"ns", "us", "ms", "s"};
  return with_unit(nanoseconds, kUnits);
}

std::string bounded_share_text(double share, double low, double high) {
  std::string text = percent_text(100 * share) + " (";
  append_decimal(text, 100 * low, 1);
  text += " to ";
  append_decimal(text, 100 * high, 1);
  return text + ")";
}

std::string share_text(std::uint64_t part, std::uint64_t whole) {
  return percent_text(whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string size_text(double bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  return with_unit(bytes, kUnits);
}

std::string flops_text(double flops) {
  constexpr std::array<std::string_view, 6> kUnits{" FLOP", " kFLOP", " MFLOP", " GFLOP", " TFLOP", " PFLOP"};
  return with_unit(flops, kUnits);
}

std::string shortened(std::string_view name, std::size_t columns) {
  std::string text = printable(name);
  if (columns_of(text) <= columns) return text;
  text = std::string(without_signature(text));
  if (columns_of(text) <= columns) return text;
  constexpr std::string_view kGap = "...";
  if (columns <= kGap.size()) return std::string(beginning(text, columns));
  const std::size_t room = columns - kGap.size();
  std::string result(beginning(text, room - room / 3));
  return result.append(kGap).append(ending(text, room / 3));
}

}  // namespace inject
