// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "libinject/base/format.h"

namespace inject {

std::string quoted(std::string_view text) {
  constexpr std::size_t kMax = 80;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "'";
  for (const char c : text) {
    if (result.size() > kMax) {
      result += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      result += "\\x";
      result += kHex[byte >> 4];
      result += kHex[byte & 15];
    }
  }
  return result + "'";
}

std::string error_text(int code) {
  std::array<char, 128> text;
  return strerror_r(code, text.data(), text.size());
}

std::string one_line(std::string_view text, std::size_t longest) {
  std::string line(text.substr(0, longest));
  unsigned char before = 0;
  for (char& c : line) {
    const auto byte = static_cast<unsigned char>(c);
    // The second range is the UTF-8 encoding of the control characters from 0x80 on.
    if (byte < 0x20 || byte == 0x7f || (before == 0xc2 && byte < 0xa0)) c = '?';
    before = byte;
  }
  if (text.size() > longest) line += "...";
  return line;
}

std::string in_ms(std::uint64_t nanoseconds) {
  return str_format("{:.3f} ms", static_cast<double>(nanoseconds) / 1e6);
}

bool glob_matches(std::string_view pattern, std::string_view text) noexcept {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0;
  std::size_t t = 0;
  // The latest `*`, and how much of the text it matches: only the latest ever has to match more.
  std::size_t star = kNone;
  std::size_t after_star = 0;
  const auto character_end = [text](std::size_t at) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    return at;
  };
  for (;;) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
      continue;
    }
    if (p < pattern.size() && t < text.size()) {
      if (pattern[p] == '?') {
        ++p;
        t = character_end(t);
        continue;
      }
      const bool escaped = pattern[p] == '\\' && p + 1 < pattern.size() &&
                           std::string_view("*?\\").find(pattern[p + 1]) != kNone;
      const std::size_t literal = escaped ? p + 1 : p;
      if (pattern[literal] == text[t]) {
        p = literal + 1;
        ++t;
        continue;
      }
    } else if (p == pattern.size() && t == text.size()) {
      return true;
    }
    if (star == kNone || after_star == text.size()) return false;
    p = star + 1;
    t = ++after_star;
  }
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace inject
