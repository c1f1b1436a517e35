// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The tables of library calls by what they compute, and of kernel families.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/output/columns.h"
#include "libinject/output/table_cells.h"
#include "libinject/report/report.h"

namespace inject {

/// A row of a table of calls: those of one shape, or kernels of which no shape is known.
struct CallTableRow {
  std::string_view name;                  ///< the function; `[other]`, `[no shape]`, `[no call]`
  const CallReport* call = nullptr;       ///< null where no shape is known
  const CallShapeEntry* entry = nullptr;  ///< null where the kernels were launched in no call
  Totals gpu;                             ///< of a call's kernels, or, without calls, of a kernel
  std::uint64_t kernels = 0;
  std::optional<TensorCores> cores;
  std::string kernel_names;
  std::uint64_t total = 0;  ///< GPU time of all rows
};

Columns<CallTableRow> gemm_columns(const Report& report);
std::vector<CallTableRow> gemm_rows(const Report& report);
Columns<CallTableRow> conv_columns(const Report& report);
std::vector<CallTableRow> conv_rows(const Report& report);
Columns<CallTableRow> attention_columns(const Report& report);
std::vector<CallTableRow> attention_rows(const Report& report);
Columns<CallTableRow> rnn_columns(const Report& report);
std::vector<CallTableRow> rnn_rows(const Report& report);
Columns<CallTableRow> norm_columns(const Report& report);
std::vector<CallTableRow> norm_rows(const Report& report);

Columns<Listed<CollectiveRow>> nccl_columns(const Report& report);
std::vector<Listed<CollectiveRow>> nccl_rows(const Report& report);
Columns<Listed<FamilyRow>> family_columns(const Report& report);
std::vector<Listed<FamilyRow>> family_rows(const Report& report);

}  // namespace inject
