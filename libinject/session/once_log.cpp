// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/once_log.h"

#include <array>
#include <cstdio>

#include "libinject/base/log.h"

namespace inject {

void OnceLog::no_memory_for(const char* lost) noexcept {
  std::array<char, 128> line;
  std::snprintf(line.data(), line.size(), "%s: out of memory", lost);
  if (first(Topic::kNoMemory)) Log::error(line.data());
}

}  // namespace inject
