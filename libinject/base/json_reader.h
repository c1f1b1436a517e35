// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Reads JSON text in place, front to back: no memory of its own, no exception except its caller's, and the
// reading ends for any text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace inject {

/// A reader positioned before a value. Each function below consumes that value; at one of another kind, or at
/// text that is not JSON, the reader fails: it then consumes nothing more, and returns empty values.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) noexcept : text_(text) {}

  bool failed() const noexcept { return failed_; }

  /// The next value's first character, not consumed: { [ " or that of a number or literal; 0 at the end.
  char peek() noexcept {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  /// Calls `member(key)` before each of an object's values; a value that it does not consume is skipped.
  template <typename Member>
  void object(Member&& member) noexcept(noexcept(member(std::string_view{}))) {
    if (!take('{')) return fail();
    if (take('}')) return;
    do {
      const std::string_view key = string();
      if (!take(':')) return fail();
      const std::size_t before = at_;
      member(key);
      if (at_ == before) skip();
    } while (take(','));
    if (!take('}')) fail();
  }

  /// Calls `element()` before each of an array's values; a value that it does not consume is skipped.
  template <typename Element>
  void array(Element&& element) noexcept(noexcept(element())) {
    if (!take('[')) return fail();
    if (take(']')) return;
    do {
      const std::size_t before = at_;
      element();
      if (at_ == before) skip();
    } while (take(','));
    if (!take(']')) fail();
  }

  /// The text between the quotes; escapes are not decoded.
  std::string_view string() noexcept;
  /// A number's integral part; saturates.
  std::int64_t integer() noexcept;
  bool boolean() noexcept;
  /// Any value, however deeply nested.
  void skip() noexcept;

 private:
  void skip_space() noexcept;
  bool take(char expected) noexcept;
  void fail() noexcept {
    failed_ = true;
    at_ = text_.size();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace inject
