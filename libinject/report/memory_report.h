// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Memory over time, by window and iteration. docs/memory.md has the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "libinject/model/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

struct MemoryTimelineRow {
  std::uint32_t device = 0;  ///< or one of MemoryUse's numbers
  MemoryLine::Of of{};
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  std::uint64_t lowest = 0;
  std::uint64_t highest = 0;
  Nanoseconds highest_at = 0;
  // The window and iteration in which it begins:
  std::uint32_t window = 0;  ///< 0: none
  std::optional<IterationLabel> label;
  std::optional<std::uint64_t> iteration;
};

/// By device, starting with allocated memory, in order of time.
std::vector<MemoryTimelineRow> memory_timeline(const Statistics& statistics, const RunInfo& run,
                                               const std::vector<IterationRow>& iterations);

}  // namespace inject
