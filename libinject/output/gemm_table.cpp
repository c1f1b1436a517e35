// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// gemm_sum.csv (docs/gemm.md).
#include "libinject/analysis/gemm_hints.h"
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

Columns<CallTableRow> gemm_columns(const Report&) {
  Columns<CallTableRow> columns;
  add_function(columns);
  const auto shape = columns.of(shape_of<GemmShape>, kNoShape);
  const auto size = [&shape](std::string header, auto member, std::string_view meaning) {
    shape.add(
        std::move(header), kCount,
        [member](const GemmShape& gemm) {
          const bool sized = gemm.groups <= 1 || gemm.m != 0 || gemm.n != 0 || gemm.k != 0;
          return cell_if(sized, gemm.*member);
        },
        meaning, "rows in brackets; groups of products of different sizes");
  };
  size("M", &GemmShape::m,
       "Rows of op(A) and of the result, column-major as the library has them (gemm.md).");
  size("N", &GemmShape::n, "Columns of op(B) and of the result.");
  size("K", &GemmShape::k, "Columns of op(A), rows of op(B).");
  shape.add(
      "Op A", kText, [](const GemmShape& gemm) { return std::string(1, gemm.op_a); }, "`N`, `T` or `C`.");
  shape.add(
      "Op B", kText, [](const GemmShape& gemm) { return std::string(1, gemm.op_b); }, "`N`, `T` or `C`.");
  shape.add("Type A", kText, data_type(&GemmShape::a), "Elements of A.");
  shape.add("Type B", kText, data_type(&GemmShape::b), "Elements of B.");
  shape.add("Type C", kText, data_type(&GemmShape::d), "Elements of the result.");
  shape.add("Compute Type", kText, compute_type<GemmShape>, kComputeType);
  shape.add("Batch", kCount, &GemmShape::batch, "Products of one call.");
  shape.add(
      "Groups", kCount, [](const GemmShape& gemm) { return cell_if(gemm.groups != 0, gemm.groups); },
      "Groups of a grouped product.", "not a grouped product");
  shape.add(
      "Epilogue", kText, [](const GemmShape& gemm) { return epilogue_name(gemm.epilogue); },
      "What cuBLASLt does to the result.", "nothing");
  size("Lda", &GemmShape::lda, "Leading dimension of A.");
  size("Ldb", &GemmShape::ldb, "Leading dimension of B.");
  size("Ldc", &GemmShape::ldc, "Leading dimension of the result.");
  add_call_columns(columns);
  add_rate_columns(columns);
  columns
      .add(
          "Eligible", kText,
          [](const CallTableRow& row) {
            if (row.call == nullptr) return Cell();
            const TensorEligibility& eligibility = row.call->eligibility;
            std::string text(eligible_name(eligibility.eligible));
            if (!eligibility.reason.empty()) text += ": " + eligibility.reason;
            return Cell(std::move(text));
          },
          "Whether tensor cores of the device could do it, by type, shape and alignment (gemm.md).", kNoShape)
      .add(
          "Hint", kText,
          [](const CallTableRow& row) {
            return row.call == nullptr ? Cell() : Cell(join_hints(row.call->hints));
          },
          "What could be better (gemm.md).", "nothing");
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> gemm_rows(const Report& report) {
  return with_total(call_rows(report, ShapeKind::kGemm, report.statistics->unshaped_work([](Family family) {
    return family == Family::kGemm;
  })));
}

}  // namespace

TableFile gemm_table() {
  return make_table<gemm_columns, gemm_rows>("gemm_sum.csv", "Matrix products of one shape (gemm.md).");
}

}  // namespace inject
