// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string>

namespace inject {

/// For sums that would overflow 64 bits within a day.
__extension__ typedef unsigned __int128 Uint128;

/// In decimal digits.
inline std::string to_string(Uint128 value) {
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value != 0);
  return digits;
}

}  // namespace inject
