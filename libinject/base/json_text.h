// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace inject {

/// Appends `text` as a JSON string, including quotes: control characters are escaped, and what is not UTF-8
/// is replaced.
void append_json_string(std::string& out, std::string_view text);

/// JSON appended to a string, indented by two spaces. The caller opens and closes in order. Written here
/// because common JSON libraries allocate memory even to destroy a document, and end the program if there
/// is none left.
class JsonText {
 public:
  explicit JsonText(std::string& out) : out_(out) {}
  JsonText(const JsonText&) = delete;
  JsonText& operator=(const JsonText&) = delete;

  JsonText& open_object() { return open('{'); }
  JsonText& close_object() { return close('}'); }
  JsonText& open_array() { return open('['); }
  JsonText& close_array() { return close(']'); }

  /// The next value's name; inside objects.
  JsonText& name(std::string_view text);
  JsonText& text(std::string_view value);
  JsonText& null();
  template <std::integral T>
  JsonText& number(T value) {
    separate();
    if constexpr (std::same_as<T, bool>) {
      out_ += value ? "true" : "false";
    } else {
      out_ += std::to_string(value);
    }
    return *this;
  }

  template <std::integral T>
  JsonText& member(std::string_view key, T value) {
    return name(key).number(value);
  }
  JsonText& member(std::string_view key, std::string_view value) { return name(key).text(value); }
  template <typename Texts>
  JsonText& texts(std::string_view key, const Texts& values) {
    name(key).open_array();
    for (const auto& value : values) text(value);
    return close_array();
  }

 private:
  static constexpr std::size_t kMaxDepth = 8;

  JsonText& open(char bracket);
  JsonText& close(char bracket);
  void separate();

  std::string& out_;
  std::size_t depth_ = 0;
  std::array<bool, kMaxDepth> filled_{};  // by depth: it is not empty
  bool named_ = false;                    // a name is waiting for its value
};

}  // namespace inject
