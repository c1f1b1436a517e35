// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <vector>

#include "libinject/record/name_table.h"
#include "libinject/record/range_tree.h"
#include "libinject/stats/phases.h"

namespace inject {

/// The program's phases, by its NVTX ranges.
class RangePhases {
 public:
  RangePhases(const NameTable& names, const RangeTree& tree) : names_(&names), tree_(&tree) {}

  /// The phase of the innermost range that names one, from this node of the tree outwards.
  Phase of(std::uint32_t node);

 private:
  const NameTable* names_;
  const RangeTree* tree_;
  std::vector<std::uint8_t> known_;  // by node: 0 not determined, else the phase + 1
};

}  // namespace inject
