// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/table_files.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

#include "libinject/base/atomic_file.h"
#include "libinject/base/csv.h"
#include "libinject/output/copy_table.h"
#include "libinject/output/memory_table.h"
#include "libinject/output/metric_tables.h"
#include "libinject/output/run_json.h"
#include "libinject/output/shape_tables.h"
#include "libinject/output/table_cells.h"
#include "libinject/output/window_tables.h"

namespace inject {

namespace {

using namespace units;

constexpr std::string_view kRunFile = "run.json";

/// Total to standard deviation, as in all of Nsight Systems' summaries of times.
template <typename Row, typename Stats>
void add_total_and_count(Columns<Row>& columns, Stats stats, std::string count, std::string_view counted) {
  columns
      .add(
          "Total Time (ns)", kTime, [stats](const Row& row) { return stats(row).sum(); },
          "Sum of the durations.")
      .add(
          std::move(count), kCount, [stats](const Row& row) { return stats(row).count(); }, counted);
}

template <typename Row, typename Stats>
void add_distribution(Columns<Row>& columns, Stats stats) {
  columns
      .add(
          "Avg (ns)", kMeanTime, [stats](const Row& row) { return stats(row).mean(); }, "Mean duration.")
      .add(
          "Med (ns)", kMeanTime, [stats](const Row& row) { return stats(row).median(); },
          "Median duration: exact up to 1,024 values of a row while 16 MiB for all rows last, of a histogram "
          "beyond (README.md has its error).")
      .add(
          "Min (ns)", kTime, [stats](const Row& row) { return stats(row).min(); }, "Shortest.")
      .add(
          "Max (ns)", kTime, [stats](const Row& row) { return stats(row).max(); }, "Longest.")
      .add(
          "StdDev (ns)", kMeanTime, [stats](const Row& row) { return stats(row).stddev(); },
          "Sample standard deviation (n - 1); 0 for a single value.");
}

template <typename T>
const SampleStats& stats_of(const Listed<T>& row) {
  return *row.row.stats;
}

template <typename T>
void add_share(Columns<Listed<T>>& columns) {
  columns.add(
      "Time (%)", kPercent, [](const Listed<T>& row) { return percent(row.row.stats->sum(), row.total); },
      kShareOfListed);
}

template <typename T>
std::vector<Listed<T>> listed_by_time(std::vector<T> rows, const Report& report) {
  return listed(
      std::move(rows), [](const T& row) { return row.stats->sum(); }, report.run);
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

Cell thread_id(std::uint32_t thread, const RunInfo& run) {
  if (thread < run.threads.size() && run.threads[thread].tid != 0) return run.threads[thread].tid;
  return {};
}

std::string_view thread_name(std::uint32_t thread, const RunInfo& run) {
  if (thread < run.threads.size() && run.threads[thread].tid != 0) return run.threads[thread].name;
  return thread == kOtherIndex ? "[other]" : "[unknown]";
}

// What a name, an API function or an operation took.
using TimeShare = Listed<TimeRow>;
Columns<TimeShare> time_columns(std::string count, std::string_view counted, std::string name,
                                std::string_view named) {
  Columns<TimeShare> columns;
  add_share(columns);
  add_total_and_count(columns, stats_of<TimeRow>, std::move(count), counted);
  add_distribution(columns, stats_of<TimeRow>);
  columns.add(
      std::move(name), kText, [](const TimeShare& row) { return row.row.name; }, named);
  return columns;
}

constexpr std::string_view kKernelName = "The kernel, demangled in full; `[other]`: beyond 10,000 names.";

Columns<TimeShare> kernel_columns(const Report&) {
  return time_columns("Instances", "Executions.", "Name", kKernelName);
}
std::vector<TimeShare> kernel_rows(const Report& report) {
  return listed_by_time(report.statistics->kernels(), report);
}

Columns<TimeShare> api_columns(const Report&) {
  return time_columns("Num Calls", "Calls, failed ones included.", "Name",
                      "The function of the runtime or the driver.");
}
std::vector<TimeShare> api_rows(const Report& report) {
  return listed_by_time(report.statistics->api_calls(), report);
}

constexpr std::string_view kOperation = "`[CUDA memcpy Host-to-Device]`, …, `[CUDA memset]`.";

Columns<TimeShare> operation_time_columns(const Report&) {
  return time_columns("Count", "Copies or memsets.", "Operation", kOperation);
}
std::vector<TimeShare> operation_time_rows(const Report& report) {
  return listed_by_time(report.statistics->operation_times(), report);
}

Columns<TimeRow> operation_size_columns(const Report&) {
  const auto size = [](auto of) { return [of](const TimeRow& row) { return megabytes(of(*row.stats)); }; };
  Columns<TimeRow> columns;
  columns
      .add("Total (MB)", kMegabytes, size([](const SampleStats& stats) { return stats.sum(); }),
           "Bytes of all.")
      .add(
          "Count", kCount, [](const TimeRow& row) { return row.stats->count(); }, "Copies or memsets.")
      .add("Avg (MB)", kMegabytes, size([](const SampleStats& stats) { return stats.mean(); }), "Mean size.")
      .add("Med (MB)", kMegabytes, size([](const SampleStats& stats) { return stats.median(); }),
           "Median size.")
      .add("Min (MB)", kMegabytes, size([](const SampleStats& stats) { return stats.min(); }), "Smallest.")
      .add("Max (MB)", kMegabytes, size([](const SampleStats& stats) { return stats.max(); }), "Largest.")
      .add("StdDev (MB)", kMegabytes, size([](const SampleStats& stats) { return stats.stddev(); }),
           "Sample standard deviation (n - 1); 0 for a single value.")
      .add(
          "Operation", kText, [](const TimeRow& row) { return row.name; }, kOperation);
  return columns;
}
std::vector<TimeRow> operation_size_rows(const Report& report) {
  return report.statistics->operation_sizes();
}

using ShapeShare = Listed<ShapeRow>;
Columns<ShapeShare> shape_columns(const Report&) {
  Columns<ShapeShare> columns;
  add_share(columns);
  add_total_and_count(columns, stats_of<ShapeRow>, "Instances", "Executions with this launch shape.");
  add_distribution(columns, stats_of<ShapeRow>);
  columns
      .add(
          "GridXYZ", kText,
          [](const ShapeShare& row) { return cell_if(!row.row.other, dimensions(row.row.grid)); },
          "Blocks in x, y and z.", "the row `[other]`")
      .add(
          "BlockXYZ", kText,
          [](const ShapeShare& row) { return cell_if(!row.row.other, dimensions(row.row.block)); },
          "Threads of a block in x, y and z.", "the row `[other]`")
      .add(
          "Name", kText, [](const ShapeShare& row) { return row.row.name; }, kKernelName);
  return columns;
}
std::vector<ShapeShare> shape_rows(const Report& report) {
  return listed_by_time(report.statistics->kernel_shapes(), report);
}

using DetailShare = Listed<const KernelReport*>;
Columns<DetailShare> detail_columns(const Report&) {
  static constexpr std::string_view kOther = "the row `[other]`";
  static constexpr std::string_view kUnknownDevice = "the row `[other]`; the device's limits are not known";
  Columns<DetailShare> columns;
  const auto total = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning) {
    columns.add(
        std::move(header), unit, [of](const DetailShare& row) { return of(row.row->detail->time); }, meaning);
  };
  const auto launch = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning) {
    columns.add(
        std::move(header), unit,
        [of](const DetailShare& row) { return cell_if(!row.row->detail->other, of(*row.row->detail)); },
        meaning, kOther);
  };
  const auto use = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning) {
    columns.add(
        std::move(header), unit, [of](const DetailShare& row) { return of(row.row->use); }, meaning,
        kUnknownDevice);
  };
  const auto size = [](auto side, std::size_t i) {
    return [side, i](const DetailRow& row) { return (row.*side)[i]; };
  };
  columns.add(
      "Time (%)", kPercent,
      [](const DetailShare& row) { return percent(row.row->detail->time.sum, row.total); }, kShareOfListed);
  total(
      "Total Time (ns)", kTime, [](const Totals& time) { return time.sum; }, "Sum of the durations.");
  total(
      "Instances", kCount, [](const Totals& time) { return time.count; }, "Executions.");
  total(
      "Avg (ns)", kMeanTime, [](const Totals& time) { return time.mean(); }, "Mean duration.");
  total(
      "Min (ns)", kTime, [](const Totals& time) { return time.smallest(); }, "Shortest.");
  total(
      "Max (ns)", kTime, [](const Totals& time) { return time.max; }, "Longest.");
  launch(
      "Device", kNumber, [](const DetailRow& row) { return row.device; },
      "The GPU, as the process numbers them.");
  launch("GrdX", kCount, size(&DetailRow::grid, 0), "Blocks in x.");
  launch("GrdY", kCount, size(&DetailRow::grid, 1), "Blocks in y.");
  launch("GrdZ", kCount, size(&DetailRow::grid, 2), "Blocks in z.");
  launch("BlkX", kCount, size(&DetailRow::block, 0), "Threads of a block in x.");
  launch("BlkY", kCount, size(&DetailRow::block, 1), "Threads of a block in y.");
  launch("BlkZ", kCount, size(&DetailRow::block, 2), "Threads of a block in z.");
  launch(
      "Reg/Trd", kCount, [](const DetailRow& row) { return row.registers_per_thread; },
      "Registers of a thread.");
  launch(
      "StcSMem (B)", kBytes, [](const DetailRow& row) { return row.static_shared_bytes; },
      "Static shared memory of a block.");
  launch(
      "DymSMem (B)", kBytes, [](const DetailRow& row) { return row.dynamic_shared_bytes; },
      "Dynamic shared memory of a block.");
  launch(
      "LocalMem/Trd (B)", kBytes, [](const DetailRow& row) { return row.local_bytes_per_thread; },
      "Local memory of a thread.");
  use(
      "Occupancy (%)", kPercent,
      [](const KernelUse& of) { return of.occupancy ? Cell(100 * of.occupancy->share) : Cell(); },
      "Theoretical: resident warps of those that a multiprocessor holds at most (occupancy.md).");
  use(
      "Blocks/SM", kCount,
      [](const KernelUse& of) { return of.occupancy ? Cell(of.occupancy->blocks) : Cell(); },
      "Blocks of this launch that are resident on a multiprocessor at the same time.");
  use(
      "Limited by", kText,
      [](const KernelUse& of) { return of.occupancy ? Cell(limiter_text(of.occupancy->limiters)) : Cell(); },
      "What leaves no room for another block: `registers`, `shared memory`, `block size`, `blocks`, joined "
      "by `+`.");
  use(
      "Waves", {"", "≥ 0", 2}, [](const KernelUse& of) { return of.grid ? Cell(of.grid->waves) : Cell(); },
      "Blocks of the grid / (multiprocessors · Blocks/SM).");
  use(
      "SM Efficiency (%)", kPercent,
      [](const KernelUse& of) { return of.grid ? Cell(100 * of.grid->efficiency) : Cell(); },
      "Share of the multiprocessors' time that the grid can use (occupancy.md).");
  launch(
      "Tensor Cores", kText, [](const DetailRow& row) { return tensor_cores_name(row.cores); },
      "`yes`, `no` or `unknown`, by the kernel's name.");
  use(
      "Lost Time (ns)", kTime, [](const KernelUse& of) { return of.lost_time; },
      "Total Time · (1 - SM Efficiency).");
  columns.add(
      "Name", kText, [](const DetailShare& row) { return row.row->detail->name; }, kKernelName);
  return columns;
}
std::vector<DetailShare> detail_rows(const Report& report) {
  std::vector<const KernelReport*> rows;
  rows.reserve(report.kernels.size());
  for (const KernelReport& kernel : report.kernels) rows.push_back(&kernel);
  return listed(std::move(rows), [](const KernelReport* row) { return row->detail->time.sum; });
}

