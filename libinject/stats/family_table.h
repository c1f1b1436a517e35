// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/analysis/kernel_class.h"
#include "libinject/stats/key_index.h"
#include "libinject/stats/statistics.h"
#include "libinject/stats/table_rows.h"

namespace inject {

/// The category of a function's calls of that kind: a single function runs all of cuDNN's graphs, whatever
/// they compute.
Category call_category(FunctionId function, ShapeKind kind);

/// The family in which those of a call's kernels that may have computed its products spent the most time;
/// empty if it has no kernels or is a row of several calls.
std::optional<Family> family_of_call(const CallShapeRow& call);

/// Kernels by family. Each name is classified once per category of library calls.
class FamilyTable {
 public:
  explicit FamilyTable(const NameTable& names) : names_(&names) {}

  /// `path`: the library calls around the launch; `kind`: of its call's shape. Returns the kernel's family.
  Family add(const KernelEvent& event, CallChain path, ShapeKind kind, std::uint64_t duration);

  std::vector<FamilyRow> families() const;
  std::vector<KernelFamilyRow> by_name() const;
  /// By kernel name, for the names seen so far.
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
    Totals unshaped;  ///< of kernels launched outside calls of known shape
  };

  const NameTable* names_;
  // kernel name, category of the innermost library call
  KeyIndex<2> keys_{Statistics::kMaxRows};
  Rows<Entry> entries_{{}};
};

}  // namespace inject
