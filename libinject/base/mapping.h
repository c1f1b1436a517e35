// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace inject {

/// Address space that is left to the program if it is limited (RLIMIT_AS).
inline constexpr std::size_t kLeftToProgram = std::size_t{32} << 20;

/// Rounds up to the largest page size there is.
inline constexpr std::size_t whole_pages(std::size_t bytes) noexcept {
  return (bytes + 0xFFFF) & ~std::size_t{0xFFFF};
}

/// Anonymous zeroed memory that costs nothing until it is touched; nullptr if there is none to spare.
inline void* map_memory(std::size_t bytes) noexcept {
  const std::size_t length = whole_pages(bytes);
  void* p = mmap(nullptr, length + kLeftToProgram, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  munmap(static_cast<char*>(p) + length, kLeftToProgram);
  return p;
}

inline void unmap_memory(void* p, std::size_t bytes) noexcept {
  if (p != nullptr) munmap(p, whole_pages(bytes));
}

inline constexpr std::uint64_t kHashSeed = 0x9E37'79B9'7F4A'7C15u;

inline constexpr std::uint64_t hash_mix(std::uint64_t x) noexcept {
  x ^= x >> 32;
  x *= 0xD6E8'FEB8'6659'FD93u;
  x ^= x >> 32;
  return x;
}

inline std::uint64_t hash_bytes(std::string_view text) noexcept {
  std::uint64_t h = kHashSeed ^ text.size();
  const char* p = text.data();
  std::size_t n = text.size();
  for (; n >= 8; p += 8, n -= 8) {
    std::uint64_t word;
    __builtin_memcpy(&word, p, 8);
    h = hash_mix(h ^ word) * kHashSeed;
  }
  std::uint64_t tail = 0;
  __builtin_memcpy(&tail, p, n);
  return hash_mix(h ^ tail);
}

}  // namespace inject
