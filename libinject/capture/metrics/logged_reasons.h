// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace inject {

/// Reasons that have been logged, so that each is logged once. For one thread.
class LoggedReasons {
 public:
  /// Notes a reason. False if it has been logged before.
  bool add(const std::string& reason) {
    if (std::find(logged_.begin(), logged_.end(), reason) != logged_.end()) return false;
    logged_.push_back(reason);
    return true;
  }

 private:
  std::vector<std::string> logged_;
};

}  // namespace inject