using RangeShare = Listed<RangeRow>;
Columns<RangeShare> range_columns(const Report&) {
  Columns<RangeShare> columns;
  add_share(columns);
  add_total_and_count(columns, stats_of<RangeRow>, "Instances", "Times that the range was open in a window.");
  add_distribution(columns, stats_of<RangeRow>);
  columns
      .add(
          "Style", kText,
          [](const RangeShare& row) { return cell_if(!row.row.other, style_name(row.row.style)); },
          "`PushPop` (of a thread) or `StartEnd`.", "the row `[other]`")
      .add(
          "Range", kText, [](const RangeShare& row) { return row.row.name; },
          "The NVTX range's message, after its domain where it has one.");
  return columns;
}
std::vector<RangeShare> range_rows(const Report& report) {
  return listed_by_time(report.statistics->ranges(), report);
}

using RangeKernel = Listed<RangeKernelRow>;
Columns<RangeKernel> range_kernel_columns(const Report&) {
  Columns<RangeKernel> columns;
  columns
      .add(
          "NVTX Range", kText, [](const RangeKernel& row) { return row.row.range; },
          "The range around the launch; a kernel counts in every range around it.",
          "launched outside any range")
      .add(
          "Style", kText,
          [](const RangeKernel& row) {
            return cell_if(row.row.in_range && !row.row.other, style_name(row.row.style));
          },
          "`PushPop` or `StartEnd`.", "launched outside any range; the row `[other]`")
      .add(
          "PID", kNumber, [](const RangeKernel& row) { return row.run->pid; }, "The process.")
      .add(
          "TID", kNumber, [](const RangeKernel& row) { return thread_id(row.row.thread, *row.run); },
          "The thread that launched.", "not known")
      .add(
          "NVTX Inst", kCount, [](const RangeKernel& row) { return row.row.range_instances; },
          "Instances of the range with such a kernel.")
      .add(
          "Kern Inst", kCount, [](const RangeKernel& row) { return row.row.stats->count(); },
          "Executions of the kernel.")
      .add(
          "Total Time (ns)", kTime, [](const RangeKernel& row) { return row.row.stats->sum(); },
          "Sum of the kernels' durations.");
  add_distribution(columns, stats_of<RangeKernelRow>);
  columns.add(
      "Kernel Name", kText, [](const RangeKernel& row) { return row.row.kernel; }, kKernelName);
  return columns;
}
std::vector<RangeKernel> range_kernel_rows(const Report& report) {
  return listed_by_time(report.statistics->range_kernels(), report);
}

