// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/table_files.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "libinject/base/atomic_file.h"
#include "libinject/base/file_work.h"
#include "libinject/base/format.h"
#include "libinject/output/run_json.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

constexpr std::string_view kRunFile = "run.json";
constexpr std::size_t kUsualErrors = 8;

void append_table(const TableFile& table, const Report& report, std::string& text, const TextSink& sink) {
  if (table.columns != nullptr) text += header_of(table, report) + "\n";
  table.append_rows(report, text, sink);
}

/// run.json of one write.
class RunJson {
 public:
  RunJson(const std::string& folder, const RunInfo& run, const std::vector<DeviceDiagnosis>& diagnoses,
          WrittenTables& written, std::vector<std::string>& errors)
      : folder_(folder), run_(run), diagnoses_(diagnoses), written_(written), errors_(errors) {}

  /// Makes it durable under its temporary name. `files`: those that this write puts in place.
  bool finish(std::vector<std::string> files) {
    files_ = std::move(files);
    written_.stale.clear();
    for (const std::string_view name : written_.names) {
      if (std::find(files_.begin(), files_.end(), name) == files_.end()) written_.stale.emplace_back(name);
    }
    files_.insert(files_.end(), written_.stale.begin(), written_.stale.end());
    if_none_follows_ = short_text(std::array{std::string("out of memory")}, files_);
    file_.emplace(folder_, kRunFile);
    file_->file().buffer() = run_json_text(run_, files_, errors_, diagnoses_, written_.stale);
    return file_->finish();
  }

  bool commit() noexcept { return file_->commit() && done(); }

  /// Does both; if that fails, writes a short version into the reserved room.
  void write(std::vector<std::string> files) {
    file_.reset();
    if (finish(std::move(files)) && commit()) return;
    const std::string problem = file_->error();
    // The temporary file is removed before the spare is written, because a later spare needs the room.
    file_.reset();
    if (written_.run_file.put(short_text(errors_, written_.stale), written_.write)) {
      done();
    } else {
      errors_.push_back(problem);
    }
  }

 private:
  bool done() noexcept {
    FileWork::file_done();
    written_.if_none_follows.swap(if_none_follows_);
    return true;
  }
  /// A version that fits into the reserved room.
  std::string short_text(std::span<const std::string> errors, std::span<const std::string> stale) const {
    std::string text = run_json_text(run_, files_, errors, diagnoses_, stale);
    if (text.size() > ReservedFile::kBytes)
      text = short_run_json_text(run_, files_, errors, diagnoses_, stale, ReservedFile::kBytes);
    return text;
  }

  const std::string& folder_;
  const RunInfo& run_;
  const std::vector<DeviceDiagnosis>& diagnoses_;
  WrittenTables& written_;
  std::vector<std::string>& errors_;
  std::vector<std::string> files_;
  std::string if_none_follows_;
  std::optional<AtomicFile> file_;
};

/// Tables that are put in place once all of them are written, so that, apart from the renames, a reader finds
/// tables from one moment.
class FinishedTables {
 public:
  /// `count`: the number of tables to come.
  FinishedTables(const std::string& folder, std::size_t count) : folder_(folder) {
    FileWork::begin_files(static_cast<unsigned>(count) + 1);  // and run.json
  }

  template <typename Fill>
  void add(std::string_view name, std::vector<std::string>& errors, const Fill& fill) {
    auto file = std::make_unique<AtomicFile>(folder_, name);
    fill(file->file());
    if (file->finish()) {
      finished_.push_back({name, std::move(file)});
    } else {
      errors.push_back(file->error());
    }
  }

  /// Puts them in place, and then run.json, which describes them. `kept`: other files that it lists.
  void commit(RunJson& json, const std::vector<std::string>& kept, WrittenTables& written,
              std::vector<std::string>& errors) {
    // All allocations come before the first rename, and are likely to have succeeded by the last: tables from
    // two moments with a run.json of neither would be worse than none.
    std::vector<std::string> names = kept;
    for (const Table& table : finished_) names.emplace_back(table.name);
    written.names.reserve(written.names.size() + finished_.size());
    const bool json_is_ready = json.finish(std::move(names));
    bool all = true;
    for (Table& table : finished_) {
      table.in_place = table.file->commit();
      all = all && table.in_place;
      if (!table.in_place) continue;
      FileWork::file_done();
      if (std::find(written.names.begin(), written.names.end(), table.name) == written.names.end())
        written.names.push_back(table.name);
    }
    if (all && json_is_ready && json.commit()) return;
    names = kept;
    for (const Table& table : finished_) {
      if (table.in_place) {
        names.emplace_back(table.name);
      } else {
        errors.push_back(table.file->error());
      }
    }
    json.write(std::move(names));
  }

