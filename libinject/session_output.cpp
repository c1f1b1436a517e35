// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the session writes: its folder, the tables in it, and the summary.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "libinject/config/job_place.h"
#include "libinject/config/out_path.h"
#include "libinject/host_io.h"
#include "libinject/log.h"
#include "libinject/nvtx/injection.h"
#include "libinject/output/summary.h"
#include "libinject/output/table_files.h"
#include "libinject/own_thread.h"
#include "libinject/process.h"
#include "libinject/record/clock.h"
#include "libinject/record/memory_use.h"
#include "libinject/session.h"
#include "libinject/window/gate.h"

namespace inject {

namespace {

// Between two writes, as multiples of the processor time that the last one took: where windows open again and
// again for hours, tables are large, and are to cost a hundredth of a processor at most.
constexpr Nanoseconds kWriteRest = 100;
constexpr Nanoseconds kMaxWriteInterval = 30 * kSecond;
// How long the last write waits for a reading of the devices' memory.
constexpr Nanoseconds kLastReadingWait = kSecond;

PathNames path_names() {
  return {getpid(), host_name(), environment_variable};
}

}  // namespace

std::string Session::expand_option_path(const std::string& pattern) {
  return expand_path(pattern, path_names(), working_directory()).path;
}

void Session::final_output() {
  // The exiting thread may be the program's.
  const QuietSignals quiet;
  device_reader_.wait(kLastReadingWait);
  device_reader_.stop();
  const std::lock_guard data(data_mutex_);
  const bool files = may_write();
  // The same report for all that is written at the end.
  Writing writing(*this, "closed");
  if (files) remove_records(write_files(writing, true));
  const bool shown = write_summary(writing);
  if (!shown && !said_folder_ && !folder_.empty()) Log::info("the files are in " + folder_);
}

bool Session::ensure_folder() {
  if (!folder_.empty()) return true;
  if (folder_failed_.load(std::memory_order_relaxed)) return false;
  PathResult result = expand_path(options_.out, path_names(), working_directory());
  if (result.error.empty()) result = make_unique_folder(result.path);
  if (!result.error.empty()) {
    folder_failed_.store(true, std::memory_order_relaxed);
    Log::error("no files are written: INJECT_OUT=" + options_.out + ": " + result.error);
    return false;
  }
  folder_ = result.path;
  shown_folder_.store(folder_.c_str(), std::memory_order_release);
  if (options_.metrics && options_.metrics_timeline && !timeline_.open(folder_))
    Log::error("no samples are written: " + timeline_.error());
  open_traces();
  if (options_.recover) open_records();
  return true;
}

void Session::open_traces() {
  if ((options_.trace & kTraceCsv) != 0) {
    if (trace_.open(folder_)) {
      drain_.trace_to(&trace_);
    } else {
      Log::error("no raw records are written: " + trace_.error());
    }
  }
  if ((options_.trace & kTraceChrome) != 0) {
    if (chrome_.open(folder_)) {
      drain_.timeline_to(&chrome_);
    } else {
      Log::error("no timeline is written: " + chrome_.error());
    }
  }
}

// The timeline is made whole where it may be the last time.
void Session::write_traces(const std::vector<WindowInfo>& windows) {
  const auto failed = [this](const std::string& problem) {
    if (!write_failed_) Log::error(problem);
    write_failed_ = trace_failed_ = true;
  };
  if ((options_.trace & kTraceCsv) != 0 && !trace_.flush()) failed(trace_.error());
  if ((options_.trace & kTraceChrome) != 0 && closed_on_disk_ && !chrome_.complete(windows))
    failed(chrome_.error());
}

RunInfo Session::run_info(const char* state) {
  RunInfo run;
  run.version = INJECT_VERSION;
  run.state = state;
  run.command_line = command_line();
  run.working_directory = working_directory();
  run.host = host_name();
  run.pid = pid_;
  run.rank = rank_from_environment(environment_variable).value_or("");
  run.job = job_from_environment(environment_variable);
  run.base = base_;
  run.base_utc = base_utc_;
  run.versions = library_versions();
  if (tracer_.loaded()) run.versions.emplace_back("cupti", std::to_string(tracer_.api().version));
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
  device_reader_.add_links(run.devices);
  run.windows_not_listed = windows_.not_listed();
  run.windows_time = windows_.total_time();
  run.windows_without_times = windows_.without_times();
  run.losses_outside = windows_.losses_outside();
  run.name_overflows = core_.names.overflows() + core_.mangled.overflows();
  run.shape_overflows = core_.shapes.overflows();
  run.range_overflows = core_.ranges.overflows() + nvtx_ranges_lost();
  run.trace_rows_left_out = trace_.rows_left_out();
  run.trace_events_left_out = chrome_.left_out();
  run.repeated_records = drain_.repeated();
  run.iteration_records_lost = statistics_.iterations().lost();
  run.iteration_signs_lost = core_.threads.dropped(RecordKind::kSign);
  run.busy_records_late = statistics_.late_for_busy_time();
  run.device_time_records_lost =
      statistics_.left_out_of_device_times() + core_.threads.dropped(RecordKind::kProcessorTime);
  const KernelMetrics& metrics = statistics_.metrics();
  run.metric_records_lost = metrics.late() + metrics.crowded() + metrics.impossible();
  run.graph_nodes_lost = core_.graph_nodes.overflows();
  run.graph_kernels_without_call = drain_.graph_kernels_without_call();
  run.graph_launches_without_records = drain_.graph_launches_without_records();
  run.batch = options_.batch;
  run.iterations = iteration_info();
  run.memory = memory_use.rows();
  run.allocations_not_held = memory_use.not_held();
  run.unknown_frees = memory_use.unknown_frees();
  run.metrics = sampler_.info();
  run.metrics.rows_left_out = timeline_.rows_left_out();
  run.overhead.open = overhead_.open;
  run.overhead.close = overhead_.close;
  run.overhead.write = overhead_.write;
  run.overhead.drain_cpu = overhead_.drain_cpu;
  run.overhead.attachments = overhead_.attachments;
  run.overhead.finalizations = overhead_.finalizations;
  run.overhead.device_readings = device_reader_.time();
  run.overhead.buffer_callbacks = Tracer::buffer_callback_time();
  run.overhead.gate = LaunchGate::held_for();
  run.overhead.gate_holds = LaunchGate::holds();
  run.overhead.buffers = buffers_.handled();
  return run;
}

void Session::list_threads(RunInfo& run) const {
  for (std::uint32_t i = 0; i < core_.threads.threads_seen(); ++i) {
    run.threads.push_back({static_cast<std::uint64_t>(core_.threads.tid(i)), core_.threads.thread_name(i)});
  }
}

bool Session::may_write() {
  return ensure_folder() || prometheus_.is_on();
}

Session::Writing::Writing(Session& session, const char* state) : begin(now()), begin_cpu(thread_cpu_time()) {
  // First: the run tells how much of them there is.
  session.write_raw_records(state);
  run = session.run_info(state);
  session.list_threads(run);
  run.windows = session.windows_.copy();
  try {
    report = build_report(session.statistics_, run);
    run.impossible_rates = report->impossible_rates;
  } catch (const std::exception&) {
    if (!std::exchange(session.write_failed_, true)) Log::error("cannot make the tables: out of memory");
  }
}

/// What is written as it comes, rather than made of the statistics.
void Session::write_raw_records(const char* state) {
  closed_on_disk_ = std::strcmp(state, "closed") == 0;
  if (!folder_.empty()) write_traces(windows_.copy());
  if (timeline_.is_open() && !timeline_.flush() && !write_failed_) {
    write_failed_ = true;
    Log::error(timeline_.error());
  }
}

void Session::write_files(const char* state) {
  Writing writing(*this, state);
  write_files(writing, false);
}

bool Session::write_files(Writing& writing, bool last) {
  RunInfo& run = writing.run;
  if (prometheus_.is_on() && writing.report) write_prometheus(writing, last);
  if (folder_.empty()) return false;
  const bool no_tables = windows_.opened() == 0 || run.windows.front().state == WindowState::kOpen;
  const std::vector<std::string> problems =
      no_tables || !writing.report ? write_run_json(folder_, run) : write_all(folder_, *writing.report);
  for (const std::string& problem : problems) {
    if (!write_failed_) Log::error(problem);
    write_failed_ = true;
  }
  if (problems.empty() && writing.report && !no_tables) journal_.written();
  keep_run_state();
  overhead_.write += now() - writing.begin;
  // Large tables less often: a window's end waits for a write that is under way. By processor time: how long
  // a disk takes for small ones says nothing.
  const Nanoseconds took = thread_cpu_time() - writing.begin_cpu;
  write_interval_.store(std::clamp(kWriteRest * took, kWriteInterval, kMaxWriteInterval),
                        std::memory_order_relaxed);
  return problems.empty() && writing.report && !trace_failed_;
}

// Before run.json, which says how often that failed.
void Session::write_prometheus(Writing& writing, bool last) {
  const PrometheusState state = last                          ? PrometheusState::kClosed
                                : writing.run.state == "open" ? PrometheusState::kOpen
                                                              : PrometheusState::kWaiting;
  if (!prometheus_.write(*writing.report, state) && prometheus_.info().failed == 1)
    Log::error("the Prometheus file: " + prometheus_.error());
  writing.run.prometheus = prometheus_.info();
}

bool Session::write_summary(Writing& writing) {
  if (options_.summary == SummaryTarget::kOff || !writing.report) return false;
  const RunInfo& run = writing.run;
  if (options_.summary == SummaryTarget::kStderr && !run.rank.empty() && run.rank != "0") return false;
  const std::string text = summary_text(*writing.report, folder_);
  if (options_.summary == SummaryTarget::kStderr) {
    write_quietly(STDERR_FILENO, text);
    return true;
  }
  OutputFile file;
  if (!file.open(expand_option_path(options_.summary_file))) {
    Log::error("the summary can't be written: " + file.error());
    return false;
  }
  file.buffer() = text;
  if (!file.flush()) Log::error("the summary can't be written: " + file.error());
  return false;
}

Nanoseconds Session::write_interval() const noexcept {
  return flushing_ != 0 ? kWriteInterval : write_interval_.load(std::memory_order_relaxed);
}

}  // namespace inject