using LibraryShare = Listed<LibraryRow>;
Columns<LibraryShare> library_columns(const Report&) {
  Columns<LibraryShare> columns;
  const auto add = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning) {
    columns.add(
        std::move(header), unit, [of](const LibraryShare& row) { return of(row.row); }, meaning);
  };
  columns.add(
      "GPU Time (%)", kPercent,
      [](const LibraryShare& row) { return percent(row.row.self.kernels.sum, row.total); },
      "Share of the kernel time of the listed rows.");
  add(
      "GPU Time (ns)", kTime, [](const LibraryRow& row) { return row.self.kernels.sum; },
      "Of the kernels whose innermost library call is this one: adds up over the rows.");
  add(
      "Kernels", kCount, [](const LibraryRow& row) { return row.self.kernels.count; }, "Their number.");
  add(
      "GPU Time incl. Nested (ns)", kTime, [](const LibraryRow& row) { return row.inclusive.kernels.sum; },
      "With those of the library calls inside this one.");
  add(
      "Kernels incl. Nested", kCount, [](const LibraryRow& row) { return row.inclusive.kernels.count; },
      "Their number.");
  add(
      "Calls", kCount, [](const LibraryRow& row) { return row.host.count; }, "Calls, failed ones included.");
  add(
      "Failed Calls", kCount, [](const LibraryRow& row) { return row.failed; },
      "Calls that returned an error.");
  add(
      "Host Time (ns)", kTime, [](const LibraryRow& row) { return row.host.sum; }, "Time in the calls.");
  add(
      "Host Avg (ns)", kMeanTime, [](const LibraryRow& row) { return row.host.mean(); }, "Mean of a call.");
  add(
      "Host Min (ns)", kTime, [](const LibraryRow& row) { return row.host.smallest(); }, "Shortest call.");
  add(
      "Host Max (ns)", kTime, [](const LibraryRow& row) { return row.host.max; }, "Longest call.");
  add(
      "Copies", kCount, [](const LibraryRow& row) { return row.self.copies; },
      "Memory copies whose innermost library call is this one.");
  add(
      "Copy Time (ns)", kTime, [](const LibraryRow& row) { return row.self.copy_time; },
      "Sum of their durations.");
  add(
      "Memsets", kCount, [](const LibraryRow& row) { return row.self.memsets; }, "Memsets, likewise.");
  add(
      "Memset Time (ns)", kTime, [](const LibraryRow& row) { return row.self.memset_time; },
      "Sum of their durations.");
  columns
      .add(
          "Depth", kCount, [](const LibraryShare& row) { return cell_if(!row.row.other, row.row.depth); },
          "Library calls around this one.", "the row `[other]`")
      .add(
          "Library", kText,
          [](const LibraryShare& row) { return cell_if(!row.row.other, group_name(row.row.group)); },
          "`cublas`, `cublaslt`, `cudnn`, `nccl`.", "the row `[other]`")
      .add(
          "Call", kText, [](const LibraryShare& row) { return row.row.path; },
          "The function, after those that called it: `cublasGemmEx > cublasLtMatmul`.");
  return columns;
}
std::vector<LibraryShare> library_rows(const Report& report) {
  return listed(report.statistics->library_calls(),
                [](const LibraryRow& row) { return row.self.kernels.sum; });
}

