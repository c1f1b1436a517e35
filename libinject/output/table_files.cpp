// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/table_files.h"

#include <array>
#include <cstdio>
#include <exception>
#include <memory>

#include "libinject/output/atomic_file.h"
#include "libinject/output/copy_table.h"
#include "libinject/output/csv.h"
#include "libinject/output/diagnosis_report.h"
#include "libinject/output/memory_table.h"
#include "libinject/output/metric_tables.h"
#include "libinject/output/run_json.h"
#include "libinject/output/shape_tables.h"
#include "libinject/output/table_cells.h"
#include "libinject/output/window_tables.h"
#include "libinject/stats/kernel_use.h"

namespace inject {

namespace {

constexpr std::string_view kRunFile = "run.json";

template <typename Row>
std::uint64_t total_of(const std::vector<Row>& rows) {
  std::uint64_t total = 0;
  for (const Row& row : rows) total += row.stats->sum();
  return total;
}

/// Total, count, average, median, minimum, maximum, standard deviation: in all of Nsight Systems' summaries
/// of times.
void time_cells(CsvRow& row, const SampleStats& stats) {
  row.number(stats.sum()).number(stats.count());
  row.decimal(stats.mean(), 1).decimal(stats.median(), 1);
  row.number(stats.min()).number(stats.max()).decimal(stats.stddev(), 1);
}

/// As Nsight Systems prints GridXYZ and BlockXYZ: each number right-aligned in four columns.
std::string dimensions(const std::array<std::int32_t, 3>& size) {
  std::array<char, 48> text{};
  const int length = std::snprintf(text.data(), text.size(), "%4d %4d %4d", size[0], size[1], size[2]);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string_view style_name(RangeStyle style) {
  return style == RangeStyle::kStartEnd ? "StartEnd" : "PushPop";
}

void thread_id(CsvRow& row, std::uint32_t thread, const RunInfo& run) {
  if (thread < run.threads.size() && run.threads[thread].tid != 0) {
    row.number(run.threads[thread].tid);
  } else {
    row.empty();
  }
}

std::string_view thread_name(std::uint32_t thread, const RunInfo& run) {
  if (thread < run.threads.size() && run.threads[thread].tid != 0) return run.threads[thread].name;
  return thread == kOtherIndex ? "[other]" : "[unknown]";
}

void time_rows(const std::vector<TimeRow>& rows, std::string& text, const TextSink& sink) {
  const std::uint64_t total = total_of(rows);
  for (const TimeRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.stats->sum(), total), 1);
    time_cells(row, *entry.stats);
    row.text(entry.name).end();
    sink(text);
  }
}

void kernel_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  time_rows(statistics.kernels(), text, sink);
}

void api_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  time_rows(statistics.api_calls(), text, sink);
}

void operation_time_rows(const Statistics& statistics, const RunInfo&, std::string& text,
                         const TextSink& sink) {
  time_rows(statistics.operation_times(), text, sink);
}

void operation_size_rows(const Statistics& statistics, const RunInfo&, std::string& text,
                         const TextSink& sink) {
  for (const TimeRow& entry : statistics.operation_sizes()) {
    const SampleStats& stats = *entry.stats;
    CsvRow row(text);
    row.decimal(megabytes(stats.sum()), 3).number(stats.count());
    row.decimal(megabytes(stats.mean()), 3).decimal(megabytes(stats.median()), 3);
    row.decimal(megabytes(stats.min()), 3)
        .decimal(megabytes(stats.max()), 3)
        .decimal(megabytes(stats.stddev()), 3);
    row.text(entry.name).end();
    sink(text);
  }
}

void shape_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const std::vector<ShapeRow> rows = statistics.kernel_shapes();
  const std::uint64_t total = total_of(rows);
  for (const ShapeRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.stats->sum(), total), 1);
    time_cells(row, *entry.stats);
    if (entry.other) {
      row.empty().empty();
    } else {
      row.text(dimensions(entry.grid)).text(dimensions(entry.block));
    }
    row.text(entry.name).end();
    sink(text);
  }
}

