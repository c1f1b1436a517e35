// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/memory_table.h"

#include <string>
#include <string_view>
#include <utility>

#include "libinject/output/table_cells.h"
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

}  // namespace

Columns<MemoryRow> memory_columns(const Report&) {
  using namespace units;
  Columns<MemoryRow> columns;
  const auto count = [&columns](std::string header, std::uint64_t MemoryCounts::*member,
                                std::string_view meaning) {
    columns.add(
        std::move(header), kCount, [member](const MemoryRow& row) { return row.counts.*member; }, meaning);
  };
  const auto size = [&columns](std::string header, std::uint64_t MemoryCounts::*member,
                               std::string_view meaning) {
    columns.add(
        std::move(header), kMegabytes,
        [member](const MemoryRow& row) { return megabytes(row.counts.*member); }, meaning);
  };
  columns
      .add(
          "Device", kText, [](const MemoryRow& row) { return place_of(row.device); },
          "The GPU whose context was current; `host` for pinned memory; `[unknown]`: no context was current.")
      .add(
          "Kind", kText,
          [](const MemoryRow& row) {
            return row.api ? Cell(kind_name(allocation_kind(*row.api))) : Cell("[all]");
          },
          "`device`, `managed`, `pinned host`; `[all]`: the sum of the device's rows.")
      .add(
          "API", kText,
          [](const MemoryRow& row) { return row.api ? Cell(allocation_name(*row.api)) : Cell("[all]"); },
          "The function that allocated.");
  count("Allocations", &MemoryCounts::allocations, "Calls that succeeded.");
  count("Frees", &MemoryCounts::frees, "Frees of what this function allocated.");
  size("Allocated (MB)", &MemoryCounts::allocated, "Sum of the sizes asked for.");
  size("Live (MB)", &MemoryCounts::live, "Allocated and not freed at the end.");
  size("Peak (MB)", &MemoryCounts::peak, "Allocated and not freed at most; of `[all]`, of the sum.");
  size("Largest (MB)", &MemoryCounts::largest, "The largest single allocation.");
  count("Failed", &MemoryCounts::failed, "Calls that returned an error.");
  size("Failed Size (MB)", &MemoryCounts::failed_bytes, "Sum of what they asked for.");
  size("Largest Failed (MB)", &MemoryCounts::largest_failed, "The most that one of them asked for.");
  size("Last Failed (MB)", &MemoryCounts::last_failed, "What the last of them asked for.");
  return columns;
}

const std::vector<MemoryRow>& memory_rows(const Report& report) {
  return report.run->memory;
}

}  // namespace inject
