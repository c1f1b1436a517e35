// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/json_reader.h"

#include <limits>

namespace inject {

void JsonReader::skip_space() noexcept {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
    ++at_;
  }
}

bool JsonReader::take(char expected) noexcept {
  if (peek() != expected) return false;
  ++at_;
  return true;
}

std::string_view JsonReader::string() noexcept {
  if (!take('"')) {
    fail();
    return {};
  }
  // By quotes, not letter by letter, because some strings are whole programs.
  const std::size_t begin = at_;
  std::size_t end = begin;
  for (;; ++end) {
    end = text_.find('"', end);
    if (end == text_.npos) {
      fail();
      return {};
    }
    std::size_t escapes = 0;
    while (end - escapes > begin && text_[end - escapes - 1] == '\\') ++escapes;
    if (escapes % 2 == 0) break;
  }
  at_ = end + 1;
  return text_.substr(begin, end - begin);
}

std::int64_t JsonReader::integer() noexcept {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const bool negative = take('-');
  std::int64_t value = 0;
  std::size_t digits = 0;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_, ++digits) {
    const std::int64_t digit = text_[at_] - '0';
    value = value > (kMax - digit) / 10 ? kMax : value * 10 + digit;
  }
  if (digits == 0) {
    fail();
    return 0;
  }
  // The rest of a number: fraction, exponent.
  while (at_ < text_.size() &&
         (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E' || text_[at_] == '+' ||
          text_[at_] == '-' || (text_[at_] >= '0' && text_[at_] <= '9'))) {
    ++at_;
  }
  return negative ? -value : value;
}

bool JsonReader::boolean() noexcept {
  skip_space();
  if (text_.substr(at_, 4) == "true") {
    at_ += 4;
    return true;
  }
  if (text_.substr(at_, 5) == "false") {
    at_ += 5;
    return false;
  }
  fail();
  return false;
}

void JsonReader::skip() noexcept {
  std::size_t depth = 0;
  do {
    switch (peek()) {
      case '\0':
        return fail();
      case '"':
        string();
        break;
      case '{':
      case '[':
        ++depth;
        ++at_;
        break;
      case '}':
      case ']':
        if (depth == 0) return fail();
        --depth;
        ++at_;
        break;
      case ',':
      case ':':
        if (depth == 0) return fail();
        ++at_;
        break;
      default:
        while (at_ < text_.size() && std::string_view(",:]}\" \n\t\r[{").find(text_[at_]) == text_.npos)
          ++at_;
        break;
    }
  } while (depth != 0 && !failed_);
}

}  // namespace inject
