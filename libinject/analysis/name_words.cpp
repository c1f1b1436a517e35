// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/name_words.h"

#include <cstddef>

namespace inject {

namespace {

constexpr bool is_small(char c) {
  return c >= 'a' && c <= 'z';
}
constexpr bool is_letter(char c) {
  return is_small(c) || (c >= 'A' && c <= 'Z');
}

/// `word` may begin with ^ and end with $.
bool has_word(std::string_view name, std::string_view word) {
  const bool begins = word.starts_with('^');
  const bool ends = word.ends_with('$');
  if (begins) word.remove_prefix(1);
  if (ends) word.remove_suffix(1);
  for (std::size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    const std::size_t after = at + word.size();
    if (begins && at != 0 && is_letter(name[at - 1])) continue;
    if (ends && after < name.size() && is_small(name[after])) continue;
    return true;
  }
  return false;
}

}  // namespace

bool name_has_words(std::string_view name, std::string_view words) noexcept {
  while (!words.empty()) {
    const std::size_t end = words.find(' ');
    if (!has_word(name, words.substr(0, end))) return false;
    if (end == std::string_view::npos) break;
    words.remove_prefix(end + 1);
  }
  return true;
}

}  // namespace inject
