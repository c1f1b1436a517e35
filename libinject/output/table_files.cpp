// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/table_files.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <utility>

#include "libinject/base/atomic_file.h"
#include "libinject/base/file_work.h"
#include "libinject/output/run_json.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

constexpr std::string_view kRunFile = "run.json";

void append_table(const TableFile& table, const Report& report, std::string& text, const TextSink& sink) {
  text += header_of(table, report) + "\n";
  table.append_rows(report, text, sink);
}

/// `files`: those this write has put in place.
void write_json(const std::string& folder, const RunInfo& run, std::vector<std::string> files,
                WrittenTables& written, std::vector<std::string>& errors,
                const std::vector<DeviceDiagnosis>& diagnoses = {}) {
  written.stale.clear();
  for (const std::string_view name : written.names) {
    if (std::find(files.begin(), files.end(), name) == files.end()) written.stale.emplace_back(name);
  }
  files.insert(files.end(), written.stale.begin(), written.stale.end());
  const auto replaced = [&] {
    AtomicFile json(folder, kRunFile);
    json.file().buffer() = run_json_text(run, files, errors, diagnoses, written.stale);
    if (json.finish() && json.commit()) return std::string();
    return json.error();
  };
  // Its temporary file has gone before the spare is written: a later spare needs the room.
  const std::string problem = replaced();
  bool done = problem.empty();
  if (!done) {
    std::string text = run_json_text(run, files, errors, diagnoses, written.stale);
    if (text.size() > ReservedFile::kBytes)
      text = short_run_json_text(run, files, errors, diagnoses, written.stale, ReservedFile::kBytes);
    done = written.run_file.put(text, written.write);
  }
  if (written.write != ReservedFile::Write::kLast) written.run_file.renew();
  if (done) {
    FileWork::file_done();
  } else {
    errors.push_back(problem);
  }
}

}  // namespace

void reserve_run_json(const std::string& folder, WrittenTables& written) {
  written.run_file.reserve(folder, kRunFile);
}

std::span<const TableFile> table_files() {
  static const std::array tables{
      kernel_table(),         launch_shape_table(),  api_table(),           operation_time_table(),
      operation_size_table(), copy_table(),          range_table(),         range_kernel_table(),
      library_table(),        family_table(),        gemm_table(),          convolution_table(),
      attention_table(),      rnn_table(),           normalization_table(), collective_table(),
      thread_table(),         window_table(),        iteration_table(),     phase_table(),
      memory_table(),         kernel_detail_table(), kernel_metric_table()};
  return tables;
}

std::string header_of(const TableFile& table, const Report& report) {
  return header_line(table.columns(report));
}

bool is_wanted(const TableFile& table, const Report& report) {
  return table.wanted == nullptr || table.wanted(report);
}

std::string table_text(const TableFile& table, const Report& report) {
  std::string text;
  append_table(table, report, text, [](std::string&) {});
  return text;
}

std::vector<std::string> write_all(const std::string& folder, const Report& report,
                                   WrittenTables& written) noexcept {
  std::vector<std::string> errors;
  try {
    // All tables are written before the first is put in place, so that, apart from the renames, a reader
    // finds tables of one moment.
    std::vector<std::pair<std::string_view, std::unique_ptr<AtomicFile>>> finished;
    std::vector<std::string> names;
    const auto wanted = std::count_if(table_files().begin(), table_files().end(),
                                      [&](const TableFile& table) { return is_wanted(table, report); });
    FileWork::begin_files(static_cast<unsigned>(wanted) + 1);
    for (const TableFile& table : table_files()) {
      if (!is_wanted(table, report)) {
        // Tables of hardware metrics that a killed process wrote cannot be recreated.
        if (report.run->recovered && access((folder + "/" + std::string(table.name)).c_str(), F_OK) == 0)
          names.emplace_back(table.name);
        continue;
      }
      auto file = std::make_unique<AtomicFile>(folder, table.name);
      append_table(table, report, file->file().buffer(),
                   [&file](std::string&) { file->file().write_if_full(); });
      if (file->finish()) {
        finished.emplace_back(table.name, std::move(file));
      } else {
        errors.push_back(file->error());
      }
    }
    for (const auto& [name, file] : finished) {
      if (!file->commit()) {
        errors.push_back(file->error());
        continue;
      }
      FileWork::file_done();
      names.emplace_back(name);
      if (std::find(written.names.begin(), written.names.end(), name) == written.names.end())
        written.names.push_back(name);
    }
    write_json(folder, *report.run, std::move(names), written, errors, report.diagnoses);
  } catch (const std::exception& problem) {
    // Most likely out of memory, so this may fail as well.
    try {
      errors.emplace_back(std::string("cannot write the tables: ") + problem.what());
    } catch (...) {
      errors.clear();
    }
  }
  return errors;
}

std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run,
                                        WrittenTables& written) noexcept {
  std::vector<std::string> errors;
  FileWork::begin_files(1);
  try {
    write_json(folder, run, {}, written, errors);
  } catch (const std::exception& problem) {
    try {
      errors.emplace_back(std::string("cannot write run.json: ") + problem.what());
    } catch (...) {
      errors.clear();
    }
  }
  return errors;
}

}  // namespace inject