/// From Occupancy to Lost Time.
void use_cells(CsvRow& row, const DetailRow& entry, const KernelUse& use) {
  if (use.occupancy) {
    row.decimal(100 * use.occupancy->share, 1).number(use.occupancy->blocks);
    row.text(limiter_text(use.occupancy->limiters));
  } else {
    row.empty().empty().empty();
  }
  if (use.grid) {
    row.decimal(use.grid->waves, 2).decimal(100 * use.grid->efficiency, 1);
  } else {
    row.empty().empty();
  }
  row.text(tensor_cores_name(entry.cores));
  if (use.lost_time) {
    row.number(*use.lost_time);
  } else {
    row.empty();
  }
}

void detail_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  const std::vector<DetailRow>& rows = statistics.kernel_details();
  std::uint64_t total = 0;
  for (const DetailRow& entry : rows) total += entry.time.sum;
  for (const DetailRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.time.sum, total), 1).number(entry.time.sum).number(entry.time.count);
    row.decimal(entry.time.mean(), 1).number(entry.time.smallest()).number(entry.time.max);
    if (entry.other) {
      empty_cells(row, 18);  // Device to Lost Time
    } else {
      row.number(entry.device);
      for (const std::int32_t size : entry.grid) row.number(size);
      for (const std::int32_t size : entry.block) row.number(size);
      row.number(entry.registers_per_thread)
          .number(entry.static_shared_bytes)
          .number(entry.dynamic_shared_bytes);
      row.number(entry.local_bytes_per_thread);
      use_cells(row, entry, kernel_use(entry, run.devices));
    }
    row.text(entry.name).end();
    sink(text);
  }
}

void range_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const std::vector<RangeRow> rows = statistics.ranges();
  const std::uint64_t total = total_of(rows);
  for (const RangeRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.stats->sum(), total), 1);
    time_cells(row, *entry.stats);
    row.text(entry.other ? "" : style_name(entry.style)).text(entry.name).end();
    sink(text);
  }
}

void range_kernel_rows(const Statistics& statistics, const RunInfo& run, std::string& text,
                       const TextSink& sink) {
  for (const RangeKernelRow& entry : statistics.range_kernels()) {
    const SampleStats& stats = *entry.stats;
    CsvRow row(text);
    row.text(entry.range).text(entry.in_range && !entry.other ? style_name(entry.style) : "").number(run.pid);
    thread_id(row, entry.thread, run);
    row.number(entry.range_instances).number(stats.count()).number(stats.sum());
    row.decimal(stats.mean(), 1).decimal(stats.median(), 1);
    row.number(stats.min()).number(stats.max()).decimal(stats.stddev(), 1);
    row.text(entry.kernel).end();
    sink(text);
  }
}

void library_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const std::vector<LibraryRow> rows = statistics.library_calls();
  std::uint64_t total = 0;
  for (const LibraryRow& entry : rows) total += entry.self.kernels.sum;
  for (const LibraryRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.self.kernels.sum, total), 1).number(entry.self.kernels.sum);
    row.number(entry.self.kernels.count);
    row.number(entry.inclusive.kernels.sum).number(entry.inclusive.kernels.count);
    row.number(entry.host.count).number(entry.failed).number(entry.host.sum).decimal(entry.host.mean(), 1);
    row.number(entry.host.smallest()).number(entry.host.max);
    row.number(entry.self.copies).number(entry.self.copy_time);
    row.number(entry.self.memsets).number(entry.self.memset_time);
    if (entry.other) {
      row.empty().empty();
    } else {
      row.number(entry.depth).text(group_name(entry.group));
    }
    row.text(entry.path).end();
    sink(text);
  }
}

void thread_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  const std::vector<ThreadRow> rows = statistics.threads();
  const std::uint64_t total = total_of(rows);
  for (const ThreadRow& entry : rows) {
    CsvRow row(text);
    row.decimal(percent(entry.stats->sum(), total), 1);
    time_cells(row, *entry.stats);
    if (entry.device == kOtherIndex) {
      row.empty();
    } else {
      row.number(entry.device);
    }
    row.number(run.pid);
    thread_id(row, entry.thread, run);
    row.text(thread_name(entry.thread, run)).end();
    sink(text);
  }
}

