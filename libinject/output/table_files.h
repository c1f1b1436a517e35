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

#include "libinject/stats/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Takes the text of a table so far and empties it, whenever it likes to.
using TextSink = std::function<void(std::string& text)>;

struct TableFile {
  std::string_view name;    ///< of the file
  std::string_view header;  ///< as far as it is the same for every run: header_of()
  /// Appends the rows to `text`, calling `sink` after each.
  void (*rows)(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);
  /// What follows in the header, each column with its comma; null if nothing ever does.
  std::string (*more_columns)(const Statistics& statistics) = nullptr;
  /// Whether a run has the file at all; null if every run has.
  bool (*wanted)(const Statistics& statistics) = nullptr;
};

std::span<const TableFile> table_files();
std::string header_of(const TableFile& table, const Statistics& statistics);
bool is_wanted(const TableFile& table, const Statistics& statistics);

/// A whole table, header included.
std::string table_text(const TableFile& table, const Statistics& statistics, const RunInfo& run);

/// Writes all tables and then run.json into `folder`, each by way of a temporary file; returns what failed, a
/// line each (run.json lists it, too). A file that fails leaves its predecessor as it was and does not keep
/// the others from being written. Never throws. For threads with all signals blocked (OutputFile).
std::vector<std::string> write_all(const std::string& folder, const Statistics& statistics,
                                   const RunInfo& run) noexcept;

/// run.json alone: when the first window opens.
std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run) noexcept;

}  // namespace inject
