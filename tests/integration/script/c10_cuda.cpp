// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Reports like PyTorch's caching allocator, from a library of its own.
#include "c10.h"

extern "C" void c10_report(int type, int index, std::uint64_t allocated, std::uint64_t reserved, int older) {
  const c10::Device device{static_cast<std::int8_t>(type), static_cast<std::int8_t>(index)};
  void* const address = reinterpret_cast<void*>(std::uintptr_t{4096});
  if (older != 0) {
    c10::reportMemoryUsageToProfiler(address, -512, static_cast<std::int64_t>(allocated),
                                     static_cast<std::int64_t>(reserved), device);
  } else {
    c10::reportMemoryUsageToProfiler(address, -512, static_cast<std::size_t>(allocated),
                                     static_cast<std::size_t>(reserved), device);
  }
}
