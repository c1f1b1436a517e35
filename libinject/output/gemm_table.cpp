// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// gemm_sum.csv (docs/gemm.md).
#include <algorithm>
#include <iterator>

#include "libinject/analysis/shape_text.h"
#include "libinject/output/call_columns.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

/// cublasLtEpilogue_t.
std::string epilogue_name(std::uint32_t epilogue) {
  constexpr std::pair<std::uint32_t, std::string_view> kNames[] = {{0, ""},
                                                                   {2, "ReLU"},
                                                                   {4, "bias"},
                                                                   {6, "ReLU bias"},
                                                                   {32, "GELU"},
                                                                   {36, "GELU bias"},
                                                                   {130, "ReLU aux"},
                                                                   {134, "ReLU aux bias"},
                                                                   {160, "GELU aux"},
                                                                   {164, "GELU aux bias"},
                                                                   {136, "dReLU"},
                                                                   {152, "dReLU bias gradient"},
                                                                   {192, "dGELU"},
                                                                   {208, "dGELU bias gradient"},
                                                                   {256, "bias gradient A"},
                                                                   {512, "bias gradient B"}};
  for (const auto& [value, name] : kNames) {
    if (value == epilogue) return std::string(name);
  }
  return std::to_string(epilogue);
}

bool is_derived(const CallTableRow& row) {
  return row.derived.has_value();
}
bool is_derived_product(const CallTableRow& row) {
  return row.derived == DerivedProducts::Kind::kProduct;
}

std::string_view derived_name(const CallTableRow& row) {
  if (!row.derived) return {};
  return is_derived_product(row) ? "product" : "call";
}

/// The kernels' time is that of all of a call's products.
void leave_out_of_derived_rows(Columns<CallTableRow>& columns) {
  columns.leave_out("Host Time (ns)", &is_derived,
                    "`[no shape]`, `[no call]`: no calls are known; derived rows: see rnn_sum.csv");
  for (const std::string_view header : {"GPU Time (%)", "GPU Time (ns)", "GPU Avg (ns)", "Kernels"})
    columns.leave_out(header, &is_derived_product, "derived rows of one size: their kernels are not known");
  for (const std::string_view header : {"GPU Min (ns)", "GPU Max (ns)"})
    columns.leave_out(header, &is_derived, "derived rows");
  columns.leave_out("Eligible", &is_derived, "rows in brackets: no single shape is known; derived rows");
}

Columns<CallTableRow> gemm_columns(const Report&) {
  Columns<CallTableRow> columns;
  add_function(columns);
  columns.add(
      "Derived", kText, &derived_name,
      "Set for products inside calls of rnn_sum.csv, whose sizes are derived from those of the calls "
      "(gemm.md). `call`: all products of such calls together; `product`: those of one size among them.",
      "calls that are matrix products themselves");
  const auto shape = columns.of(shape_of<GemmShape>, kNoShape);
  const auto size = [&columns](std::string header, auto member, std::string_view meaning,
                               std::string_view empty) {
    columns.add(
        std::move(header), kCount,
        [member](const CallTableRow& row) {
          const auto gemm = shape_of<GemmShape>(row);
          if (!gemm) return Cell();
          const bool may_differ = is_derived(row) || gemm->groups > 1;
          return cell_if(!may_differ || (*gemm).*member != 0, (*gemm).*member);
        },
        meaning, empty);
  };
  constexpr std::string_view kNoSize = "rows in brackets; products that differ in it";
  constexpr std::string_view kNoStride = "rows in brackets; groups that differ in it; derived rows";
  const auto operation = [&shape](std::string header, char GemmShape::*member) {
    shape.add(
        std::move(header), kText,
        [member](const GemmShape& gemm) { return std::string(gemm.*member != 0 ? 1 : 0, gemm.*member); },
        "`N`, `T` or `C`.", "rows in brackets; groups that differ in it");
  };
  size("M", &GemmShape::m, "Rows of op(A) and of the result, column-major as in the library (gemm.md).",
       kNoSize);
  size("N", &GemmShape::n, "Columns of op(B) and of the result.", kNoSize);
  size("K", &GemmShape::k, "Columns of op(A), rows of op(B).", kNoSize);
  operation("Op A", &GemmShape::op_a);
  operation("Op B", &GemmShape::op_b);
  shape.add("Type A", kText, data_type(&GemmShape::a), "Element type of A.");
  shape.add("Type B", kText, data_type(&GemmShape::b), "Element type of B.");
  shape.add("Type C", kText, data_type(&GemmShape::d), "Element type of the result.");
  shape.add("Compute Type", kText, compute_type<GemmShape>, kComputeType);
  shape.add("Batch", kCount, &GemmShape::batch, "Products per call; in derived rows, counted individually.");
  shape.add(
      "Groups", kCount, [](const GemmShape& gemm) { return cell_if(gemm.groups != 0, gemm.groups); },
      "Number of groups in a grouped product.", "not a grouped product");
  shape.add(
      "Epilogue", kText, [](const GemmShape& gemm) { return epilogue_name(gemm.epilogue); },
      "What cuBLASLt does to the result.", "no epilogue");
  size("Lda", &GemmShape::lda, "Leading dimension of A.", kNoStride);
  size("Ldb", &GemmShape::ldb, "Leading dimension of B.", kNoStride);
  size("Ldc", &GemmShape::ldc, "Leading dimension of the result.", kNoStride);
  add_call_columns(columns);
  add_rate_columns(columns);
  add_eligible(columns);
  add_hint(columns);
  add_kernel_names(columns);
  leave_out_of_derived_rows(columns);
  return columns;
}
std::vector<CallTableRow> gemm_rows(const Report& report) {
  const std::vector<CallTableRow> rows =
      call_rows(report, ShapeKind::kGemm,
                report.statistics->unshaped_work([](Family family) { return family == Family::kGemm; }));
  // By descending time, like the calls; products follow their call.
  std::vector<CallTableRow> all;
  auto next = report.derived_products.begin();
  const auto add_derived = [&](const CallTableRow* before) {
    while (next != report.derived_products.end() &&
           (before == nullptr || before->call == nullptr || next->row.entry.gpu.sum >= before->gpu.sum)) {
      do {
        all.push_back(derived_row(*next));
      } while (++next != report.derived_products.end() && next->kind == DerivedProducts::Kind::kProduct);
    }
  };
  for (const CallTableRow& row : rows) {
    add_derived(&row);
    all.push_back(row);
  }
  add_derived(nullptr);
  return with_total(std::move(all));
}

}  // namespace

TableFile gemm_table() {
  return make_table<gemm_columns, gemm_rows>("gemm_sum.csv", "Matrix products of one shape (gemm.md).");
}

}  // namespace inject
