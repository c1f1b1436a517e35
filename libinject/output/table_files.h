// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The CSV tables. Names and headers are those of Nsight Systems' reports where there is a corresponding one.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/base/reserved_file.h"
#include "libinject/output/columns.h"
#include "libinject/report/report.h"

namespace inject {

/// Gets the text of a table so far, and may take it and leave it empty.
using TextSink = std::function<void(std::string& text)>;

struct TableFile {
  std::string_view name;  ///< of the file
  std::string_view rows;  ///< what a row is; for docs/columns.md
  /// The columns for a given run: with metrics, some tables have more. Null: the file is no CSV table.
  std::vector<ColumnInfo> (*columns)(const Report& report);
  /// Appends the rows to `text`, calling `sink` after each.
  void (*append_rows)(const Report& report, std::string& text, const TextSink& sink);
  /// Whether a run has the file at all; null if every run has.
  bool (*wanted)(const Report& report) = nullptr;
  std::string_view when = {};  ///< a run has it, if not every one does; for docs/columns.md
};

std::span<const TableFile> table_files();
std::string header_of(const TableFile& table, const Report& report);
bool is_wanted(const TableFile& table, const Report& report);

/// A whole table, header included.
std::string table_text(const TableFile& table, const Report& report);

/// The tables in a run's folder that the run itself has written so far.
struct WrittenTables {
  std::vector<std::string_view> names;
  std::vector<std::string> stale;  ///< those the latest write could not replace
  /// run.json's room, if it was reserved (reserve_run_json()): it says what the tables are, and has to be
  /// true where the disk is too full for them.
  ReservedFile run_file;
  ReservedFile::Write write = ReservedFile::Write::kFurther;  ///< the next one
  /// run.json for the case that there is no memory for a later one: all tables are stale in it.
  std::string if_none_follows;
};

void reserve_run_json(const std::string& folder, WrittenTables& written);

/// There will be no further write, and more to tell than the last one told: run.json says so. Takes no
/// memory.
void mark_outdated(WrittenTables& written) noexcept;

/// What is written of a report, which refers to statistics that go on meanwhile: their text.
struct TableTexts {
  struct Text {
    std::string_view name;  ///< of the file
    std::string text;
  };
  std::vector<Text> tables;
  std::vector<DeviceDiagnosis> diagnoses;  ///< for run.json
};
TableTexts table_texts(const Report& report);

/// Writes all tables and then run.json into `folder`, each through a temporary file; returns what failed, one
/// line each (run.json lists them, too). A file that fails leaves its predecessor unchanged (run.json lists
/// it among `stale_files`) and does not stop the others; run.json has reserved room. Where memory runs out
/// all tables' predecessors stay, and run.json says so. Throws bad_alloc before it has done anything, if at
/// all. For threads with all signals blocked (OutputFile).
std::vector<std::string> write_all(const std::string& folder, const Report& report, WrittenTables& written);

inline std::vector<std::string> write_all(const std::string& folder, const Report& report) {
  WrittenTables none;
  return write_all(folder, report, none);
}

/// The same of texts. `run`: as the report's.
std::vector<std::string> write_all(const std::string& folder, TableTexts texts, const RunInfo& run,
                                   WrittenTables& written);

/// Only run.json: when the first window opens, or when there is no memory for tables.
std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run,
                                        WrittenTables& written);

inline std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run) {
  WrittenTables none;
  return write_run_json(folder, run, none);
}

}  // namespace inject
