// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libinject/stats/call_shapes.h"
#include "libinject/stats/overlap.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Collectives' kernels by the shape of their call, and what ran at the same time.
class CollectiveTable {
 public:
  /// Announces calls that may launch collectives. Until then, other kernels and copies are not kept.
  void expect() { overlap_.expect_work(); }
  void add(const KernelEvent& event, bool collective, std::uint64_t duration);
  void settle(std::uint32_t window) { overlap_.settle_window(window); }
  /// Device work of that window has no record: its collectives are not judged for overlap.
  void lost_work(std::uint32_t window) { overlap_.lost_work(window); }

  /// `calls`: those of all libraries.
  std::vector<CollectiveRow> rows(std::span<const CallShapeRow> calls, const NameTable& names) const;
  std::uint64_t late() const { return overlap_.late(); }

 private:
  OverlapStatistics overlap_;  // rows are shapes, 0 for those without one
  Totals unknown_;             // of kernels that belong to no known call
  std::vector<KernelShare> unknown_names_;
};

}  // namespace inject
