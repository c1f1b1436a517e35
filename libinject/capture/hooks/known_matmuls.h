// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// cuBLASLt matmuls whose shapes gemm_arguments.cpp has already queried from the library, by their layouts.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace inject {

struct KnownMatmul {
  std::atomic<std::uint64_t> key{0};
  std::atomic<std::uint32_t> shape{0};  // 0: being queried
};

inline constexpr std::size_t kKnownMatmuls = 8192;
inline constexpr std::size_t kMatmulPage = 4096;  // with larger pages, touched when used
alignas(kMatmulPage) inline constinit std::array<KnownMatmul, kKnownMatmuls> known_matmuls{};

/// Whole pages, to be touched before the program's threads touch them.
inline std::span<std::uint8_t> known_matmul_memory() noexcept {
  static_assert(sizeof known_matmuls % kMatmulPage == 0);
  return {reinterpret_cast<std::uint8_t*>(known_matmuls.data()), sizeof known_matmuls};
}

}  // namespace inject
