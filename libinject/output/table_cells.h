// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the tables' writers have in common.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libinject/output/csv.h"
#include "libinject/stats/run_info.h"

namespace inject {

/// 0 of nothing.
inline double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

/// 10^6 bytes each.
inline double megabytes(double bytes) {
  return bytes / 1e6;
}
inline double megabytes(std::uint64_t bytes) {
  return megabytes(static_cast<double>(bytes));
}

/// Times in the tables count from the base, in nanoseconds; what lies before it is negative.
inline std::int64_t since_base(Nanoseconds time, const RunInfo& run) {
  return static_cast<std::int64_t>(time - run.base);
}

inline void empty_cells(CsvRow& row, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) row.empty();
}

}  // namespace inject
