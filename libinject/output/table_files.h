// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The CSV tables. Names and headers are those of Nsight Systems' reports if there is a corresponding one.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/base/folder_identity.h"
#include "libinject/base/reserved_file.h"
#include "libinject/output/columns.h"
#include "libinject/report/report.h"

namespace inject {

/// Receives the text of a table so far, and may take it and leave it empty.
using TextSink = std::function<void(std::string& text)>;

struct TableFile {
  std::string_view name;  ///< of the file
  std::string_view rows;  ///< what a row is; for docs/columns.md
  /// The columns for a given run: with metrics, some tables have more. Null if the file is not a CSV table.
  std::vector<ColumnInfo> (*columns)(const Report& report);
  /// Appends the rows to `text`, calling `sink` after each.
  void (*append_rows)(const Report& report, std::string& text, const TextSink& sink);
  /// True if a run has the file at all; null if every run has it.
  bool (*wanted)(const Report& report) = nullptr;
  std::string_view when = {};  ///< a run has it, if not every run does; for docs/columns.md
};

std::span<const TableFile> table_files();
std::string header_of(const TableFile& table, const Report& report);
bool is_wanted(const TableFile& table, const Report& report);

/// A whole table, including its header.
std::string table_text(const TableFile& table, const Report& report);

/// The tables in a run's folder that the run itself has written so far.
struct WrittenTables {
  FolderIdentity folder;  ///< noted by reserve_run_json()
  std::vector<std::string_view> names;
  std::vector<std::string> stale;  ///< those that the latest write could not replace
  /// Reserved space for run.json, if any (reserve_run_json()): it describes the tables, and has to be true
  /// even if the disk is too full for them.
  ReservedFile run_file;
  ReservedFile::Write write = ReservedFile::Write::kFurther;  ///< the next one
  /// run.json for the case that there is no memory for a later one: it lists all tables as stale.
  std::string if_none_follows;
};

/// At the start of a run. From here on, files are only written while `folder` is the one that it is now.
void reserve_run_json(const std::string& folder, WrittenTables& written);

/// There will be no further write, although there is more to report than in the last one: run.json says so.
/// Allocates no memory.
void mark_outdated(WrittenTables& written) noexcept;

/// The text made from a report, which refers to statistics that go on meanwhile.
struct TableTexts {
  struct Text {
    std::string_view name;  ///< of the file
    std::string text;
  };
  std::vector<Text> tables;
  std::vector<DeviceDiagnosis> diagnoses;  ///< for run.json
};
TableTexts table_texts(const Report& report);

/// Writes all tables and then run.json into `folder`, each through a temporary file; returns the failures,
/// one line each (run.json lists them, too). A file that fails leaves its predecessor unchanged (run.json
/// lists it among `stale_files`) and does not stop the others; run.json has reserved room. If memory runs
/// out, all tables' predecessors stay, and run.json says so. Throws bad_alloc only before it has done
/// anything. For threads with all signals blocked (OutputFile).
std::vector<std::string> write_all(const std::string& folder, const Report& report, WrittenTables& written);

inline std::vector<std::string> write_all(const std::string& folder, const Report& report) {
  WrittenTables none;
  return write_all(folder, report, none);
}

/// The same with texts. `run`: that of the report.
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
