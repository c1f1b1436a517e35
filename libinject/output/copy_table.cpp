// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/copy_table.h"

#include <algorithm>
#include <map>

#include "libinject/analysis/copies.h"
#include "libinject/output/csv.h"
#include "libinject/output/shape_tables.h"
#include "libinject/output/table_cells.h"

namespace inject {

namespace {

/// `Pinned`; of copies between devices `Device 1`.
std::string memory_text(std::uint8_t kind, bool peer, std::uint32_t device) {
  std::string text(memory_kind_name(kind));
  if (peer) text += " " + std::to_string(device);
  return text;
}

std::optional<double> link_of(const CopyRow& row, const RunInfo& run) {
  const auto device = std::find_if(run.devices.begin(), run.devices.end(),
                                   [&row](const DeviceInfo& info) { return info.id == row.device; });
  if (row.other || row.peer || device == run.devices.end()) return std::nullopt;
  const CopyPath path = copy_path(row.operation);
  const int generation = copying_generation(device->pcie_generation, device->pcie_max_generation);
  const double rate =
      row.time.sum == 0 ? 0 : static_cast<double>(row.bytes) / static_cast<double>(row.time.sum) * 1e9;
  return plausible_link(path, copy_bandwidth(path, generation, device->pcie_width, specs_of(run, row.device)),
                        rate);
}

CopyFacts facts_of(const CopyRow& row, std::uint64_t device_time, std::optional<double> link) {
  CopyFacts facts;
  facts.path = row.peer ? CopyPath::kOther : copy_path(row.operation);
  if (facts.path == CopyPath::kToDevice) facts.host_memory = row.source_memory;
  if (facts.path == CopyPath::kFromDevice) facts.host_memory = row.target_memory;
  facts.count = row.time.count;
  facts.time = row.time.sum;
  facts.bytes = row.bytes;
  facts.small = row.small;
  facts.synchronizing = row.synchronizing;
  facts.small_synchronizing = row.small_synchronizing;
  facts.judged_time = row.overlap.time;
  facts.overlapped = row.overlap.overlapped;
  facts.device_time = device_time;
  facts.link = link;
  return facts;
}

/// Throughput and what it is of the link's.
void rate_cells(CsvRow& row, const CopyRow& entry, std::optional<double> link) {
  const double rate =
      entry.time.sum == 0 ? 0 : static_cast<double>(entry.bytes) / static_cast<double>(entry.time.sum);
  if (entry.time.sum == 0) {
    row.empty();
  } else {
    row.decimal(rate, 3);
  }
  if (!link) {
    row.empty().empty();
    return;
  }
  row.decimal(*link / 1e9, 3);
  if (entry.time.sum == 0) {
    row.empty();
  } else {
    row.decimal(100.0 * rate * 1e9 / *link, 1);
  }
}

}  // namespace

void copy_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  std::map<std::uint32_t, std::uint64_t> device_times;
  for (const DeviceTimeRow& row : statistics.device_times().totals())
    device_times[row.device] = row.times.span;
  for (const CopyRow& entry : statistics.copies().rows()) {
    const std::optional<double> link = link_of(entry, run);
    CsvRow row(text);
    if (entry.other) {
      row.empty().text("[other]").empty().empty();
    } else {
      row.number(entry.device).text(direction_name(entry.operation));
      row.text(memory_text(entry.source_memory, entry.peer, entry.source_device));
      row.text(memory_text(entry.target_memory, entry.peer, entry.target_device));
    }
    row.number(entry.time.count).number(entry.time.sum).decimal(entry.time.mean(), 1);
    const double bytes = static_cast<double>(entry.bytes);
    row.decimal(bytes / 1e6, 3).decimal(bytes / 1e6 / static_cast<double>(entry.time.count), 3);
    rate_cells(row, entry, link);
    row.number(entry.small).decimal(percent(entry.small, entry.time.count), 1);
    if (entry.overlap.time == 0) {
      row.empty();
    } else {
      row.decimal(percent(entry.overlap.overlapped, entry.overlap.time), 1);
    }
    row.number(entry.synchronizing).decimal(percent(entry.synchronizing, entry.time.count), 1);
    row.text(entry.other ? std::string() : copy_hint(facts_of(entry, device_times[entry.device], link)));
    row.end();
    sink(text);
  }
}

}  // namespace inject
