// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <span>
#include <string_view>

namespace inject {

/// Whether all of the words (separated by spaces, case-sensitive) occur in the name. A word that begins with
/// ^ must not follow a letter ("^lamb" is not in "flamb"); one that ends with $ must not be followed by a
/// lower-case letter ("lamb$" is not in "lambda").
bool name_has_words(std::string_view name, std::string_view words) noexcept;

/// The first rule whose `words` all occur in the name; null if there is none.
template <class Rule>
const Rule* first_match(std::span<const Rule> rules, std::string_view name) {
  for (const Rule& rule : rules) {
    if (name_has_words(name, rule.words)) return &rule;
  }
  return nullptr;
}

}  // namespace inject
