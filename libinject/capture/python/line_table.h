// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The tables by which CPython finds an instruction's line. They are read as bytes, of which none outside the
// table is touched, whatever they say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace inject {

/// An instruction's line, or that it has none.
struct PythonLine {
  static constexpr int kNone = 0;
  int line = kNone;
  /// How many instructions the table tells of, in code units of two bytes, if it was read to its end.
  std::uint64_t units = 0;
};

/// Number of the instruction, in code units, of which no table tells.
inline constexpr std::uint64_t kBeyondCode = ~std::uint64_t{0};

/// The line of the code unit `unit`. `pairs`: the table of 3.10 (Objects/lnotab_notes.txt), otherwise that of
/// 3.11 and later (Objects/locations.md). With kBeyondCode the table is read to its end.
PythonLine find_line(std::span<const unsigned char> table, bool pairs, int first_line,
                     std::uint64_t unit) noexcept;

}  // namespace inject
