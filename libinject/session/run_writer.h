// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/base/file_queue.h"
#include "libinject/config/options.h"
#include "libinject/journal/journal.h"
#include "libinject/journal/record_file.h"
#include "libinject/model/run_info.h"
#include "libinject/output/chrome_trace.h"
#include "libinject/output/metric_timeline.h"
#include "libinject/output/prometheus_file.h"
#include "libinject/output/table_files.h"
#include "libinject/output/trace.h"
#include "libinject/pipeline/drain.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/buffers.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/report/report.h"
#include "libinject/session/drain_sources.h"
#include "libinject/session/file_thread.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Expands a file name given in an option, with this process's %p, %h, %r and environment.
std::string expand_option_path(const std::string& pattern);

/// The run's folder and everything that is written: tables, run.json, summary, raw records, the Prometheus
/// file, and what is needed if the process is killed. Call with the pipeline's lock, except for what is
/// marked as callable from any thread.
class RunWriter {
 public:
  /// What the files are written from.
  struct Sources {
    Core& core;
    WindowLog& windows;
    Statistics& statistics;
    Drain& drain;
    DrainSources& drain_sources;
    ActivityBuffers& buffers;
    /// CUPTI's version, 0 while it is not loaded.
    std::function<std::uint32_t()> cupti_version;
    /// Adds what other parts know about the run: devices' links, iterations, sampling, the time that
    /// attaching and draining took.
    std::function<void(RunInfo&)> complete;
  };
  struct Clock {
    Nanoseconds base = 0;        ///< RunInfo::base
    std::uint64_t base_utc = 0;  ///< RunInfo::base_utc
  };

  RunWriter(const Options& options, Sources sources, Clock clock);
  ~RunWriter();
  RunWriter(const RunWriter&) = delete;
  RunWriter& operator=(const RunWriter&) = delete;

  // Any thread.
  /// The folder, once it has been made; null before.
  const char* shown_folder() const noexcept { return shown_folder_.load(std::memory_order_acquire); }
  /// True if the folder and the continuously written files exist.
  bool has_files() const noexcept { return has_files_.load(std::memory_order_acquire); }
  /// False if that folder has been moved or removed since.
  bool folder_in_place() const noexcept { return written_.folder.is_in_place(); }
  bool folder_failed() const noexcept { return folder_failed_.load(std::memory_order_relaxed); }
  /// Interval between two writes of the files: longer if tables are large.
  Nanoseconds interval() const noexcept { return interval_.load(std::memory_order_relaxed); }
  /// True if no run.json on disk says that a window is open.
  bool closed_on_disk() const noexcept { return closed_on_disk_.load(std::memory_order_relaxed); }
  /// True if not everything that was to be written is on disk.
  bool incomplete() const noexcept { return incomplete_.load(std::memory_order_relaxed); }
  /// True if the folder has what `injectctl recover` needs.
  bool keeps_records() const noexcept { return keeps_records_.load(std::memory_order_relaxed); }
  /// Writes the summary to the terminal while the last files are still being written: for a thread that does
  /// not wait for them.
  void write_early_summary() noexcept;
  /// Time spent writing.
  Nanoseconds time() const noexcept { return time_.load(std::memory_order_relaxed); }

  static constexpr Nanoseconds kInterval = kSecond;

  /// Creates the folder and the continuously written files, once.
  bool ensure_folder();
  /// Before the first window: creates the folder and the file for records, and prepares that file's pages, so
  /// that the program's threads do not wait for them in the window.
  void prepare_folder();
  /// No window has opened: removes what prepare_folder() created, in a second at most. The last call.
  void discard_folder();
  const std::string& folder() const { return folder_; }
  /// Like ensure_folder(); false if there is no folder and no file is written beside it either.
  bool may_write();

