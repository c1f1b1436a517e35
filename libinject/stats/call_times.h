// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <vector>

#include "libinject/stats/key_index.h"
#include "libinject/stats/statistics.h"
#include "libinject/stats/table_rows.h"

namespace inject {

/// Host time in the calls of each function.
class ApiTable {
 public:
  explicit ApiTable(SampleBudget& budget) : budget_(&budget) {}

  void add(FunctionId function, std::uint64_t duration) {
    rows_.at(keys_.find_or_add({function}), budget_).add(duration);
  }
  std::vector<TimeRow> rows() const;

 private:
  SampleBudget* budget_;
  KeyIndex<1> keys_{Statistics::kMaxRows};
  Rows<SampleStats> rows_{SampleStats(budget_)};
};

/// The event's operation, the number that direction_name() takes.
std::uint32_t operation_of(const TransferEvent& event);

/// Times and sizes of copies and memsets by operation.
class OperationTable {
 public:
  explicit OperationTable(SampleBudget& budget);

  void add(std::uint32_t operation, std::uint64_t duration, std::uint64_t bytes);
  std::vector<TimeRow> times() const;
  std::vector<TimeRow> sizes() const;

 private:
  std::vector<SampleStats> times_;
  std::vector<SampleStats> sizes_;
};

}  // namespace inject
