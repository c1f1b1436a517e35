// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// memory_sum.csv (docs/memory.md).
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

Columns<MemoryRow> memory_columns(const Report&) {
  using namespace units;
  Columns<MemoryRow> columns;
  const auto size = [](std::uint64_t MemoryCounts::*bytes) {
    return [bytes](const MemoryCounts& counts) { return megabytes(counts.*bytes); };
  };
  columns
      .add(
          "Device", kText, [](const MemoryRow& row) { return place_of(row.device); },
          "The GPU whose context was current; `host` for pinned memory; `[unknown]`: no context was current.")
      .add(
          "Kind", kText,
          [](const MemoryRow& row) { return row.api ? kind_name(allocation_kind(*row.api)) : "[all]"; },
          "`device`, `managed`, `pinned host`; `[all]`: the sum of the device's rows.")
      .add(
          "API", kText, [](const MemoryRow& row) { return row.api ? allocation_name(*row.api) : "[all]"; },
          "The function that allocated.")
      .add(
          "Total", kText, [](const MemoryRow& row) { return row.api ? "no" : "yes"; },
          "`yes`: the row is the sum of the device's others; `no`: it is not. Adding up both kinds counts "
          "twice.");
  columns.of(&MemoryRow::counts)
      .add("Allocations", kCount, &MemoryCounts::allocations, "Calls that succeeded.")
      .add("Frees", kCount, &MemoryCounts::frees, "Frees of what this function allocated.")
      .add("Allocated (MB)", kMegabytes, size(&MemoryCounts::allocated), "Sum of the sizes asked for.")
      .add("Live (MB)", kMegabytes, size(&MemoryCounts::live), "Allocated and not freed at the end.")
      .add("Peak (MB)", kMegabytes, size(&MemoryCounts::peak),
           "Allocated and not freed at most; of `[all]`, of the sum.")
      .add("Largest (MB)", kMegabytes, size(&MemoryCounts::largest), "The largest single allocation.")
      .add("Failed", kCount, &MemoryCounts::failed, "Calls that returned an error.")
      .add("Failed Size (MB)", kMegabytes, size(&MemoryCounts::failed_bytes), "Sum of what they asked for.")
      .add("Largest Failed (MB)", kMegabytes, size(&MemoryCounts::largest_failed),
           "The most that one of them asked for.")
      .add("Last Failed (MB)", kMegabytes, size(&MemoryCounts::last_failed),
           "What the last of them asked for.");
  return columns;
}

const std::vector<MemoryRow>& memory_rows(const Report& report) {
  return report.run->memory;
}

}  // namespace

TableFile memory_table() {
  return make_table<memory_columns, memory_rows>("memory_sum.csv",
                                                 "Allocations by function and device (memory.md).");
}

}  // namespace inject
