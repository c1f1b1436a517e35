// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/range_phases.h"

#include <bit>
#include <cstddef>

#include "libinject/stats/range_tables.h"

namespace inject {

Phase RangePhases::of(std::uint32_t node) {
  if (node == 0) return Phase::kOther;
  if (node >= known_.size()) known_.resize(std::bit_ceil(std::size_t{node} + 1), 0);
  if (known_[node] == 0) {
    Phase phase = Phase::kOther;
    std::uint32_t id = node;
    for (std::size_t depth = 0; id != 0 && depth < kMaxRangeNesting && phase == Phase::kOther; ++depth) {
      const RangeTree::Node entry = tree_->node(id);
      phase = phase_of_range(names_->name(entry.name));
      if (entry.parent >= id) break;  // as in RangeTables::ranges_around()
      id = entry.parent;
    }
    known_[node] = static_cast<std::uint8_t>(static_cast<unsigned>(phase) + 1);
  }
  return static_cast<Phase>(known_[node] - 1);
}

}  // namespace inject
