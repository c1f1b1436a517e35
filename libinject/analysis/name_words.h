// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <span>
#include <string_view>

namespace inject {

/// Whether all of the words (separated by spaces, case counts) occur in the name. After ^ a word begins with
/// no letter before it ("^lamb" is not in "flamb"), before $ it ends with no small letter behind it ("lamb$"
/// is not in "lambda").
bool name_has_words(std::string_view name, std::string_view words) noexcept;

/// The first rule all of whose `words` occur in the name; null if there is none.
template <class Rule>
const Rule* first_match(std::span<const Rule> rules, std::string_view name) {
  for (const Rule& rule : rules) {
    if (name_has_words(name, rule.words)) return &rule;
  }
  return nullptr;
}

}  // namespace inject
