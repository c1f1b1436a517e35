// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/replay/recover.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/base/atomic_file.h"
#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/host_io.h"
#include "libinject/base/json_reader.h"
#include "libinject/base/process.h"
#include "libinject/base/reserved_file.h"
#include "libinject/base/safe_path.h"
#include "libinject/base/text.h"
#include "libinject/journal/record_place.h"
#include "libinject/output/chrome_trace.h"
#include "libinject/output/run_json.h"
#include "libinject/output/summary.h"
#include "libinject/output/table_files.h"
#include "libinject/output/trace.h"
#include "libinject/replay/mapped_file.h"
#include "libinject/replay/replay.h"
#include "libinject/report/display_text.h"

namespace inject::recovery {

namespace {

/// A descriptor, closed by the destructor.
class Opened {
 public:
  explicit Opened(int number) : number_(number) {}
  ~Opened() {
    if (is_open()) close(number_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_;
};

constexpr int kRead = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;

/// What is wrong with the record file; empty if nothing is.
std::string map_records(const Opened& file, MappedFile& contents) {
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return error_text(errno);
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  return contents.open(file.number(), static_cast<std::size_t>(status.st_size)) ? std::string()
                                                                                : error_text(errno);
}

bool still_runs(const Header& header) {
  return header.process_start != 0 && header.boot == boot_hash() &&
         process_start_of(header.pid) == header.process_start;
}

/// Whether a process writes records into the file: one in another PID or time namespace is not found by its
/// number and start time.
bool is_written_to(int file) {
  constexpr std::int64_t kOffset = kLiveOffset + offsetof(Live, passes);
  constexpr int kLooks = 20;
  constexpr Nanoseconds kBetween = 10 * kMillisecond;
  std::uint64_t first = 0;
  std::uint64_t passes = 0;
  if (pread(file, &first, sizeof first, kOffset) != sizeof first) return false;
  for (int i = 0; i < kLooks; ++i) {
    sleep_for(kBetween);
    if (pread(file, &passes, sizeof passes, kOffset) == sizeof passes && passes != first) return true;
  }
  return false;
}

std::string text_file(int folder, const char* name) {
  std::string text;
  const Opened file(openat(folder, name, kRead));
  if (!file.is_open()) return text;
  constexpr std::size_t kMax = std::size_t{64} << 20;
  std::array<char, 65536> part;
  for (ssize_t n; (n = read(file.number(), part.data(), part.size())) > 0 && text.size() < kMax;)
    text.append(part.data(), static_cast<std::size_t>(n));
  return text;
}

constexpr const char* kRunFile = "run.json";

/// What the process's own run.json says.
struct WrittenRun {
  std::optional<std::int64_t> pid;
  std::optional<std::int64_t> base;
  std::vector<std::string> files;
  bool tables_kept = false;  // by an earlier recovery
};

WrittenRun read_run_file(int folder) {
  const std::string text = text_file(folder, kRunFile);
  WrittenRun run;
  JsonReader json(text);
  const auto within = [&json](auto&& member) {
    if (json.peek() == '{') json.object(member);
  };
  within([&](std::string_view key) {
    if (key == "pid") run.pid = json.integer();
    if (key == "time_zero") {
      within([&](std::string_view time) {
        if (time == "clock_monotonic_ns") run.base = json.integer();
      });
    }
    if (key == "recovered") {
      within([&](std::string_view what) {
        if (what == "tables_kept") run.tables_kept = json.boolean();
      });
    }
    if (key == "files" && json.peek() == '[') {
      json.array([&] {
        if (json.peek() == '"') run.files.emplace_back(json.string());
      });
    }
  });
  if (json.failed()) {  // nothing is certain
    run.pid.reset();
    run.base.reset();
  }
  return run;
}

/// Whether the process's own tables are there, or some of them: those that its run.json lists.
bool has_tables(int folder, const WrittenRun& run) {
  struct stat status {};
  return std::any_of(run.files.begin(), run.files.end(), [&](const std::string& name) {
    return name.find('/') == std::string::npos &&
           fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode);
  });
}

/// The record file of a run: in its folder, or where the pointer file in the folder says.
class Records {
 public:
  /// `shown`: the folder, for messages.
  Records(int folder, const std::string& shown)
      : folder_(folder), name_(shown + "/" + kFileName), beside_(openat(folder, kFileName, kRead)) {
    if (beside_.is_open()) return;
    none_ = errno == ENOENT;
    if (none_) {
      follow_pointer(shown);
    } else {
      problem_ = name_ + ": " + (errno == ELOOP ? "it is a link" : error_text(errno));
    }
  }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  bool none() const { return none_; }
  /// The message if recovery is impossible; empty otherwise.
  const std::string& problem() const { return problem_; }
  const std::string& name() const { return name_; }  ///< for messages
  const Opened& file() const { return elsewhere_ ? *elsewhere_ : beside_; }
  /// Meanwhile, another process may have created its own file under the name.
  bool is_of(const Header& header, std::string& problem) const {
    if (!elsewhere_ || (header.pid == pointer_.pid && header.base_utc == pointer_.base_utc)) return true;
    problem = "it is another run's";
    return false;
  }
  void remove() {
    if (elsewhere_ && is_still_there()) unlinkat(parent_->descriptor(), parent_->name().c_str(), 0);
    unlinkat(folder_, elsewhere_ ? kPointerName : kFileName, 0);
  }

