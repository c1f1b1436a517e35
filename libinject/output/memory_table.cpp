// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/memory_table.h"

#include <string_view>

#include "libinject/output/csv.h"
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

}  // namespace

void memory_rows(const Statistics&, const RunInfo& run, std::string& text, const TextSink& sink) {
  for (const MemoryRow& entry : run.memory) {
    CsvRow row(text);
    if (entry.device == MemoryUse::kHost) {
      row.text("host");
    } else if (entry.device == MemoryUse::kOtherDevice) {
      row.text("[other]");
    } else if (entry.device == MemoryUse::kUnknownDevice) {
      row.text("[unknown]");
    } else {
      row.number(entry.device);
    }
    row.text(entry.api ? kind_name(allocation_kind(*entry.api)) : "[all]");
    row.text(entry.api ? allocation_name(*entry.api) : "[all]");
    const MemoryCounts& counts = entry.counts;
    row.number(counts.allocations).number(counts.frees);
    for (const std::uint64_t bytes : {counts.allocated, counts.live, counts.peak, counts.largest})
      row.decimal(megabytes(bytes), 3);
    row.number(counts.failed);
    for (const std::uint64_t bytes : {counts.failed_bytes, counts.largest_failed, counts.last_failed})
      row.decimal(megabytes(bytes), 3);
    row.end();
    sink(text);
  }
}

}  // namespace inject
