// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The tables by which CPython finds an instruction's line. They are read as bytes, and whatever they contain,
// nothing outside the table is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace inject {

/// An instruction's line, or that it has none.
struct PythonLine {
  static constexpr int kNone = 0;
  int line = kNone;
  /// Number of instructions that the table covers, in code units of two bytes, if it was read to its end.
  std::uint64_t units = 0;
};

/// An instruction number, in code units, that no table covers.
inline constexpr std::uint64_t kBeyondCode = ~std::uint64_t{0};

/// The line of the code unit `unit`. `pairs`: the table of 3.10 (Objects/lnotab_notes.txt), otherwise that of
/// 3.11 and later (Objects/locations.md). With kBeyondCode the table is read to its end.
PythonLine find_line(std::span<const unsigned char> table, bool pairs, int first_line,
                     std::uint64_t unit) noexcept;

}  // namespace inject
