// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The tables whose rows are durations with their distribution, as in Nsight Systems' reports: kernels, CUDA
// calls, copies and memsets, NVTX ranges and threads.
#include <array>

#include "libinject/base/format.h"
#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

void add_distribution(const auto& of_stats) {
  of_stats.add("Avg (ns)", kMeanTime, &SampleStats::mean, "Mean duration.")
      .add("Med (ns)", kMeanTime, &SampleStats::median,
           "Median duration: exact up to 1,024 values per row and 16 MiB for all rows, beyond that from a "
           "histogram (error: limits.md).")
      .add("Min (ns)", kTime, &SampleStats::min, "Shortest.")
      .add("Max (ns)", kTime, &SampleStats::max, "Longest.")
      .add("StdDev (ns)", kMeanTime, &SampleStats::stddev,
           "Sample standard deviation (n - 1); 0 for a single value.");
}

/// From the share to the standard deviation, as in all of Nsight Systems' summaries of times.
template <typename Row>
void add_times(Columns<Listed<Row>>& columns, std::string count, std::string_view counted) {
  columns.add(
      "Time (%)", kPercent, [](const Listed<Row>& row) { return percent(row.stats->sum(), row.total); },
      kShareOfListed);
  const auto of_stats = columns.of(&Row::stats);
  of_stats.add("Total Time (ns)", kTime, &SampleStats::sum, "Sum of the durations.")
      .add(std::move(count), kCount, &SampleStats::count, counted);
  add_distribution(of_stats);
}

template <typename Row>
std::vector<Listed<Row>> listed_by_time(std::vector<Row> rows) {
  return listed(std::move(rows), [](const Row& row) { return row.stats->sum(); });
}

/// In the form of Nsight Systems' GridXYZ and BlockXYZ.
std::string dimensions(const std::array<std::int32_t, 3>& size) {
  return str_format("{:4} {:4} {:4}", size[0], size[1], size[2]);
}

std::string_view style_name(RangeStyle style) {
  return style == RangeStyle::kStartEnd ? "StartEnd" : "PushPop";
}

/// Null if the run does not have it.
const ThreadInfo* thread_of(std::uint32_t index, const RunInfo& run) {
  return index < run.threads.size() && run.threads[index].tid != 0 ? &run.threads[index] : nullptr;
}

/// PID and TID; `row.thread` is the thread's index.
template <typename Row>
void add_thread(Columns<Row>& columns, const RunInfo* run, std::string_view thread) {
  columns.add(
      "PID", kNumber, [run](const Row&) { return run->pid; }, "The process.");
  columns.of([run](const Row& row) { return thread_of(row.thread, *run); }, "not known")
      .add("TID", kNumber, &ThreadInfo::tid, thread);
}

Columns<Listed<TimeRow>> time_columns(std::string count, std::string_view counted, std::string name,
                                      std::string_view named) {
  Columns<Listed<TimeRow>> columns;
  add_times(columns, std::move(count), counted);
  columns.add(std::move(name), kText, &TimeRow::name, named);
  return columns;
}

Columns<Listed<TimeRow>> kernel_columns(const Report&) {
  return time_columns("Instances", "Executions.", "Name", kKernelName);
}
std::vector<Listed<TimeRow>> kernel_rows(const Report& report) {
  return listed_by_time(report.statistics->kernels());
}

Columns<Listed<TimeRow>> api_columns(const Report&) {
  return time_columns("Num Calls", "Calls, including failed ones.", "Name",
                      "The runtime or driver function.");
}
std::vector<Listed<TimeRow>> api_rows(const Report& report) {
  return listed_by_time(report.statistics->api_calls());
}

constexpr std::string_view kOperation = "`[CUDA memcpy Host-to-Device]`, …, `[CUDA memset]`.";

Columns<Listed<TimeRow>> operation_time_columns(const Report&) {
  return time_columns("Count", "Number of copies or memsets.", "Operation", kOperation);
}
std::vector<Listed<TimeRow>> operation_time_rows(const Report& report) {
  return listed_by_time(report.statistics->operation_times());
}

Columns<TimeRow> operation_size_columns(const Report&) {
  const auto size = [](auto of) {
    return [of](const SampleStats& stats) { return megabytes((stats.*of)()); };
  };
  Columns<TimeRow> columns;
  columns.of(&TimeRow::stats)
      .add("Total (MB)", kMegabytes, size(&SampleStats::sum), "Total size.")
      .add("Count", kCount, &SampleStats::count, "Number of copies or memsets.")
      .add("Avg (MB)", kMegabytes, size(&SampleStats::mean), "Mean size.")
      .add("Med (MB)", kMegabytes, size(&SampleStats::median), "Median size.")
      .add("Min (MB)", kMegabytes, size(&SampleStats::min), "Smallest.")
      .add("Max (MB)", kMegabytes, size(&SampleStats::max), "Largest.")
      .add("StdDev (MB)", kMegabytes, size(&SampleStats::stddev),
           "Sample standard deviation (n - 1); 0 for a single value.");
  columns.add("Operation", kText, &TimeRow::name, kOperation);
  return columns;
}
std::vector<TimeRow> operation_size_rows(const Report& report) {
  return report.statistics->operation_sizes();
}

