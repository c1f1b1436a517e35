// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The CSV tables. Names and headers are those of Nsight Systems' reports where it has such a report.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/output/columns.h"
#include "libinject/report/report.h"

namespace inject {

/// Takes the text of a table so far and empties it, whenever it likes to.
using TextSink = std::function<void(std::string& text)>;

struct TableFile {
  std::string_view name;  ///< of the file
  std::string_view rows;  ///< what its rows are; for docs/columns.md
  /// Those of a run: where metrics were taken, some tables have columns for them.
  std::vector<ColumnInfo> (*columns)(const Report& report);
  /// Appends the rows to `text`, calling `sink` after each.
  void (*append_rows)(const Report& report, std::string& text, const TextSink& sink);
  /// Whether a run has the file at all; null if every run has.
  bool (*wanted)(const Report& report) = nullptr;
};

std::span<const TableFile> table_files();
std::string header_of(const TableFile& table, const Report& report);
bool is_wanted(const TableFile& table, const Report& report);

/// A whole table, header included.
std::string table_text(const TableFile& table, const Report& report);

/// The tables of a run's folder that the run itself has put there, over all writes so far.
struct WrittenTables {
  std::vector<std::string_view> names;
  std::vector<std::string> stale;  ///< those that the latest write could not replace
};

/// Writes all tables and then run.json into `folder`, each by way of a temporary file; returns what failed, a
/// line each (run.json lists it, too). A file that fails leaves its predecessor as it was (run.json lists it
/// among `stale_files`) and does not keep the others from being written. Never throws. For threads with all
/// signals blocked (OutputFile).
std::vector<std::string> write_all(const std::string& folder, const Report& report,
                                   WrittenTables& written) noexcept;

inline std::vector<std::string> write_all(const std::string& folder, const Report& report) noexcept {
  WrittenTables none;
  return write_all(folder, report, none);
}

/// run.json alone: when the first window opens, or where there is no memory for tables.
std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run,
                                        WrittenTables& written) noexcept;

inline std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run) noexcept {
  WrittenTables none;
  return write_run_json(folder, run, none);
}

}  // namespace inject
