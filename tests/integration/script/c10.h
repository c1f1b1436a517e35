// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>

namespace c10 {

struct Device {
  std::int8_t type;
  std::int8_t index;
};

void reportMemoryUsageToProfiler(void* address, std::int64_t bytes, std::size_t allocated,
                                 std::size_t reserved, Device device);
void reportMemoryUsageToProfiler(void* address, std::int64_t bytes, std::int64_t allocated,
                                 std::int64_t reserved, Device device);

}  // namespace c10
