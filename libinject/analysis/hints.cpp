// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/hints.h"

namespace inject {

std::string join_hints(const std::vector<Hint>& hints) {
  std::string text;
  for (const Hint& hint : hints) {
    if (!text.empty()) text += "; ";
    text += hint.text;
  }
  return text;
}

}  // namespace inject