using ThreadShare = Listed<ThreadRow>;
Columns<ThreadShare> thread_columns(const Report&) {
  Columns<ThreadShare> columns;
  add_share(columns);
  add_total_and_count(columns, stats_of<ThreadRow>, "Instances", "Kernels that the thread launched.");
  add_distribution(columns, stats_of<ThreadRow>);
  columns
      .add(
          "Device", kNumber,
          [](const ThreadShare& row) { return cell_if(row.row.device != kOtherIndex, row.row.device); },
          "The GPU, as the process numbers them.", "the row `[other]`")
      .add(
          "PID", kNumber, [](const ThreadShare& row) { return row.run->pid; }, "The process.")
      .add(
          "TID", kNumber, [](const ThreadShare& row) { return thread_id(row.row.thread, *row.run); },
          "The thread.", "not known")
      .add(
          "Thread Name", kText, [](const ThreadShare& row) { return thread_name(row.row.thread, *row.run); },
          "Its name; `[unknown]`: the launch was not seen.");
  return columns;
}
std::vector<ThreadShare> thread_rows(const Report& report) {
  return listed_by_time(report.statistics->threads(), report);
}

constexpr std::array kTables{
    make_table<kernel_columns, kernel_rows>("cuda_gpu_kern_sum.csv", "A kernel, by its name."),
    make_table<shape_columns, shape_rows>("cuda_gpu_kern_gb_sum.csv", "A kernel with one launch shape."),
    make_table<api_columns, api_rows>("cuda_api_sum.csv", "A function of the CUDA runtime or driver."),
    make_table<operation_time_columns, operation_time_rows>("cuda_gpu_mem_time_sum.csv",
                                                            "A kind of copy, or memsets: their times."),
    make_table<operation_size_columns, operation_size_rows>("cuda_gpu_mem_size_sum.csv",
                                                            "A kind of copy, or memsets: their sizes."),
    make_table<copy_columns, copy_rows>("copy_sum.csv",
                                        "A kind of copy on a device between kinds of memory (copies.md)."),
    make_table<range_columns, range_rows>("nvtx_sum.csv", "An NVTX range, by its name."),
    make_table<range_kernel_columns, range_kernel_rows>("nvtx_kern_sum.csv",
                                                        "A kernel, by NVTX range and launching thread."),
    make_table<library_columns, library_rows>(
        "library_sum.csv", "A library call (cuBLAS, cuBLASLt, cuDNN, NCCL), by the calls around it."),
    make_table<family_columns, family_rows>("family_sum.csv", "A family of kernels (shapes.md)."),
    make_table<gemm_columns, gemm_rows>("gemm_sum.csv", "Matrix products of one shape (gemm.md)."),
    make_table<conv_columns, conv_rows>("conv_sum.csv", "Convolutions of one shape (shapes.md)."),
    make_table<attention_columns, attention_rows>("attention_sum.csv", "Attention of one shape (shapes.md)."),
    make_table<rnn_columns, rnn_rows>("rnn_sum.csv", "Recurrent layers of one shape (shapes.md)."),
    make_table<norm_columns, norm_rows>("norm_sum.csv", "Normalizations of one shape (shapes.md)."),
    make_table<nccl_columns, nccl_rows>("nccl_sum.csv", "Collectives of one kind and size (collectives.md)."),
    make_table<thread_columns, thread_rows>("thread_kern_sum.csv",
                                            "The kernels that a thread launched on a device."),
    make_table<window_columns, window_rows>("window_sum.csv",
                                            "A window: one row for all devices together (`all`) with what "
                                            "the host did, then one a device (diagnosis.md). "
                                            "Add up either the rows `all` or the others."),
    make_table<iteration_columns, iteration_rows>(
        "iteration_sum.csv",
        "An iteration, or what ran outside of any: one row for all devices together (`all`), then one a "
        "device "
        "(iterations.md). Add up either the rows `all` or the others."),
    make_table<phase_columns, phase_rows>(
        "phase_sum.csv", "A phase of the training step, by window and device (diagnosis.md)."),
    make_table<memory_columns, memory_rows>("memory_sum.csv",
                                            "Allocations by function and device (memory.md)."),
    make_table<detail_columns, detail_rows>(
        "kernel_detail.csv", "A kernel with one launch shape and its resources (occupancy.md)."),
    make_table<kernel_metric_columns, kernel_metric_rows>(
        "kernel_metrics.csv", "Hardware metrics of a kernel with one launch shape (metrics.md).",
        takes_metrics),
};

void append_table(const TableFile& table, const Report& report, std::string& text, const TextSink& sink) {
  text += header_of(table, report) + "\n";
  table.append_rows(report, text, sink);
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

std::vector<std::string> write_all(const std::string& folder, const Report& report) noexcept {
  std::vector<std::string> errors;
  try {
    // All are written before the first is put in place: a reader meets tables of one moment, but for the
    // renames.
    std::vector<std::unique_ptr<AtomicFile>> finished;
    std::vector<std::string> names;
    for (const TableFile& table : kTables) {
      if (!is_wanted(table, report)) {
        // What a killed process wrote of hardware metrics can't be made anew.
        if (report.run->recovered && access((folder + "/" + std::string(table.name)).c_str(), F_OK) == 0)
          names.emplace_back(table.name);
        continue;
      }
      auto file = std::make_unique<AtomicFile>(folder, table.name);
      append_table(table, report, file->file().buffer(),
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
    write_json(folder, *report.run, names, errors, report.diagnoses);
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
