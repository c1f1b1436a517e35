// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The functions through which PyTorch's caching allocator reports its memory, as in its library libc10.so
// (c10/core/Allocator.h), including the older one with signed numbers. They count their calls, for
// test_torch_allocator.py.
#include "c10.h"

#include <atomic>

namespace {

std::atomic<std::uint64_t> reports{0};
std::atomic<std::uint64_t> sum{0};

void count(void* address, std::int64_t bytes, std::uint64_t allocated, std::uint64_t reserved,
           c10::Device device) {
  ++reports;
  sum += reinterpret_cast<std::uintptr_t>(address) + static_cast<std::uint64_t>(bytes) + 3 * allocated +
         5 * reserved + 7 * static_cast<std::uint64_t>(device.type) +
         11 * static_cast<std::uint64_t>(device.index);
}

}  // namespace

namespace c10 {

void reportMemoryUsageToProfiler(void* address, std::int64_t bytes, std::size_t allocated,
                                 std::size_t reserved, Device device) {
  count(address, bytes, allocated, reserved, device);
}

void reportMemoryUsageToProfiler(void* address, std::int64_t bytes, std::int64_t allocated,
                                 std::int64_t reserved, Device device) {
  count(address, bytes, static_cast<std::uint64_t>(allocated), static_cast<std::uint64_t>(reserved), device);
}

}  // namespace c10

extern "C" std::uint64_t c10_reports() {
  return reports;
}

extern "C" std::uint64_t c10_sum() {
  return sum;
}