constexpr std::array kTables{
    TableFile{"cuda_gpu_kern_sum.csv",
              "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
              kernel_rows},
    TableFile{
        "cuda_gpu_kern_gb_sum.csv",
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,"
        "Name",
        shape_rows},
    TableFile{"cuda_api_sum.csv",
              "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
              api_rows},
    TableFile{"cuda_gpu_mem_time_sum.csv",
              "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation",
              operation_time_rows},
    TableFile{"cuda_gpu_mem_size_sum.csv",
              "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation",
              operation_size_rows},
    TableFile{"copy_sum.csv", kCopyHeader, copy_rows},
    TableFile{
        "nvtx_sum.csv",
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range",
        range_rows},
    TableFile{
        "nvtx_kern_sum.csv",
        "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),"
        "StdDev (ns),Kernel Name",
        range_kernel_rows},
    TableFile{"library_sum.csv",
              "GPU Time (%),GPU Time (ns),Kernels,GPU Time incl. Nested (ns),Kernels incl. "
              "Nested,Calls,Failed Calls,"
              "Host Time (ns),Host Avg (ns),Host Min (ns),Host Max (ns),Copies,Copy Time (ns),Memsets,"
              "Memset Time (ns),Depth,Library,Call",
              library_rows},
    TableFile{"family_sum.csv", kFamilyHeader, family_rows},
    TableFile{"gemm_sum.csv", kGemmHeader, gemm_rows},
    TableFile{"conv_sum.csv", kConvHeader, conv_rows},
    TableFile{"attention_sum.csv", kAttentionHeader, attention_rows},
    TableFile{"rnn_sum.csv", kRnnHeader, rnn_rows},
    TableFile{"norm_sum.csv", kNormHeader, norm_rows},
    TableFile{"nccl_sum.csv", kCollectiveHeader, nccl_rows},
    TableFile{
        "thread_kern_sum.csv",
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Device,PID,TID,"
        "Thread Name",
        thread_rows},
    TableFile{
        "window_sum.csv",
        "Window,Reason,State,Start (ns),End (ns),Duration (ns),Device,GPU Busy (ns),GPU Span (ns),"
        "GPU Busy (%),Kernels,Kernel Time (ns),Copies,"
        "Copy Time (ns),Copy Size (MB),Memsets,Memset Time (ns),Memset Size (MB),Unattributed,API Calls,"
        "API Time (ns),Library Calls,Submissions,Ranges,Clipped Ranges,Iterations,Samples/s,"
        "Lost Host Records,Lost Range Records,Lost Activity Records,Invalid Timestamps,"
        "Missing Activity Records,FLOPs,TFLOP/s,Peak (%),Device Time (ns),Kernel Busy (ns),GPU Utilization "
        "(%),"
        "Profiler Overhead (%),Utilization w/o Overhead (%),Copy Only (ns),Idle (ns),Idle: Start-up (ns),"
        "Idle: Synchronization (ns),Idle: Copy Call (ns),Idle: Launch Call (ns),Idle: Other Call (ns),"
        "Idle: Host Compute (ns),Idle: Host Wait (ns),Idle: Other Stream (ns),Idle: Collective (ns),"
        "Idle: Queue (ns),Idle: Unknown (ns),Exposed Collective (ns),Taken by Collectives (ns),Kernel "
        "Concurrency,H2D Busy (ns),"
        "D2H Busy (ns),Copy Overlap (%),Verdict,Potential Gain (%),Memory at Start (MB),Memory at End (MB)",
        window_rows, window_metric_columns},
    TableFile{
        "iteration_sum.csv",
        "Window,Iteration,Label,Complete,Device,Start (ns),Duration (ns),Samples/s,Launches,"
        "GPU Busy (ns),Gap to Next (ns),Kernels,Kernel Time (ns),Copies,Copy Time (ns),Copy Size (MB),"
        "Memsets,Memset Time (ns),Memset Size (MB),Unattributed,FLOPs,TFLOP/s,Peak (%),Kernel Busy (ns),"
        "GPU Utilization (%)",
        iteration_rows, iteration_metric_columns},
    TableFile{"phase_sum.csv",
              "Window,Device,Phase,Kernel Time (%),Kernels,Kernel Time (ns),Copies,Copy Time (ns),"
              "Copy Size (MB),Memsets,Memset Time (ns),Memset Size (MB),Unattributed",
              phase_rows},
    TableFile{"memory_sum.csv",
              "Device,Kind,API,Allocations,Frees,Allocated (MB),Live (MB),Peak (MB),Largest (MB),Failed,"
              "Failed Size (MB),Largest Failed (MB),Last Failed (MB)",
              memory_rows},
    TableFile{
        "kernel_detail.csv",
        "Time (%),Total Time (ns),Instances,Avg (ns),Min (ns),Max (ns),Device,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,"
        "Reg/Trd,StcSMem (B),DymSMem (B),LocalMem/Trd (B),Occupancy (%),Blocks/SM,Limited by,Waves,"
        "SM Efficiency (%),Tensor Cores,Lost Time (ns),Name",
        detail_rows},
    TableFile{"kernel_metrics.csv", kKernelMetricHeader, kernel_metric_rows, kernel_metric_columns,
              takes_metrics},
};

