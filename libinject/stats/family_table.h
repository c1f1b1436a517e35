// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/analysis/kernel_class.h"
#include "libinject/stats/key_index.h"
#include "libinject/stats/statistics.h"
#include "libinject/stats/table_rows.h"

namespace inject {

/// The category of a function's calls of that kind: cuDNN's graphs are run by one function, whatever they
/// compute.
Category call_category(FunctionId function, ShapeKind kind);

/// Kernels by their families: each name in each category of library calls is classified once.
class FamilyTable {
 public:
  explicit FamilyTable(const NameTable& names) : names_(&names) {}

  /// `path` of library calls that launched it; `kind` of its call's shape. Returns its family.
  Family add(const KernelEvent& event, CallChain path, ShapeKind kind, std::uint64_t duration);

  /// `calls`: a call's operations belong to the family in which its kernels spent most.
  std::vector<FamilyRow> families(std::span<const CallShapeRow> calls) const;
  std::vector<KernelFamilyRow> by_name() const;
  /// Of the names that have come.
  std::unordered_map<std::uint32_t, TensorCores> tensor_cores() const;
  std::vector<std::pair<std::string_view, Totals>> unshaped_kernels(Family family) const;
  UnshapedWork unshaped_work(bool (*of)(Family)) const;

 private:
  /// Kernels of one name, launched in one category of library calls.
  struct Entry {
    Family family = Family::kOther;
    TensorCores cores = TensorCores::kUnknown;
    Totals time;
    std::uint64_t attributed = 0;
    Totals unshaped;  ///< of kernels launched in no call whose shape is known
  };

  const NameTable* names_;
  // kernel name, category of the innermost library call
  KeyIndex<2> keys_{Statistics::kMaxRows};
  Rows<Entry> entries_{{}};
};

}  // namespace inject
