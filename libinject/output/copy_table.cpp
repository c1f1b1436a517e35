// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// copy_sum.csv (docs/copies.md).

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "libinject/analysis/copies.h"
#include "libinject/base/format.h"
#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"
#include "libinject/report/device_specs.h"

namespace inject {

namespace {

// Windows that lost records of device work may take this part of all windows' time.
constexpr std::uint64_t kUnknownPart = 20;

struct CopyTableRow {
  CopyRow copies;
  std::optional<double> rate;  ///< bytes per nanosecond
  std::optional<double> link;  ///< peak bytes per second of the copies' link
  std::string hint;
};

/// `Pinned`, or for copies between devices `Device 1`.
std::string memory_text(std::uint8_t kind, bool peer, std::uint32_t device) {
  const std::string_view name = memory_kind_name(kind);
  return peer ? str_format("{} {}", name, device) : std::string(name);
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

Columns<CopyTableRow> copy_columns(const Report&) {
  using namespace units;
  Columns<CopyTableRow> columns;
  const auto copies = columns.of(&CopyTableRow::copies);
  const auto time = columns.of([](const CopyTableRow& row) { return &row.copies.time; });
  const auto kind =
      columns.of([](const CopyTableRow& row) { return row.copies.other ? nullptr : &row.copies; }, kOtherRow);
  kind.add("Device", kNumber, &CopyRow::device,
           "The GPU that made the copy; for copies between GPUs, the stream's GPU.");
  copies.add(
      "Direction", kText,
      [](const CopyRow& row) { return row.other ? "[other]" : direction_name(row.operation); },
      "`Host-to-Device`, `Device-to-Host`, `Device-to-Device`, `Peer-to-Peer`, ….");
  kind.add(
          "Source", kText,
          [](const CopyRow& row) { return memory_text(row.source_memory, row.peer, row.source_device); },
          "`Pageable`, `Pinned`, `Device`, `Managed`, …; for copies between GPUs, with the GPU's number.")
      .add(
          "Target", kText,
          [](const CopyRow& row) { return memory_text(row.target_memory, row.peer, row.target_device); },
          "Kind of memory copied to, as in Source.");
  time.add("Count", kCount, &Totals::count, "Number of copies.")
      .add("Total Time (ns)", kTime, &Totals::sum, "Sum of their durations.")
      .add("Avg (ns)", kMeanTime, &Totals::mean, "Mean duration.");
  copies
      .add(
          "Total (MB)", kMegabytes, [](const CopyRow& row) { return megabytes(row.bytes); }, "Bytes copied.")
      .add(
          "Avg (MB)", kMegabytes,
          [](const CopyRow& row) {
            return megabytes(static_cast<double>(row.bytes)) / static_cast<double>(row.time.count);
          },
          "Mean size of a copy.");
  columns.add("Throughput (GB/s)", kBandwidth, &CopyTableRow::rate, "Total size / Total Time.", "no time")
      .add(
          "Link (GB/s)", kBandwidth,
          [](const CopyTableRow& row) { return row.link ? Cell(*row.link / 1e9) : Cell(); },
          "Maximum rate of the path that the copies take (copies.md).", "not known")
      .add(
          "Link (%)", kRateShare,
          [](const CopyTableRow& row) {
            return row.link && row.rate ? Cell(100.0 * *row.rate * 1e9 / *row.link) : Cell();
          },
          "Throughput / Link.", "one of the two is not known");
  copies.add("Small Copies", kCount, &CopyRow::small, "Copies of less than 64 KiB.")
      .add(
          "Small Copies (%)", kPercent, [](const CopyRow& row) { return percent(row.small, row.time.count); },
          "Share of Count.")
      .add(
          "Overlap with Kernels (%)", kPercent,
          [](const CopyRow& row) {
            return cell_if(row.overlap.time != 0, percent(row.overlap.overlapped, row.overlap.time));
          },
          "Share of the copies' time during which a kernel ran on the device.",
          "overlap could not be determined")
      .add("Synchronizing", kCount, &CopyRow::synchronizing, "Copies that the host waited for.")
      .add(
          "Synchronizing (%)", kPercent,
          [](const CopyRow& row) { return percent(row.synchronizing, row.time.count); }, "Share of Count.");
  columns.add("Hint", kText, &CopyTableRow::hint, "What could be done (copies.md).",
              "no hint; windows with a twentieth of the time or more lost records of device work");
  return columns;
}

std::vector<CopyTableRow> copy_rows(const Report& report) {
  std::map<std::uint32_t, std::uint64_t> device_times;
  for (const DeviceTimeRow& row : report.statistics->device_times().totals())
    device_times[row.device] = row.times.span;
  // Device Time covers only what is known, and copies are compared with it.
  std::uint64_t unknown = 0;
  for (const WindowInfo& window : report.run->windows)
    if (window.losses.device_work()) unknown += window.end - std::min(window.start, window.end);
  const bool whole = unknown <= report.run->windows_time / kUnknownPart;
  std::vector<CopyTableRow> rows;
  for (CopyRow& copies : report.statistics->copies().rows()) {
    CopyTableRow& row = rows.emplace_back();
    row.link = link_of(copies, *report.run);
    if (copies.time.sum != 0)
      row.rate = static_cast<double>(copies.bytes) / static_cast<double>(copies.time.sum);
    if (!copies.other && whole) row.hint = copy_hint(facts_of(copies, device_times[copies.device], row.link));
    row.copies = std::move(copies);
  }
  return rows;
}

}  // namespace

TableFile copy_table() {
  return make_table<copy_columns, copy_rows>(
      "copy_sum.csv", "Copies on one device, by direction and kinds of memory (copies.md).");
}

}  // namespace inject
