// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The CSV tables, one function each: name, columns and rows. The comment above each group names the file;
// table_files.cpp has the order of the tables.
#pragma once

#include <string>
#include <string_view>

#include "libinject/output/table_files.h"
#include "libinject/report/report.h"

namespace inject {

/// `columns` returns the Columns<Row> for a report, `rows` its rows.
template <auto columns, auto rows>
constexpr TableFile make_table(std::string_view name, std::string_view about,
                               bool (*wanted)(const Report& report) = nullptr, std::string_view when = {}) {
  return {name,
          about,
          [](const Report& report) { return columns(report).infos(); },
          [](const Report& report, std::string& text, const TextSink& sink) {
            const auto table = columns(report);
            for (const auto& row : rows(report)) {
              table.append_row(text, row);
              sink(text);
            }
          },
          wanted,
          when};
}

// duration_tables.cpp
TableFile kernel_table();
TableFile launch_shape_table();
TableFile api_table();
TableFile operation_time_table();
TableFile operation_size_table();
TableFile range_table();
TableFile range_kernel_table();
TableFile thread_table();
// copy_table.cpp, library_table.cpp, family_table.cpp, gemm_table.cpp
TableFile copy_table();
TableFile library_table();
TableFile family_table();
TableFile gemm_table();
// cudnn_tables.cpp
TableFile convolution_table();
TableFile attention_table();
TableFile rnn_table();
TableFile normalization_table();
// collective_table.cpp, window_table.cpp, iteration_table.cpp, phase_table.cpp, memory_table.cpp,
// purpose_table.cpp, energy_table.cpp, host_table.cpp
TableFile collective_table();
TableFile window_table();
TableFile iteration_table();
TableFile step_table();
TableFile phase_table();
TableFile memory_table();
TableFile memory_timeline_table();
TableFile purpose_table();
TableFile energy_table();
TableFile host_table();
// code_tables.cpp
TableFile operator_table();
TableFile module_table();
TableFile line_table();
TableFile gap_line_table();
TableFile kernel_stack_file();
// kernel_detail_table.cpp, kernel_metric_table.cpp
TableFile kernel_detail_table();
TableFile kernel_metric_table();

}  // namespace inject