void append_table(const TableFile& table, const Statistics& statistics, const RunInfo& run, std::string& text,
                  const TextSink& sink) {
  text += header_of(table, statistics) + "\n";
  table.rows(statistics, run, text, sink);
}

void write_json(const std::string& folder, const RunInfo& run, const std::vector<std::string>& files,
                std::vector<std::string>& errors, const std::vector<DeviceDiagnosis>& diagnoses = {}) {
  AtomicFile json(folder, kRunFile);
  json.file().buffer() = run_json_text(run, files, errors, diagnoses);
  if (!json.finish() || !json.commit()) errors.push_back(json.error());
}

}  // namespace

std::span<const TableFile> table_files() {
  return kTables;
}

std::string header_of(const TableFile& table, const Statistics& statistics) {
  std::string header(table.header);
  if (table.more_columns != nullptr) header += table.more_columns(statistics);
  return header;
}

bool is_wanted(const TableFile& table, const Statistics& statistics) {
  return table.wanted == nullptr || table.wanted(statistics);
}

std::string table_text(const TableFile& table, const Statistics& statistics, const RunInfo& run) {
  std::string text;
  append_table(table, statistics, run, text, [](std::string&) {});
  return text;
}

std::vector<std::string> write_all(const std::string& folder, const Statistics& statistics,
                                   const RunInfo& run) noexcept {
  std::vector<std::string> errors;
  try {
    // All are written before the first is put in place: a reader meets tables of one moment, but for the
    // renames.
    std::vector<std::unique_ptr<AtomicFile>> finished;
    std::vector<std::string> names;
    for (const TableFile& table : kTables) {
      if (!is_wanted(table, statistics)) continue;
      auto file = std::make_unique<AtomicFile>(folder, table.name);
      append_table(table, statistics, run, file->file().buffer(),
                   [&file](std::string&) { file->file().write_if_full(); });
      if (file->finish()) {
        finished.push_back(std::move(file));
        names.emplace_back(table.name);
      } else {
        errors.push_back(file->error());
      }
    }
    for (const auto& file : finished) {
      if (!file->commit()) errors.push_back(file->error());
    }
    write_json(folder, run, names, errors, device_diagnoses(statistics, run));
  } catch (const std::exception& problem) {
    // Out of memory, most likely: this, too, may not fit.
    try {
      errors.emplace_back(std::string("cannot write the tables: ") + problem.what());
    } catch (...) {
      errors.clear();
    }
  }
  return errors;
}

std::vector<std::string> write_run_json(const std::string& folder, const RunInfo& run) noexcept {
  std::vector<std::string> errors;
  try {
    write_json(folder, run, {}, errors);
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
