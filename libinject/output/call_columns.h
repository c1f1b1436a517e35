// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Rows and columns shared by the tables of library calls by what they compute: gemm_sum.csv and those of
// cuDNN's calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/analysis/shape_text.h"
#include "libinject/output/table_cells.h"
#include "libinject/report/report.h"

namespace inject {

/// The calls of one shape, or kernels whose shape is not known.
struct CallTableRow {
  std::string_view name;                  ///< the function; `[other]`, `[no shape]`, `[no call]`
  const CallReport* call = nullptr;       ///< null if no shape is known
  const CallShapeEntry* entry = nullptr;  ///< null if the kernels were launched in no call
  Totals gpu;                             ///< time of its kernels, per call; without calls, per kernel
  std::uint64_t kernels = 0;
  std::optional<TensorCores> cores;
  std::string kernel_names;
  std::uint64_t total = 0;  ///< GPU time of all rows
  /// For products inside calls that have their own rows elsewhere.
  std::optional<DerivedProducts::Kind> derived;
};

/// A row for kernels without a call.
CallTableRow kernel_row(std::string_view name, const Totals& kernels);
/// A row of products inside other calls.
CallTableRow derived_row(const DerivedProducts& products);
/// Calls of one kind, then kernels without a shape.
std::vector<CallTableRow> call_rows(const Report& report, ShapeKind kind, const UnshapedWork& unshaped = {});
/// Sets the total of each row. Call it once all rows are there.
std::vector<CallTableRow> with_total(std::vector<CallTableRow> rows);

inline constexpr std::string_view kNoShape = "rows in brackets: no single shape is known";

/// For Columns::of(): the shape of a row's calls.
template <typename Shape>
std::optional<Shape> shape_of(const CallTableRow& row) {
  if (row.call == nullptr || row.call->call->shape.kind() != Shape::kKind) return std::nullopt;
  return row.call->call->shape.as<Shape>();
}
/// A cell function for a data type of the shape.
template <typename Shape>
auto data_type(DataType Shape::*member) {
  return [member](const Shape& shape) { return data_type_name(shape.*member); };
}
template <typename Shape>
std::string_view compute_type(const Shape& shape) {
  return compute_type_name(shape.compute);
}
inline constexpr std::string_view kComputeType = "The type used for accumulation.";

/// Adds the column API.
void add_function(Columns<CallTableRow>& columns);
/// Adds the columns Calls to Kernels.
void add_call_columns(Columns<CallTableRow>& columns);
/// Adds the columns FLOPs to Tensor Cores.
void add_rate_columns(Columns<CallTableRow>& columns);
/// Adds the column Eligible.
void add_eligible(Columns<CallTableRow>& columns);
/// Adds the column Hint.
void add_hint(Columns<CallTableRow>& columns);
/// Adds the column Kernel Names.
void add_kernel_names(Columns<CallTableRow>& columns);

}  // namespace inject