 private:
  struct Table {
    std::string_view name;
    std::unique_ptr<AtomicFile> file;
    bool in_place = false;
  };
  const std::string& folder_;
  std::vector<Table> finished_;
};

/// Writes the tables that `fill` adds, at most `count`, and then run.json, which also lists the files named
/// by `fill`. Returns the failures.
template <typename Fill>
std::vector<std::string> write_run(const std::string& folder, std::size_t count, const RunInfo& run,
                                   const std::vector<DeviceDiagnosis>& diagnoses, WrittenTables& written,
                                   const Fill& fill) {
  std::vector<std::string> errors;
  errors.reserve(kUsualErrors);
  if (!written.folder.is_in_place()) {
    // What has that name now may be another run's.
    errors.assign(count + 1, folder + " has been moved or removed: nothing is written there");
    return errors;
  }
  try {
    FinishedTables tables(folder, count);
    std::vector<std::string> kept;
    fill(tables, kept, errors);
    RunJson json(folder, run, diagnoses, written, errors);
    tables.commit(json, kept, written, errors);
    if (written.write != ReservedFile::Write::kLast) written.run_file.renew();
  } catch (const std::exception& problem) {
    mark_outdated(written);
    // Most likely out of memory, so this may fail as well.
    try {
      written.stale.assign(written.names.begin(), written.names.end());
      errors.push_back(
          str_format("cannot write {}: {}", count == 0 ? kRunFile : "the tables", problem.what()));
    } catch (const std::bad_alloc&) {
      if (errors.empty()) errors.emplace_back("out of memory");  // short enough to need no allocation
    }
  }
  return errors;
}

}  // namespace

void reserve_run_json(const std::string& folder, WrittenTables& written) {
  written.folder.note(folder);
  written.run_file.reserve(folder, kRunFile);
}

void mark_outdated(WrittenTables& written) noexcept {
  if (!written.if_none_follows.empty() && written.folder.is_in_place())
    written.run_file.put(written.if_none_follows, written.write);
}

std::span<const TableFile> table_files() {
  static const std::array tables{
      kernel_table(),         launch_shape_table(),  api_table(),           operation_time_table(),
      operation_size_table(), copy_table(),          range_table(),         range_kernel_table(),
      library_table(),        family_table(),        gemm_table(),          convolution_table(),
      attention_table(),      rnn_table(),           normalization_table(), collective_table(),
      thread_table(),         window_table(),        iteration_table(),     step_table(),
      phase_table(),          operator_table(),      module_table(),        line_table(),
      gap_line_table(),       kernel_stack_file(),   memory_table(),        host_table(),
      kernel_detail_table(),  kernel_metric_table(), energy_table(),        purpose_table(),
      memory_timeline_table()};
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

std::vector<std::string> write_all(const std::string& folder, const Report& report, WrittenTables& written) {
  const auto wanted = [&](const TableFile& table) { return is_wanted(table, report); };
  const auto count = std::count_if(table_files().begin(), table_files().end(), wanted);
  return write_run(
      folder, static_cast<std::size_t>(count), *report.run, report.diagnoses, written,
      [&](FinishedTables& tables, std::vector<std::string>& kept, std::vector<std::string>& errors) {
        for (const TableFile& table : table_files()) {
          if (wanted(table)) {
            tables.add(table.name, errors, [&](OutputFile& file) {
              append_table(table, report, file.buffer(), [&file](std::string&) { file.write_if_full(); });
            });
          } else if (report.run->recovered &&
                     access((folder + "/" + std::string(table.name)).c_str(), F_OK) == 0) {
            // Tables of hardware metrics that a killed process wrote cannot be recreated.
            kept.emplace_back(table.name);
          }
        }
      });
}

std::vector<std::string> write_all(const std::string& folder, TableTexts texts, const RunInfo& run,
                                   WrittenTables& written) {
  return write_run(folder, texts.tables.size(), run, texts.diagnoses, written,
                   [&](FinishedTables& tables, std::vector<std::string>&, std::vector<std::string>& errors) {
                     for (TableTexts::Text& table : texts.tables)
                       tables.add(table.name, errors,
                                  [&](OutputFile& file) { file.buffer() = std::move(table.text); });
                   });
}

std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run,
                                        WrittenTables& written) {
  return write_run(folder, 0, run, {}, written, [](const auto&...) {});
}

}  // namespace inject