Columns<Listed<ShapeRow>> shape_columns(const Report&) {
  Columns<Listed<ShapeRow>> columns;
  add_times(columns, "Instances", "Executions with this launch shape.");
  columns
      .add(
          "GridXYZ", kText,
          [](const Listed<ShapeRow>& row) { return cell_if(!row.other, dimensions(row.grid)); },
          "Blocks in x, y and z.", kOtherRow)
      .add(
          "BlockXYZ", kText,
          [](const Listed<ShapeRow>& row) { return cell_if(!row.other, dimensions(row.block)); },
          "Threads per block in x, y and z.", kOtherRow)
      .add("Name", kText, &ShapeRow::name, kKernelName);
  return columns;
}
std::vector<Listed<ShapeRow>> shape_rows(const Report& report) {
  return listed_by_time(report.statistics->kernel_shapes());
}

Columns<Listed<RangeRow>> range_columns(const Report&) {
  Columns<Listed<RangeRow>> columns;
  add_times(columns, "Instances",
            "Number of times the range was open in a window; one that was open all the window long counts if "
            "its thread did something in it.");
  columns
      .add(
          "Style", kText,
          [](const Listed<RangeRow>& row) { return cell_if(!row.other, style_name(row.style)); },
          "`PushPop` (per thread) or `StartEnd`.", kOtherRow)
      .add("Range", kText, &RangeRow::name,
           "The NVTX range's message, preceded by its domain if it has one.");
  return columns;
}
std::vector<Listed<RangeRow>> range_rows(const Report& report) {
  return listed_by_time(report.statistics->ranges());
}

Columns<Listed<RangeKernelRow>> range_kernel_columns(const Report& report) {
  Columns<Listed<RangeKernelRow>> columns;
  columns
      .add("NVTX Range", kText, &RangeKernelRow::range,
           "The range around the launch; a kernel is counted in every range around it.",
           "launched outside any range")
      .add(
          "Style", kText,
          [](const Listed<RangeKernelRow>& row) {
            return cell_if(row.in_range && !row.other, style_name(row.style));
          },
          "`PushPop` or `StartEnd`.", "launched outside any range; the row `[other]`");
  add_thread(columns, report.run, "The launching thread.");
  columns.add("NVTX Inst", kCount, &RangeKernelRow::range_instances,
              "Instances of the range in which the kernel was launched.");
  const auto of_stats = columns.of(&RangeKernelRow::stats);
  of_stats.add("Kern Inst", kCount, &SampleStats::count, "Executions of the kernel.")
      .add("Total Time (ns)", kTime, &SampleStats::sum, "Sum of the kernels' durations.");
  add_distribution(of_stats);
  columns.add("Kernel Name", kText, &RangeKernelRow::kernel, kKernelName);
  return columns;
}
std::vector<Listed<RangeKernelRow>> range_kernel_rows(const Report& report) {
  return listed_by_time(report.statistics->range_kernels());
}

Columns<Listed<ThreadRow>> thread_columns(const Report& report) {
  Columns<Listed<ThreadRow>> columns;
  add_times(columns, "Instances", "Kernels that the thread launched.");
  columns.add(
      "Device", kNumber, [](const ThreadRow& row) { return cell_if(row.device != kOtherIndex, row.device); },
      kDeviceNumber, kOtherRow);
  add_thread(columns, report.run, "The thread.");
  columns.add(
      "Thread Name", kText,
      [run = report.run](const ThreadRow& row) -> std::string_view {
        if (const ThreadInfo* thread = thread_of(row.thread, *run)) return thread->name;
        return row.thread == kOtherIndex ? "[other]" : "[unknown]";
      },
      "The thread's name; `[unknown]`: the launch was not seen.");
  return columns;
}
std::vector<Listed<ThreadRow>> thread_rows(const Report& report) {
  return listed_by_time(report.statistics->threads());
}

}  // namespace

TableFile kernel_table() {
  return make_table<kernel_columns, kernel_rows>("cuda_gpu_kern_sum.csv", "A kernel, by name.");
}
TableFile launch_shape_table() {
  return make_table<shape_columns, shape_rows>("cuda_gpu_kern_gb_sum.csv", "A kernel with one launch shape.");
}
TableFile api_table() {
  return make_table<api_columns, api_rows>("cuda_api_sum.csv", "A CUDA runtime or driver function.");
}
TableFile operation_time_table() {
  return make_table<operation_time_columns, operation_time_rows>(
      "cuda_gpu_mem_time_sum.csv", "Copies of one kind, or memsets: durations.");
}
TableFile operation_size_table() {
  return make_table<operation_size_columns, operation_size_rows>("cuda_gpu_mem_size_sum.csv",
                                                                 "Copies of one kind, or memsets: sizes.");
}
TableFile range_table() {
  return make_table<range_columns, range_rows>("nvtx_sum.csv", "An NVTX range, by name.");
}
TableFile range_kernel_table() {
  return make_table<range_kernel_columns, range_kernel_rows>("nvtx_kern_sum.csv",
                                                             "A kernel, by NVTX range and launching thread.");
}
TableFile thread_table() {
  return make_table<thread_columns, thread_rows>("thread_kern_sum.csv",
                                                 "The kernels that a thread launched on a device.");
}

}  // namespace inject
