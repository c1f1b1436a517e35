// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// memory_sum.csv and memory_timeline.csv (docs/memory.md).
#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"
#include "libinject/record/memory_use.h"

namespace inject {

namespace {

std::string_view kind_name(AllocationKind kind) {
  switch (kind) {
    case AllocationKind::kDevice:
      return "device";
    case AllocationKind::kManaged:
      return "managed";
    case AllocationKind::kPinnedHost:
      return "pinned host";
  }
  return "";
}

Cell place_of(std::uint32_t device) {
  if (device == MemoryUse::kHost) return "host";
  if (device == MemoryUse::kOtherDevice) return "[other]";
  if (device == MemoryUse::kUnknownDevice) return "[unknown]";
  return device;
}

constexpr std::string_view kPlace =
    "The GPU whose context was current; `host` for pinned memory; `[unknown]`: no context was current.";

std::string_view name_of(MemoryLine::Of of) {
  switch (of) {
    case MemoryLine::Of::kInUse:
      return "in use";
    case MemoryLine::Of::kAllocated:
      return "allocated";
    case MemoryLine::Of::kTorchReserved:
      return "PyTorch reserved";
    case MemoryLine::Of::kTorchAllocated:
      return "PyTorch allocated";
  }
  return "";
}

Columns<MemoryRow> memory_columns(const Report& report) {
  using namespace units;
  Columns<MemoryRow> columns;
  const RunInfo* const run = report.run;
  const auto size = [](std::uint64_t MemoryCounts::*bytes) {
    return [bytes](const MemoryCounts& counts) { return megabytes(counts.*bytes); };
  };
  columns
      .add(
          "Device", kText, [](const MemoryRow& row) { return place_of(row.device); }, kPlace)
      .add(
          "Kind", kText,
          [](const MemoryRow& row) { return row.api ? kind_name(allocation_kind(*row.api)) : "[all]"; },
          "`device`, `managed`, `pinned host`; `[all]`: the sum of the device's rows.")
      .add(
          "API", kText, [](const MemoryRow& row) { return row.api ? allocation_name(*row.api) : "[all]"; },
          "The allocating function.")
      .add(
          "Total", kText, [](const MemoryRow& row) { return row.api ? "no" : "yes"; },
          "`yes`: the row is the sum of the device's other rows; `no`: it is not. Adding up both kinds "
          "counts everything twice.");
  columns.of(&MemoryRow::counts)
      .add("Allocations", kCount, &MemoryCounts::allocations, "Calls that succeeded.")
      .add("Frees", kCount, &MemoryCounts::frees, "Frees of memory that this function allocated.")
      .add("Allocated (MB)", kMegabytes, size(&MemoryCounts::allocated), "Sum of the requested sizes.")
      .add("Live (MB)", kMegabytes, size(&MemoryCounts::live), "Allocated and not yet freed at the end.")
      .add("Peak (MB)", kMegabytes, size(&MemoryCounts::peak),
           "Maximum allocated and not yet freed at any time; for `[all]`, of the sum.")
      .add(
          "Peak at (ns)", kMoment,
          [run](const MemoryCounts& counts) {
            return cell_if(counts.peak_at != 0, since_base(counts.peak_at, *run));
          },
          "When that was first reached.", "nothing was ever allocated")
      .add("Largest (MB)", kMegabytes, size(&MemoryCounts::largest), "The largest single allocation.")
      .add("Failed", kCount, &MemoryCounts::failed, "Calls that returned an error.")
      .add(
          "Failed Size (MB)", kMegabytes,
          [](const MemoryCounts& counts) {
            return cell_if(counts.failed_bytes != ~std::uint64_t{0}, megabytes(counts.failed_bytes));
          },
          "Sum of the sizes these calls requested.", "it is 2^64 bytes or more")
      .add("Largest Failed (MB)", kMegabytes, size(&MemoryCounts::largest_failed),
           "Largest size that one of them requested.")
      .add("Last Failed (MB)", kMegabytes, size(&MemoryCounts::last_failed),
           "Size that the last of them requested.");
  return columns;
}

const std::vector<MemoryRow>& memory_rows(const Report& report) {
  return report.run->memory;
}

Columns<MemoryTimelineRow> timeline_columns(const Report& report) {
  using namespace units;
  using Row = MemoryTimelineRow;
  Columns<Row> columns;
  const RunInfo* const run = report.run;
  columns
      .add(
          "Device", kText, [](const Row& row) { return place_of(row.device); }, kPlace)
      .add(
          "Of", kText, [](const Row& row) { return name_of(row.of); },
          "`allocated`: by this process through the CUDA runtime, as in memory_sum.csv; `PyTorch reserved`, "
          "`PyTorch allocated`: by PyTorch's caching allocator, and of that to tensors; `in use`: on the "
          "GPU, by all processes, as the driver reported when queried from time to time.")
      .add(
          "Start (ns)", kMoment, [run](const Row& row) { return since_base(row.begin, *run); },
          "A change, or the edge of a window; `in use`: the first of the readings.")
      .add(
          "Duration (ns)", kTime, [](const Row& row) { return row.end - row.begin; },
          "Until the next row of this kind; `in use`: until the last of the readings.")
      .add(
          "Window", kCount, [](const Row& row) { return cell_if(row.window != 0, row.window); },
          "The window in which Start is.", "outside windows")
      .add("Iteration", kCount, &Row::iteration, "The iteration in which Start is.",
           "none is known; not an iteration")
      .add(
          "Label", kText, [](const Row& row) { return row.label ? label_name(*row.label) : "outside"; },
          "What Start is in: `iteration`, `validation`, `checkpoint`; `outside`: none of these, as far as is "
          "known.")
      .add(
          "Lowest (MB)", kMegabytes, [](const Row& row) { return megabytes(row.lowest); },
          "Minimum at any time in the row; `in use`: of the readings.")
      .add(
          "Highest (MB)", kMegabytes, [](const Row& row) { return megabytes(row.highest); },
          "Maximum at any time in the row, however briefly; `in use`: of the readings.")
      .add(
          "Highest at (ns)", kMoment, [run](const Row& row) { return since_base(row.highest_at, *run); },
          "When that was first reached.");
  return columns;
}

const std::vector<MemoryTimelineRow>& timeline_rows(const Report& report) {
  return report.memory_timeline;
}

}  // namespace

TableFile memory_table() {
  return make_table<memory_columns, memory_rows>("memory_sum.csv",
                                                 "Allocations by function and device (memory.md).");
}

TableFile memory_timeline_table() {
  return make_table<timeline_columns, timeline_rows>(
      "memory_timeline.csv", "Memory over time: a stretch of time on a device (memory.md).");
}

}  // namespace inject
