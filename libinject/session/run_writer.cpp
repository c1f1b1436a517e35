// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/run_writer.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <exception>
#include <memory>
#include <span>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/file_work.h"
#include "libinject/base/format.h"
#include "libinject/base/host_io.h"
#include "libinject/base/log.h"
#include "libinject/base/out_path.h"
#include "libinject/base/process.h"
#include "libinject/capture/cupti/tracer.h"
#include "libinject/capture/driver.h"
#include "libinject/capture/gate.h"
#include "libinject/capture/loaded_objects.h"
#include "libinject/capture/nvtx/injection.h"
#include "libinject/journal/run_state.h"
#include "libinject/model/job_place.h"
#include "libinject/output/summary.h"
#include "libinject/output/table_files.h"
#include "libinject/record/memory_use.h"
#include "libinject/record/torch_memory.h"

namespace inject {

namespace {

// Interval between two writes, as a multiple of the processor time that the last one took: if windows open
// again and again for hours, tables are large, and writing may cost a hundredth of a CPU at most.
constexpr Nanoseconds kWriteRest = 100;
constexpr Nanoseconds kMaxInterval = 30 * kSecond;
// Of all memory lines together, in the records: some 25 bytes each, of the 256 KB available for the run's
// state.
constexpr std::size_t kKeptIntervals = 4096;
// How long the program's end waits for the removal of an unused folder.
constexpr Nanoseconds kMaxDiscarding = kSecond;

// From COLUMNS, as in other programs, or from the terminal itself; if stderr is not a terminal, the width of
// a page.
std::size_t terminal_columns() {
  std::size_t columns = 0;
  if (const auto set = environment_variable("COLUMNS"); set && !set->empty())
    std::from_chars(set->data(), set->data() + set->size(), columns);
  winsize size{};
  if (columns == 0 && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns == 0 ? kPageColumns : std::clamp(columns, kLeastColumns, kPageColumns);
}

PathNames path_names() {
  return {getpid(), host_name(), environment_variable};
}

std::string program_name() {
  const std::vector<std::string> command = command_line();
  return command.empty() ? std::string() : command.front().substr(command.front().rfind('/') + 1);
}

std::string world_size_of(const std::optional<JobPlace>& job) {
  return job && job->world_size ? std::to_string(*job->world_size) : std::string();
}

ThreadInfo thread_info(const Core& core, std::uint32_t thread) {
  return {static_cast<std::uint64_t>(core.threads.tid(thread)), core.threads.thread_name(thread)};
}

}  // namespace

std::string expand_option_path(const std::string& pattern) {
  return expand_path(pattern, path_names(), working_directory()).path;
}

RunWriter::RunWriter(const Options& options, Sources sources, Clock clock)
    : options_(options),
      sources_(std::move(sources)),
      clock_(clock),
      pid_(getpid()),
      trace_({&sources_.core.names,
              [this](std::uint32_t thread) { return thread_info(sources_.core, thread); },
              [this](std::uint32_t device) {
                return device < devices_.size() ? devices_[device].name : std::string();
              },
              pid_, clock.base}),
      chrome_({&sources_.core.names, &sources_.core.ranges,
               [this](std::uint32_t thread) { return thread_info(sources_.core, thread); },
               [this] { return std::span<const DeviceInfo>(devices_); },
               (options.trace & kTraceChrome) != 0 ? program_name() : std::string(), pid_, clock.base,
               clock.base_utc, rank_from_environment(environment_variable).value_or(""),
               world_size_of(job_from_environment(environment_variable))}),
      timeline_(clock.base),
      journal_(sources_.core, sources_.windows),
      queue_([this] { return file_thread_.wake(); }),
      file_thread_([this] { queue_.run(); }) {
  trace_.write_behind(&queue_);
  chrome_.write_behind(&queue_);
  timeline_.write_behind(&queue_);
  if (options_.prometheus_file.empty()) return;
  prometheus_.open(expand_option_path(options_.prometheus_file), pid_);
  if (options_.prometheus_file.find('%') == std::string::npos &&
      rank_from_environment(environment_variable) == "1") {
    Log::warn("INJECT_PROM=" + options_.prometheus_file +
              ": all ranks on a host write this file, and only one rank's figures remain; add %r or %p");
  }
}

// The files close without the queue, which is destroyed before them.
RunWriter::~RunWriter() {
  trace_.write_behind(nullptr);
  chrome_.write_behind(nullptr);
  timeline_.write_behind(nullptr);
  queue_.run();
}

bool RunWriter::ensure_folder() {
  if (!make_folder()) return false;
  if (has_files()) return true;
  if (options_.metrics && options_.metrics_timeline && !timeline_.open(folder_))
    Log::error("no samples are written: " + timeline_.error());
  open_traces();
  has_files_.store(true, std::memory_order_release);
  return true;
}

void RunWriter::prepare_folder() {
  if (!make_folder()) return;
  while (records_.warm()) {
  }
}

void RunWriter::discard_folder() {
  if (folder_.empty() || !process_.is_this()) return;
  const auto discard = [this]() noexcept {
    try {
      if (written_.folder.is_in_place()) {
        records_.remove();
        written_.run_file.remove();
        rmdir(folder_.c_str());  // fails if somebody else has put something there
      }
    } catch (...) {
      // Out of memory: it stays.
    }
    discarded_.store(true, std::memory_order_release);
  };
  if (!queue_.add(0, discard)) queue_.run();
  const Nanoseconds deadline = now() + kMaxDiscarding;
  while (!discarded_.load(std::memory_order_acquire) && now() < deadline) sleep_for(kMillisecond);
}

bool RunWriter::make_folder() {
  if (!folder_.empty()) return true;
  if (folder_failed_.load(std::memory_order_relaxed)) return false;
  const FileWork work;
  PathResult result = expand_path(options_.out, path_names(), working_directory());
  if (result.error.empty()) result = make_unique_folder(result.path);
  if (!result.error.empty()) {
    folder_failed_.store(true, std::memory_order_relaxed);
    Log::error("no files are written: INJECT_OUT=" + options_.out + ": " + result.error);
    return false;
  }
  folder_ = result.path;
  reserve_run_json(folder_, written_);
  shown_folder_.store(folder_.c_str(), std::memory_order_release);
  if (options_.recover) open_records();
  return true;
}

void RunWriter::open_traces() {
  if ((options_.trace & kTraceCsv) != 0) {
    if (!trace_.open(folder_)) Log::error("no raw records are written: " + trace_.error());
    sources_.drain.add_sink(trace_);  // counts the rows that it can't write
  }
  if ((options_.trace & kTraceChrome) != 0) {
    if (chrome_.open(folder_)) {
      sources_.drain.add_sink(chrome_);
      sources_.statistics.tell_places(
          [this](std::span<const PlacedLaunch> launches) { chrome_.add(launches, sources_.core.places); });
    } else {
      Log::error("no timeline is written: " + chrome_.error());
    }
  }
}

void RunWriter::open_records() {
  const QuietSignals quiet;
  std::string problem;
  const bool made = records_.open(folder_, sources_.core, sources_.buffers, journal_,
                                  {clock_.base, clock_.base_utc}, problem);
  if (!problem.empty()) {
    Log::warn((made ? "if the process is killed, records not yet processed are lost: "
                    : "records are kept in memory, and are lost if the process is killed: ") +
              problem);
  }
  if (!made) return;
  keeps_records_.store(true, std::memory_order_relaxed);
  sources_.drain_sources.log_to(journal_);
  journal_known_steps();
  keep_run_state();
}

// Steps that ran before there was a journal: the tables have them, and recovered tables must have them too.
void RunWriter::journal_known_steps() {
  Nanoseconds told = 0;
  for (const UnprofiledStep& step : sources_.statistics.iterations().unprofiled_steps()) {
    IterationBoundary boundary;
    boundary.number = step.number;
    boundary.begin = step.begin;
    if (step.begin != told) journal_.boundary(boundary);
    ++boundary.number;
    boundary.begin = told = step.begin + step.duration;
    boundary.unprofiled_before = true;
    boundary.units_before = step.units;
    journal_.boundary(boundary);
  }
}

void RunWriter::keep_run_state() {
  if (!records_.is_open()) return;
  recovery::Live& live = records_.live();
  if (const std::uint32_t version = sources_.cupti_version(); version != 0)
    live.cupti_version.store(version, std::memory_order_relaxed);
  live.clock_ahead.store(Tracer::clock_ahead_of_ours(), std::memory_order_relaxed);
  journal_.renew_thread_names();
  RunInfo run = run_info("open");
  note_raw_records(run);
  for (MemoryLine& line : run.memory_lines)
    MemorySeries::shorten(line.intervals, kKeptIntervals / run.memory_lines.size());
  records_.write_info(recovery::encode_run(std::move(run)));
}

void RunWriter::tend_records() {
  records_.warm();
  if (!records_.unshare_blocks()) {
    Log::warn(
        "a copy of the file `records` shares its blocks, and new ones cannot be allocated (no space, or "
        "Linux older than 5.14): while that copy exists, a full disk kills the program (SIGBUS)");
  }
}

void RunWriter::remove_records(bool all_written) {
  if (!records_.is_open()) return;
  if (all_written) {
    keeps_records_.store(false, std::memory_order_relaxed);
    records_.remove();
  } else {
    Log::warn(
        written_.folder.is_in_place()
            ? str_format(
                  "the records are kept: once files can be written, `injectctl recover {}` makes the tables",
                  folder_)
            : str_format(
                  "{} has been moved or removed: `injectctl recover` on where it is now writes the tables",
                  folder_));
  }
}

RunInfo RunWriter::run_info(const char* state) {
  RunInfo run;
  run.version = INJECT_VERSION;
  run.state = state;
  run.command_line = command_line();
  run.working_directory = working_directory();
  run.host = host_name();
  run.pid = pid_;
  run.rank = rank_from_environment(environment_variable).value_or("");
  run.job = job_from_environment(environment_variable);
  run.base = clock_.base;
  run.base_utc = clock_.base_utc;
  if (const std::string driver = driver_version(); !driver.empty())
    run.versions.emplace_back("driver", driver);
  for (auto& library : cuda_libraries()) run.versions.push_back(std::move(library));
  if (const std::uint32_t version = sources_.cupti_version(); version != 0)
    run.versions.emplace_back("cupti", std::to_string(version));
  run.options = options_.in_force;
#if !INJECT_HAVE_CUDNN
  run.groups_left_out.emplace_back("cudnn");
#endif
#if !INJECT_HAVE_NCCL
  run.groups_left_out.emplace_back("nccl");
#endif
  run.messages = Log::notable();
  // Inside cuInit, where an `always` window opens, the driver does not show its devices yet.
  if (devices_.empty()) devices_ = devices();
  run.devices = devices_;
  run.windows_not_listed = sources_.windows.not_listed();
  run.windows_time = sources_.windows.total_time();
  run.windows_without_times = sources_.windows.without_times();
  run.losses_outside = sources_.windows.losses_outside();
  run.name_overflows = sources_.core.names.overflows() + sources_.core.mangled.overflows();
  run.shape_overflows = sources_.core.shapes.overflows();
  run.places_lost = sources_.core.places.overflows() + sources_.core.captured_graphs.lost() +
                    sources_.statistics.code_times().left_out();
  run.range_overflows = sources_.core.ranges.overflows() + nvtx_ranges_lost();
  run.repeated_records = sources_.drain.repeated();
  run.iteration_records_lost = sources_.statistics.iterations().lost();
  run.iteration_signs_lost = sources_.core.threads.dropped(RecordKind::kSign);
  run.busy_records_late = sources_.statistics.late_for_busy_time();
  run.device_time_records_lost = sources_.statistics.left_out_of_device_times() +
                                 sources_.core.threads.dropped(RecordKind::kProcessorTime);
  const KernelMetrics& metrics = sources_.statistics.metrics();
  run.metric_records_lost = metrics.late() + metrics.crowded() + metrics.impossible();
  run.graph_nodes_lost = sources_.core.graph_nodes.overflows();
  run.graph_kernels_without_call = sources_.drain.graph_kernels_without_call();
  run.graph_launches_without_records = sources_.drain.graph_launches_without_records();
  run.batch = options_.batch;
  run.unit_source = options_.unit_source();
  std::vector<MemoryLine> of_torch;
  run.memory_lines_lost = torch_memory.copy(of_torch);
  MemoryCopy memory = memory_use.copy();
  run.memory = std::move(memory.rows);
  run.memory_lines = std::move(memory.lines);
  for (MemoryLine& line : of_torch) run.memory_lines.push_back(std::move(line));
  run.memory_lines_lost += memory.lines_missing;
  run.memory_until = memory.time;
  run.allocations_not_held = memory_use.not_held();
  run.unknown_frees = memory_use.unknown_frees();
  run.overhead.write = time();
  run.overhead.buffer_callbacks = Tracer::buffer_callback_time();
  run.overhead.gate = LaunchGate::held_for();
  run.overhead.gate_holds = LaunchGate::holds();
  run.overhead.buffers = sources_.buffers.handled();
  sources_.complete(run);
  return run;
}

// How much of the continuously written data is missing from its file, as far as known.
void RunWriter::note_raw_records(RunInfo& run) {
  const std::string samples = timeline_.failed() ? timeline_.error() : std::string();
  for (const std::string& problem : {trace_.error(), chrome_.error(), samples}) {
    if (!problem.empty() && !write_failed_.exchange(true)) Log::error(problem);
  }
  const bool behind = trace_.fell_behind() || chrome_.fell_behind();
  if (behind && !write_failed_.exchange(true))
    Log::error("raw records are left out: the output folder is too slow for them (INJECT_TRACE)");
  if (behind || !trace_.error().empty() || !chrome_.error().empty()) trace_failed_ = true;
  run.trace_rows_left_out = trace_.rows_left_out();
  run.trace_events_left_out = chrome_.left_out();
  run.metrics.rows_left_out = timeline_.rows_left_out();
}

bool RunWriter::may_write() {
  return ensure_folder() || prometheus_.is_on();
}

RunWriter::Writing::Writing(RunWriter& writer, const char* state)
    : begin(now()), begin_cpu(thread_cpu_time()) {
  // The run lacks device readings of windows that end after this copy is made.
  const std::vector<WindowInfo> read_windows = writer.sources_.windows.copy();
  run = writer.run_info(state);
  const ThreadRegistry& threads = writer.sources_.core.threads;
  for (std::uint32_t i = 0; i < threads.threads_seen(); ++i)
    run.threads.push_back(thread_info(writer.sources_.core, i));
  run.windows = writer.sources_.windows.copy();
  writer.flush_raw_records(run, read_windows);
  writer.note_raw_records(run);
  try {
    report = build_report(writer.sources_.statistics, run, &writer.sources_.core.places);
    run.impossible_rates = report->impossible_rates;
  } catch (const std::exception&) {
    if (!writer.write_failed_.exchange(true)) Log::error("cannot make the tables: out of memory");
  }
}

// Flushes continuously written data, which is not made from the statistics. The timeline is completed only if
// this may be the last time.
void RunWriter::flush_raw_records(const RunInfo& run, std::span<const WindowInfo> read_windows) {
  if (folder_.empty()) return;
  if ((options_.trace & kTraceCsv) != 0) trace_.flush();
  if ((options_.trace & kTraceChrome) != 0 && run.state == "closed") {
    chrome_.add_readings(run, read_windows);
    chrome_.complete(run.windows);
  }
  if (timeline_.is_open()) timeline_.flush();
}

// Records that arrive after the last files are dropped; their number is not written any more.
void RunWriter::close_raw_records() {
  trace_.close();
  chrome_.close();
  timeline_.close();
}

RunWriter::Prepared RunWriter::prepare(const char* state) {
  Writing writing(*this, state);
  Prepared files;
  files.begin = writing.begin;
  files.processor_time = writing.begin_cpu;
  files.closed = writing.run.state == "closed";
  files.complete = writing.report.has_value();
  if (writing.report) {
    const PrometheusState waiting =
        writing.run.state == "open" ? PrometheusState::kOpen : PrometheusState::kWaiting;
    if (prometheus_.is_on()) files.prometheus = prometheus_.text(*writing.report, waiting);
    try {
      if (!folder_.empty() && !no_tables_yet(writing.run)) files.tables = table_texts(*writing.report);
    } catch (const std::exception& problem) {
      files.problems.push_back(str_format("cannot write the tables: {}", problem.what()));
    }
    files.journalled = journal_.position();
  }
  // Last, because the report refers to it.
  writing.report.reset();
  files.run = std::move(writing.run);
  // By processor time, because the time a disk takes for small tables says nothing.
  files.processor_time = thread_cpu_time() - files.processor_time;
  return files;
}

void RunWriter::put_behind(Prepared& files, const std::function<void()>& done) noexcept {
  try {
    if (!queue_.add(
            0, [this, &files] { put(files); }, done))
      queue_.run();
  } catch (...) {
    // No memory for the job: write here and now.
    {
      const auto stopped = queue_.stop();
      put(files);
    }
    done();
  }
}

void RunWriter::put(Prepared& files) noexcept {
  if (closing_) {
    files.tables.reset();
    return;
  }
  const Nanoseconds begin_cpu = thread_cpu_time();
  try {
    if (files.prometheus) write_prometheus(*files.prometheus, files.run);
    if (!folder_.empty()) {
      const FileWork work;
      std::vector<std::string> problems =
          files.tables ? write_all(folder_, std::move(*files.tables), files.run, written_)
                       : write_run_json(folder_, files.run, written_);
      if (files.problems.empty()) files.problems = std::move(problems);
    }
    account(files.problems, files.complete, files.begin);
  } catch (...) {
    // Out of memory for a message. What was there before stays, and the journal does not mark it as written.
    files.tables.reset();
    incomplete_.store(true, std::memory_order_relaxed);
  }
  files.processor_time += thread_cpu_time() - begin_cpu;
}

void RunWriter::finish(const Prepared& files) {
  if (folder_.empty()) return;
  closed_on_disk_ = files.closed;
  if (files.problems.empty() && files.tables) journal_.written(files.journalled);
  keep_run_state();
  // Write large tables less often: a window's end waits for a write in progress.
  interval_.store(std::clamp(kWriteRest * files.processor_time, kInterval, kMaxInterval),
                  std::memory_order_relaxed);
}

bool RunWriter::write_last() {
  const bool files = may_write();
  // One report for everything that is written at the end.
  Writing writing(*this, "closed");
  // Prepared in advance, in case the program ends before the files are written.
  const bool on_terminal = summary_on_terminal(writing);
  if (files && on_terminal) {
    early_summary_.store(new std::string(summary_text(*writing.report, folder_, terminal_columns())),
                         std::memory_order_release);
  }
  if (files) {
    remove_records(write_last_files(writing));
    const std::unique_ptr<std::string> unused(early_summary_.exchange(nullptr, std::memory_order_acq_rel));
    if (on_terminal && unused == nullptr) return true;  // the early summary was written
  }
  return write_summary(writing);
}

void RunWriter::stop() noexcept {
  closing_ = true;
  const auto stopped = queue_.stop();
  if (std::exchange(last_written_, true)) return;
  written_.write = ReservedFile::Write::kLast;
  mark_outdated(written_);
}

bool RunWriter::no_tables_yet(const RunInfo& run) const {
  return sources_.windows.opened() == 0 || run.windows.front().state == WindowState::kOpen;
}

bool RunWriter::write_last_files(Writing& writing) {
  closing_ = true;
  FileWork::begin_files(0);  // their number is not known until earlier jobs are done
  close_raw_records();
  const auto stopped = queue_.finish();
  written_.write = ReservedFile::Write::kLast;
  const bool all = write_last_tables(writing);
  last_written_ = true;
  return all;
}

bool RunWriter::write_last_tables(Writing& writing) {
  RunInfo& run = writing.run;
  note_raw_records(run);
  run.overhead.write = time() + now() - writing.begin;
  if (prometheus_.is_on() && writing.report)
    write_prometheus(prometheus_.text(*writing.report, PrometheusState::kClosed), run);
  // Files may have been written, or have failed, since the report was made.
  run.messages = Log::notable();
  if (folder_.empty()) return false;
  const FileWork work;
  const std::vector<std::string> problems = no_tables_yet(run) || !writing.report
                                                ? write_run_json(folder_, run, written_)
                                                : write_all(folder_, *writing.report, written_);
  run.stale_files = written_.stale;
  run.files_not_written = problems.size();
  closed_on_disk_ = true;
  account(problems, writing.report.has_value(), writing.begin);
  // The records may stay because of the raw ones: they must not appear to have more than these tables.
  if (problems.empty() && writing.report && !no_tables_yet(run)) journal_.written(journal_.position());
  keep_run_state();
  if (written_.folder.is_in_place()) written_.run_file.remove();
  return problems.empty() && writing.report && !trace_failed_;
}

void RunWriter::account(const std::vector<std::string>& problems, bool report_made, Nanoseconds begin) {
  if (!problems.empty() && !write_failed_.exchange(true)) Log::error(problems.front());
  incomplete_.store(!problems.empty() || !report_made || trace_failed_, std::memory_order_relaxed);
  time_ += now() - begin;
}

// Before run.json, which has the number of failures.
void RunWriter::write_prometheus(const std::string& text, RunInfo& run) {
  if (!prometheus_.write(text) && prometheus_.info().failed == 1)
    Log::error("INJECT_PROM: " + prometheus_.error());
  run.prometheus = prometheus_.info();
}

void RunWriter::write_early_summary() noexcept {
  // Leaked: the process is ending.
  if (const std::string* text = early_summary_.exchange(nullptr, std::memory_order_acq_rel))
    write_quietly(STDERR_FILENO, *text);
}

bool RunWriter::summary_on_terminal(const Writing& writing) const {
  return options_.summary == SummaryTarget::kStderr && writing.report &&
         (writing.run.rank.empty() || writing.run.rank == "0");
}

bool RunWriter::write_summary(const Writing& writing) {
  if (options_.summary == SummaryTarget::kOff || !writing.report) return false;
  if (options_.summary == SummaryTarget::kStderr && !summary_on_terminal(writing)) return false;
  const bool to_terminal = options_.summary == SummaryTarget::kStderr;
  const std::string text =
      summary_text(*writing.report, folder_, to_terminal ? terminal_columns() : kPageColumns);
  if (to_terminal) {
    write_quietly(STDERR_FILENO, text);
    return true;
  }
  OutputFile file;
  bool written = file.open(expand_option_path(options_.summary_file));
  if (written) {
    file.buffer() = text;
    written = file.flush();
  }
  if (!written) Log::error("INJECT_SUMMARY: the summary can't be written: " + file.error());
  return false;
}

}  // namespace inject
