// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "libinject/stats/key_index.h"
#include "libinject/stats/statistics.h"
#include "libinject/stats/table_rows.h"

namespace inject {

/// Kernels by name, by launch shape, by all details of a launch, and by thread.
class KernelTables {
 public:
  explicit KernelTables(SampleBudget& budget) : budget_(&budget) {}

  /// Returns the number of the row of its details.
  std::uint32_t add(const KernelEvent& event, std::uint64_t duration);

  std::vector<TimeRow> kernels(const NameTable& names) const;
  std::vector<ShapeRow> shapes(const NameTable& names) const;
  /// `cores` returns whether kernels of that name use tensor cores.
  std::vector<DetailRow> details(const NameTable& names,
                                 const std::function<TensorCores(std::uint32_t name)>& cores) const;
  /// `measured`: the rows of a KernelMetrics that uses the same row numbers.
  std::vector<KernelMetricRow> with_details(std::vector<KernelMetricEntry> measured,
                                            const NameTable& names) const;
  std::vector<ThreadRow> threads() const;

 private:
  struct DetailEntry {
    std::uint32_t shape = 0;  // its row in shapes_
    Totals time;
  };

  SampleStats& kernel_row(std::uint32_t name);

  SampleBudget* budget_;
  // Kernels by name: names are small integers, so the row is found without hashing.
  std::vector<std::uint32_t> kernel_of_name_;
  std::vector<std::uint32_t> kernel_names_;
  Rows<SampleStats> kernels_{SampleStats(budget_)};

  // name, grid, block
  KeyIndex<7> shape_keys_{Statistics::kMaxRows};
  Rows<SampleStats> shapes_{SampleStats(budget_)};

  // name, grid, block, device, registers, static and dynamic shared memory, local memory
  KeyIndex<12> detail_keys_{Statistics::kMaxRows};
  Rows<DetailEntry> details_{{}};

  // thread, device
  KeyIndex<2> thread_keys_{Statistics::kMaxRows};
  Rows<SampleStats> threads_{SampleStats(budget_)};
};

}  // namespace inject