  /// What is to be written: the run so far, as text.
  struct Prepared {
    Nanoseconds begin = 0;
    Nanoseconds processor_time = 0;
    bool closed = false;  ///< RunInfo::state
    RunInfo run;
    std::optional<TableTexts> tables;  ///< nothing if there are none yet
    bool complete = false;             ///< false if there was no memory for the report
    std::optional<std::string> prometheus;
    recovery::Journal::Position journalled;
    // Set by put():
    std::vector<std::string> problems;
  };
  /// All files are written in three steps, so that no thread waits for a slow folder with the pipeline's lock
  /// held: prepared, put into the folder, accounted for. `state`: RunInfo::state.
  Prepared prepare(const char* state);
  /// Any thread, without the lock: the file thread calls put() and then `done`; if it can't be started, this
  /// thread does. `done` is not called if the last files are written first.
  void put_behind(Prepared& files, const std::function<void()>& done) noexcept;
  void finish(const Prepared& files);
  /// Any thread, without the lock: nothing is put there from here on, and run.json says that it is
  /// incomplete.
  void stop() noexcept;
  /// Any thread: the run is ending. Raw records wait for a slow folder instead of being left out.
  void be_patient() noexcept { queue_.be_patient(); }
  /// Writes for the last time, with the summary. True if the summary on the terminal names the folder.
  bool write_last();

  /// What another process needs to produce the tables if this one is killed.
  void journal_known_steps();
  void keep_run_state();
  /// Prepares further pages of the record file, and gives it blocks of its own.
  void tend_records();

  MetricTimeline& timeline() { return timeline_; }
  ChromeTrace& chrome() { return chrome_; }
  recovery::Journal& journal() { return journal_; }

 private:
  /// The common input of all files of one write.
  struct Writing {
    Writing(RunWriter& writer, const char* state);
    Writing(const Writing&) = delete;  // the report refers to the run
    Writing& operator=(const Writing&) = delete;
    Nanoseconds begin;
    Nanoseconds begin_cpu;
    RunInfo run;
    std::optional<Report> report;  ///< nothing if there was no memory for it, which has been logged
  };

  bool make_folder();
  void open_traces();
  void open_records();
  void remove_records(bool all_written);
  RunInfo run_info(const char* state);
  void flush_raw_records(const RunInfo& run, std::span<const WindowInfo> read_windows);
  void note_raw_records(RunInfo& run);
  void close_raw_records();
  bool no_tables_yet(const RunInfo& run) const;
  void put(Prepared& files) noexcept;
  bool write_last_files(Writing& writing);
  bool write_last_tables(Writing& writing);
  void write_prometheus(const std::string& text, RunInfo& run);
  void account(const std::vector<std::string>& problems, bool report_made, Nanoseconds begin);
  bool summary_on_terminal(const Writing& writing) const;
  bool write_summary(const Writing& writing);

  const Options& options_;
  Sources sources_;
  const Clock clock_;
  const int pid_;
  const OwnProcess process_;
  std::vector<DeviceInfo> devices_;  // queried at the first write

  std::string folder_;  // set once
  std::atomic<bool> has_files_{false};
  std::atomic<bool> discarded_{false};
  std::atomic<const char*> shown_folder_{nullptr};
  std::atomic<bool> folder_failed_{false};
  std::atomic<bool> incomplete_{false};
  std::atomic<bool> keeps_records_{false};
  std::atomic<std::string*> early_summary_{nullptr};  // the thread that takes it writes the summary
  TraceWriter trace_;
  ChromeTrace chrome_;
  MetricTimeline timeline_;
  PrometheusFile prometheus_;
  recovery::Journal journal_;
  recovery::RecordFile records_;

  FileQueue queue_;  // for everything put into the folder, up to the last files
  FileThread file_thread_;
  WrittenTables written_;                  // used by whoever runs the queue's jobs, or has stopped it
  bool last_written_ = false;              // includes these tables
  std::atomic<bool> closing_{false};       // from here on, only the last files are put there
  std::atomic<bool> write_failed_{false};  // logged once
  std::atomic<bool> trace_failed_{false};  // raw records are missing from the file
  std::atomic<bool> closed_on_disk_{true};
  std::atomic<Nanoseconds> interval_{kInterval};
  std::atomic<Nanoseconds> time_{0};
};

}  // namespace inject