 private:
  /// Whether the name still refers to the file that was read.
  bool is_still_there() const {
    struct stat read {};
    struct stat found {};
    return fstat(elsewhere_->number(), &read) == 0 &&
           fstatat(parent_->descriptor(), parent_->name().c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
           found.st_dev == read.st_dev && found.st_ino == read.st_ino;
  }

  void follow_pointer(const std::string& shown) {
    const Opened said(openat(folder_, kPointerName, kRead));
    struct stat sayer {};
    if (!said.is_open() || fstat(said.number(), &sayer) != 0) return;
    none_ = false;
    name_ = shown + "/" + kPointerName;
    const std::optional<RecordPointer> pointer = read_pointer(text_file(folder_, kPointerName));
    // The file that it names will be removed: it must be a record file of the same user.
    if (!pointer || !is_local_path(*pointer, sayer.st_uid)) {
      problem_ = name_ + ": it is not as libinject writes it";
      return;
    }
    pointer_ = *pointer;
    name_ = one_line(pointer_.path, 300);
    parent_.emplace(pointer_.path);
    elsewhere_.emplace(parent_->is_open() ? openat(parent_->descriptor(), parent_->name().c_str(), kRead)
                                          : -1);
    struct stat found {};
    if (!elsewhere_->is_open()) {
      problem_ = pointer_.host == host_name()
                     ? str_format("{}: its records were in {}, which can't be opened", shown, name_)
                     : str_format("{}: its records are on the host {}, in {}: run `injectctl recover` there",
                                  shown, one_line(pointer_.host, 100), name_);
    } else if (fstat(elsewhere_->number(), &found) != 0 || found.st_uid != sayer.st_uid) {
      problem_ = name_ + ": it belongs to another user";
    }
  }

  int folder_;
  std::string name_;
  std::string problem_;
  Opened beside_;
  bool none_ = false;
  RecordPointer pointer_;
  std::optional<ParentFolder> parent_;
  std::optional<Opened> elsewhere_;
};

/// A folder in the output folder, in which everything is made before any of it is moved into place. It is the
/// working directory meanwhile, so files are written there by names without a path, which cannot lead
/// elsewhere.
class Aside {
 public:
  /// `folder` is locked: anything there under the name was left by a killed recovery.
  explicit Aside(int folder)
      : folder_(folder),
        before_(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)),
        aside_(clear() && mkdirat(folder, kName, 0700) == 0
                   ? openat(folder, kName, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                   : -1),
        entered_(aside_.is_open() && fchdir(aside_.number()) == 0) {
    if (!entered_) problem_ = std::string(kName) + ": " + error_text(errno);
  }
  ~Aside() {
    if (entered_ && before_.is_open() && fchdir(before_.number()) != 0) entered_ = false;
    if (aside_.is_open()) clear();
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  const std::string& problem() const { return problem_; }

  /// Tables of the process that can't be recreated are kept, and listed in run.json.
  void list_kept(const Report& report) {
    for (const TableFile& table : table_files()) {
      struct stat status {};
      const std::string name(table.name);
      if (is_wanted(table, report) || fstatat(folder_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
        continue;
      const Opened mark(openat(aside_.number(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    }
  }

  /// What went wrong; empty if nothing did. Also removes the process's own unfinished version of the file.
  std::string put_in_place(const std::string& name) {
    if (renameat(aside_.number(), name.c_str(), folder_, name.c_str()) != 0)
      return name + ": " + error_text(errno);
    unlinkat(folder_, ("." + name + ".new").c_str(), 0);
    if (name == kRunFile) {
      for (const std::string& spare : ReservedFile::spare_names(name)) unlinkat(folder_, spare.c_str(), 0);
    }
    return {};
  }

 private:
  static constexpr const char* kName = ".recovering";

  /// Removes the folder and its files, or whatever else has the name; links are not followed. False: see
  /// errno.
  bool clear() {
    const int left = openat(folder_, kName, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (left < 0) return unlinkat(folder_, kName, 0) == 0 || errno == ENOENT;
    DIR* files = fdopendir(left);
    if (files == nullptr) {
      close(left);
      return false;
    }
    while (const dirent* file = readdir(files)) unlinkat(left, file->d_name, 0);
    closedir(files);
    return unlinkat(folder_, kName, AT_REMOVEDIR) == 0;
  }

  int folder_;
  Opened before_;
  Opened aside_;
  bool entered_;
  std::string problem_;
};

// The process's own run.json describes its tables; only its state is changed.
std::string keep_tables(int folder, const RecoveredInfo& recovered) {
  std::string text = text_file(folder, kRunFile);
  if (!mark_recovered(text, recovered))
    return "run.json is not as libinject writes it; it was left unchanged";
  AtomicFile file(".", kRunFile);
  file.file().buffer() = text;
  return file.finish() && file.commit() ? std::string() : file.error();
}

/// Whether the list in INJECT_TRACE, as in force, contains `format`.
bool traced(const RunInfo& run, std::string_view format) {
  const auto found = std::find_if(run.options.begin(), run.options.end(),
                                  [](const auto& option) { return option.first == "INJECT_TRACE"; });
  if (found == run.options.end()) return false;
  const std::string list = "," + found->second + ",";
  return list.find("," + std::string(format) + ",") != std::string::npos;
}

/// The raw records of a run that wrote some (INJECT_TRACE), recreated in the working directory.
class RawRecords {
 public:
  explicit RawRecords(Replay& replay)
      : run_(replay.run_info()),
        writer_({&replay.core().names, [&replay](std::uint32_t index) { return replay.thread(index); },
                 [this](std::uint32_t device) {
                   return device < run_.devices.size() ? run_.devices[device].name : std::string();
                 },
                 run_.pid, run_.base}),
        chrome_({&replay.core().names, &replay.core().ranges,
                 [&replay](std::uint32_t index) { return replay.thread(index); },
                 [this] { return std::span<const DeviceInfo>(run_.devices); }, program(), run_.pid, run_.base,
                 run_.base_utc, run_.rank, std::string()}) {
    csv_open_ = traced(run_, "csv") && writer_.open(".");
    chrome_open_ = traced(run_, "chrome") && chrome_.open(".");
  }
  ~RawRecords() { writer_.close(); }
  RawRecords(const RawRecords&) = delete;
  RawRecords& operator=(const RawRecords&) = delete;

  void take_from(Replay& replay) {
    if (csv_open_) replay.add_sink(writer_);
    if (chrome_open_) replay.add_sink(chrome_);
  }

  /// The replay is complete: stores in `run` how much was left out.
  void end(RunInfo& run) {
    if (csv_open_) run.trace_rows_left_out = writer_.rows_left_out();
    if (!chrome_open_) return;
    chrome_.add_readings(run, run.windows);
    run.trace_events_left_out = chrome_.left_out();
  }

  /// What went wrong; empty if nothing did, or there are no raw records. Appends the files' names to `made`.
  std::string finish(const RunInfo& run, std::vector<std::string>& made) {
    const std::string& opened = writer_.error().empty() ? chrome_.error() : writer_.error();
    if (!opened.empty()) return opened;
    if (csv_open_ && (!writer_.flush() || !writer_.close())) return writer_.error();
    if (chrome_open_ && !chrome_.complete(run.windows)) return chrome_.error();
    for (const TraceFile& file : trace_files()) {
      if (csv_open_) made.emplace_back(file.name);
    }
    if (chrome_open_) made.emplace_back(ChromeTrace::kFileName);
    return {};
  }

 private:
  std::string program() const {
    if (run_.command_line.empty()) return {};
    const std::string& path = run_.command_line.front();
    return path.substr(path.rfind('/') + 1);
  }

  RunInfo run_;
  TraceWriter writer_;
  ChromeTrace chrome_;
  bool csv_open_ = false;
  bool chrome_open_ = false;
};

std::string and_also(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

/// Of tables that were kept.
std::string missing_text(const RecoveredInfo& recovered) {
  std::vector<std::string> parts;
  const auto lacks = [&parts](std::uint64_t count, std::string_view noun) {
    if (count != 0) parts.push_back(plural(count, noun));
  };
  lacks(recovered.calls_not_kept, "call");
  lacks(recovered.beyond_submissions, "submission");
  lacks(recovered.beyond_records, "GPU record");
  std::string text;
  if (!parts.empty()) text = "; what came later is missing: " + and_also(parts);
  if (recovered.journal_cut) text += "; the journal is damaged, so the records were not removed";
  return text;
}

std::string missing_text(const RunInfo& run) {
  Losses losses = run.losses_outside;
  for (const WindowInfo& window : run.windows) losses.add(window.losses);
  const std::uint64_t launches = losses.missing_records + run.recovered->beyond_submissions;
  const std::uint64_t calls = losses.host_records + run.recovered->calls_not_kept;
  const bool cut = run.recovered->journal_cut;
  std::string text;
  if (launches == 0 && calls == 0 && !cut) text = "nothing that had been launched is missing";
  if (launches != 0)
    text = str_format("the GPU records of {} launches, copies and memsets are missing", launches);
  if (calls != 0) text += str_format("{}{} calls are missing", text.empty() ? "" : "; ", calls);
  if (cut) text += std::string(text.empty() ? "" : "; ") + "the journal is damaged";
  if (run.recovered->info_damaged)
    text += "; what the process was, and what it ran on, is damaged, so the records were not removed";
  return text;
}

}  // namespace

Outcome recover(const std::string& folder, bool keep) {
  const std::string path = folder + "/" + kFileName;
  const std::string shown = one_line(folder, 300);
  const auto failed = [](const std::string& name, const std::string& problem) {
    return Outcome{false, name + ": " + problem, {}};
  };
  const ParentFolder parent(path);
  if (!parent.is_open()) return failed(shown, parent.problem());
  // From here on, the folder is used through this descriptor: its path could lead elsewhere the next time.
  const Opened locked(openat(parent.descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!locked.is_open()) return failed(shown, error_text(errno));
  const int within = locked.number();
  if (flock(within, LOCK_EX | LOCK_NB) != 0)
    return failed(shown, errno == EWOULDBLOCK ? "another recovery is under way" : error_text(errno));

  Records records(within, shown);
  if (!records.problem().empty()) return {false, records.problem(), {}};
  if (records.none()) {
    const std::string text = text_file(within, kRunFile);
    if (text.find("\"state\": \"recovered\"") != std::string::npos)
      return {true, shown + " has already been recovered", {}};
    if (text.empty()) return {false, shown + " is not an output folder: it has no run.json", {}};
    return failed(shown, "there is nothing to recover: it has no file `records`");
  }
  MappedFile contents;
  Image image;
  std::string problem = map_records(records.file(), contents);
  if (!problem.empty() || !image.open(contents.bytes(), problem) || !records.is_of(image.header(), problem))
    return failed(records.name(), problem);
  if (still_runs(image.header()) || is_written_to(records.file().number()))
    return failed(records.name(), str_format("process {} is still writing to it", image.header().pid));
  const WrittenRun written = read_run_file(within);
  if ((written.pid && *written.pid != image.header().pid) ||
      (written.base && *written.base != static_cast<std::int64_t>(image.header().base)))
    return failed(shown, str_format("run.json is of process {}, and the records are of another run, of "
                                    "process {}: move one of them elsewhere",
                                    written.pid.value_or(0), image.header().pid));

  Aside aside(within);
  if (!aside.problem().empty()) return failed(shown, aside.problem());
  Replay replay(image);
  RawRecords raw(replay);
  raw.take_from(replay);
  replay.run();
  RunInfo run = replay.run_info();
  raw.end(run);
  // The words alone may be damaged as well. Without a gap in the records, and with no tables to keep, there
  // is nothing better than the records.
  const bool have_less = (image.live().journal_full && image.live().written_beyond) ||
                         (run.recovered->journal_cut && replay.blocks() < image.live().written_block);
  const bool tables_have_more = have_less && has_tables(within, written);
  Outcome outcome;
  std::vector<std::string> made;
  if (tables_have_more) {
    replay.keep_tables();
    const RecoveredInfo recovered = *replay.run_info().recovered;
    if (!written.tables_kept) {
      problem = keep_tables(within, recovered);
      made.emplace_back(kRunFile);
    }
    keep = keep || recovered.journal_cut;
    outcome.message = str_format(
        "the tables in {} are those that the process wrote itself: they have more than the records do{}",
        shown, missing_text(recovered));
  } else {
    const Report report = build_report(replay.statistics(), run);
    run.impossible_rates = report.impossible_rates;
    aside.list_kept(report);
    const std::vector<std::string> problems = write_all(".", report);
    for (const TableFile& table : table_files()) {
      if (is_wanted(table, report)) made.emplace_back(table.name);
    }
    problem = problems.empty() ? raw.finish(run, made) : problems.front();
    outcome.summary = summary_text(report, folder);
    outcome.message = "the tables are in " + shown + "; " + missing_text(run);
    keep = keep || run.recovered->info_damaged;
    made.emplace_back(kRunFile);  // last, since it shows that the others are there
  }
  for (const std::string& name : made) {
    if (problem.empty()) problem = aside.put_in_place(name);
  }
  if (!problem.empty()) return failed(shown, problem);
  if (!keep) records.remove();
  outcome.done = true;
  return outcome;
}

}  // namespace inject::recovery
