// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/replay/recover.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/base/atomic_file.h"
#include "libinject/base/host_io.h"
#include "libinject/base/safe_path.h"
#include "libinject/base/text.h"
#include "libinject/output/chrome_trace.h"
#include "libinject/output/run_json.h"
#include "libinject/output/summary.h"
#include "libinject/output/table_files.h"
#include "libinject/output/trace.h"
#include "libinject/replay/replay.h"

namespace inject::recovery {

namespace {

std::string text_of(int code) {
  std::array<char, 128> text;
  return strerror_r(code, text.data(), text.size());
}

std::string read_whole(int file, std::uint64_t bytes, std::vector<std::uint8_t>& contents) {
  contents.resize(bytes);
  for (std::size_t at = 0; at < contents.size();) {
    const ssize_t n = pread(file, contents.data() + at, contents.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return text_of(errno);
    if (n == 0) return "it became shorter while it was read";
    at += static_cast<std::size_t>(n);
  }
  return {};
}

/// What is wrong with the file; empty: nothing.
std::string read_file(const FolderAbove& where, std::vector<std::uint8_t>& contents) {
  const int file =
      openat(where.descriptor(), where.name().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return errno == ELOOP ? "it is a link" : text_of(errno);
  struct stat status {};
  std::string problem;
  if (fstat(file, &status) != 0) {
    problem = text_of(errno);
  } else if (!S_ISREG(status.st_mode)) {
    problem = "it is not a regular file";
  } else if (static_cast<std::uint64_t>(status.st_size) > kMaxFile) {
    problem = "it is larger than any record file";
  } else {
    problem = read_whole(file, static_cast<std::uint64_t>(status.st_size), contents);
  }
  close(file);
  return problem;
}

bool still_runs(const Header& header) {
  return header.process_start != 0 && header.boot == boot_hash() &&
         process_start_of(header.pid) == header.process_start;
}

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

std::string text_file(const std::string& path) {
  std::string text;
  const int file = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return text;
  constexpr std::size_t kMax = std::size_t{64} << 20;
  std::array<char, 65536> part;
  for (ssize_t n; (n = read(file, part.data(), part.size())) > 0 && text.size() < kMax;)
    text.append(part.data(), static_cast<std::size_t>(n));
  close(file);
  return text;
}

// The process's own run.json says what its tables have; what is new is its state.
std::string keep_tables(const std::string& folder, const RecoveredInfo& recovered) {
  std::string text = text_file(folder + "/run.json");
  if (!mark_recovered(text, recovered))
    return "run.json is not as libinject writes it; it was left unchanged";
  AtomicFile file(folder, "run.json");
  file.file().buffer() = text;
  return file.finish() && file.commit() ? std::string() : file.error();
}

/// Whether INJECT_TRACE, as in force, has `format` in its list.
bool traced(const RunInfo& run, std::string_view format) {
  const auto found = std::find_if(run.options.begin(), run.options.end(),
                                  [](const auto& option) { return option.first == "INJECT_TRACE"; });
  if (found == run.options.end()) return false;
  const std::string list = "," + found->second + ",";
  return list.find("," + std::string(format) + ",") != std::string::npos;
}

/// The raw records of a run that wrote some (INJECT_TRACE), made anew beside the tables, and then put in the
/// place of those that the process had written.
class RawRecords {
 public:
  RawRecords(const std::string& folder, Replay& replay)
      : folder_(folder),
        aside_(folder + "/.recovering"),
        run_(replay.run_info()),
        writer_({&replay.core().names, [&replay](std::uint32_t index) { return replay.thread(index); },
                 [this](std::uint32_t device) {
                   return device < run_.devices.size() ? run_.devices[device].name : std::string();
                 },
                 run_.pid, run_.base}),
        chrome_({&replay.core().names, &replay.core().ranges,
                 [&replay](std::uint32_t index) { return replay.thread(index); },
                 [this] { return std::span<const DeviceInfo>(run_.devices); }, program(), run_.pid, run_.base,
                 run_.base_utc, run_.rank, std::string()}) {
    const bool csv = traced(run_, "csv");
    const bool chrome = traced(run_, "chrome");
    if (!csv && !chrome) return;
    clear();
    made_ = mkdir(aside_.c_str(), 0700) == 0;
    problem_ = made_ ? std::string() : text_of(errno);
    csv_open_ = made_ && csv && writer_.open(aside_);
    chrome_open_ = made_ && chrome && chrome_.open(aside_);
    if (problem_.empty()) problem_ = writer_.error().empty() ? chrome_.error() : writer_.error();
  }
  ~RawRecords() {
    writer_.close();
    if (made_) clear();
  }
  RawRecords(const RawRecords&) = delete;
  RawRecords& operator=(const RawRecords&) = delete;

  void take_from(Replay& replay) {
    if (csv_open_) replay.add_sink(writer_);
    if (chrome_open_) replay.add_sink(chrome_);
  }

  void note_losses(RunInfo& run) const {
    if (csv_open_) run.trace_rows_left_out = writer_.rows_left_out();
    if (chrome_open_) run.trace_events_left_out = chrome_.left_out();
  }

  /// What went wrong; empty: nothing, or there are none.
  std::string put_in_place(const RunInfo& run) {
    if (!problem_.empty()) return problem_;
    if (csv_open_ && (!writer_.flush() || !writer_.close())) return writer_.error();
    if (chrome_open_ && !chrome_.complete(run.windows)) return chrome_.error();
    for (const char* name : kFiles) {
      if (std::strcmp(name, ChromeTrace::kFileName) == 0 ? !chrome_open_ : !csv_open_) continue;
      if (rename((aside_ + "/" + name).c_str(), (folder_ + "/" + name).c_str()) != 0)
        return std::string(name) + ": " + text_of(errno);
    }
    // As far as the process had come with it.
    if (chrome_open_) unlink((folder_ + "/." + ChromeTrace::kFileName + ".new").c_str());
    return {};
  }

 private:
  static constexpr std::array<const char*, 5> kFiles{"cuda_gpu_trace.csv", "cuda_api_trace.csv",
                                                     "library_trace.csv", "thread_cpu_trace.csv",
                                                     ChromeTrace::kFileName};

  std::string program() const {
    if (run_.command_line.empty()) return {};
    const std::string& path = run_.command_line.front();
    return path.substr(path.rfind('/') + 1);
  }
  void clear() {
    for (const char* name : kFiles) unlink((aside_ + "/" + name).c_str());
    unlink((aside_ + "/." + ChromeTrace::kFileName + ".new").c_str());
    rmdir(aside_.c_str());
  }

  std::string folder_;
  std::string aside_;
  RunInfo run_;
  TraceWriter writer_;
  ChromeTrace chrome_;
  std::string problem_;
  bool made_ = false;
  bool csv_open_ = false;
  bool chrome_open_ = false;
};

std::string missing_text(const RunInfo& run) {
  Losses losses = run.losses_outside;
  for (const WindowInfo& window : run.windows) losses.add(window.losses);
  const std::uint64_t launches = losses.missing_records + run.recovered->beyond_submissions;
  return launches == 0
             ? "nothing that had been launched is missing"
             : fmt::format("the GPU records of {} launches, copies and memsets are missing", launches);
}

}  // namespace

Outcome recover(const std::string& folder, bool keep) {
  const std::string path = folder + "/" + kFileName;
  const std::string shown = one_line(path, 300);
  const FolderAbove where(path);
  if (!where.is_open()) return {false, one_line(folder, 300) + ": " + where.problem(), {}};
  std::vector<std::uint8_t> contents;
  if (!exists(path)) {
    std::string text = text_file(folder + "/run.json");
    if (text.find("\"state\": \"recovered\"") != std::string::npos)
      return {true, one_line(folder, 300) + " is recovered already", {}};
    if (text.empty())
      return {false, one_line(folder, 300) + " is not an output folder: it has no run.json", {}};
    return {false, one_line(folder, 300) + ": there is nothing to recover: it has no file `records`", {}};
  }
  std::string problem = read_file(where, contents);
  if (!problem.empty()) return {false, shown + ": " + problem, {}};
  Image image;
  if (!image.open(contents, problem)) return {false, shown + ": " + problem, {}};
  if (still_runs(image.header()))
    return {false, fmt::format("{}: process {} is still writing to it", shown, image.header().pid), {}};

  Replay replay(image);
  RawRecords raw(folder, replay);
  raw.take_from(replay);
  replay.run();
  RunInfo run = replay.run_info();
  raw.note_losses(run);
  const bool tables_have_more = (image.live().journal_full && image.live().written_beyond) ||
                                replay.blocks() < image.live().written_block;
  Outcome outcome;
  if (tables_have_more) {
    run.recovered->tables_kept = true;
    problem = keep_tables(folder, *run.recovered);
    outcome.message = fmt::format(
        "the tables in {} are those that the process wrote itself: they have more than the records do",
        one_line(folder, 300));
  } else {
    const Report report = build_report(replay.statistics(), run);
    run.impossible_rates = report.impossible_rates;
    const std::vector<std::string> problems = write_all(folder, report);
    problem = problems.empty() ? raw.put_in_place(run) : problems.front();
    outcome.summary = summary_text(report, folder);
    outcome.message = "the tables are in " + one_line(folder, 300) + "; " + missing_text(run);
  }
  if (!problem.empty()) return {false, one_line(folder, 300) + ": " + problem, {}};
  if (!keep) unlinkat(where.descriptor(), where.name().c_str(), 0);
  outcome.done = true;
  return outcome;
}

}  // namespace inject::recovery
