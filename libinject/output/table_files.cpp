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
#include "libinject/base/format.h"
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

/// The errors that `write` notes, and the one that it ends with.
template <typename Write>
std::vector<std::string> noting_errors(const char* what, const Write& write) noexcept {
  std::vector<std::string> errors;
  try {
    write(errors);
  } catch (const std::exception& problem) {
    // Most likely out of memory, so this may fail as well.
    try {
      errors.push_back(str_format("cannot write {}: {}", what, problem.what()));
    } catch (...) {
      errors.clear();
    }
  }
  return errors;
}

/// Tables that are put in place once all of them are written, so that, apart from the renames, a reader finds
/// tables of one moment.
class FinishedTables {
 public:
  /// `count`: how many there will be.
  FinishedTables(const std::string& folder, std::size_t count) : folder_(folder) {
    FileWork::begin_files(static_cast<unsigned>(count) + 1);  // and run.json
  }

  template <typename Fill>
  void add(std::string_view name, std::vector<std::string>& errors, const Fill& fill) {
    auto file = std::make_unique<AtomicFile>(folder_, name);
    fill(file->file());
    if (file->finish()) {
      finished_.emplace_back(name, std::move(file));
    } else {
      errors.push_back(file->error());
    }
  }

  /// Appends the names of those that are in place to `names`.
  void commit(std::vector<std::string>& names, WrittenTables& written, std::vector<std::string>& errors) {
    for (const auto& [name, file] : finished_) {
      if (!file->commit()) {
        errors.push_back(file->error());
        continue;
      }
      FileWork::file_done();
      names.emplace_back(name);
      if (std::find(written.names.begin(), written.names.end(), name) == written.names.end())
        written.names.push_back(name);
    }
  }

 private:
  const std::string& folder_;
  std::vector<std::pair<std::string_view, std::unique_ptr<AtomicFile>>> finished_;
};

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

TableTexts table_texts(const Report& report) {
  TableTexts texts;
  for (const TableFile& table : table_files())
    if (is_wanted(table, report)) texts.tables.push_back({table.name, table_text(table, report)});
  texts.diagnoses = report.diagnoses;
  return texts;
}

std::vector<std::string> write_all(const std::string& folder, const Report& report,
                                   WrittenTables& written) noexcept {
  return noting_errors("the tables", [&](std::vector<std::string>& errors) {
    std::vector<std::string> kept;
    FinishedTables tables(folder, static_cast<std::size_t>(std::count_if(
                                      table_files().begin(), table_files().end(),
                                      [&](const TableFile& table) { return is_wanted(table, report); })));
    for (const TableFile& table : table_files()) {
      if (is_wanted(table, report)) {
        tables.add(table.name, errors, [&](OutputFile& file) {
          append_table(table, report, file.buffer(), [&file](std::string&) { file.write_if_full(); });
        });
      } else if (report.run->recovered &&
                 access((folder + "/" + std::string(table.name)).c_str(), F_OK) == 0) {
        // Tables of hardware metrics that a killed process wrote cannot be recreated.
        kept.emplace_back(table.name);
      }
    }
    tables.commit(kept, written, errors);
    write_json(folder, *report.run, std::move(kept), written, errors, report.diagnoses);
  });
}

std::vector<std::string> write_all(const std::string& folder, TableTexts texts, const RunInfo& run,
                                   WrittenTables& written) noexcept {
  return noting_errors("the tables", [&](std::vector<std::string>& errors) {
    FinishedTables tables(folder, texts.tables.size());
    for (TableTexts::Text& table : texts.tables)
      tables.add(table.name, errors, [&](OutputFile& file) { file.buffer() = std::move(table.text); });
    std::vector<std::string> names;
    tables.commit(names, written, errors);
    write_json(folder, run, std::move(names), written, errors, texts.diagnoses);
  });
}

std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run,
                                        WrittenTables& written) noexcept {
  FileWork::begin_files(1);
  return noting_errors(
      "run.json", [&](std::vector<std::string>& errors) { write_json(folder, run, {}, written, errors); });
}

}  // namespace inject
