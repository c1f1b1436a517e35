// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// memory_purpose.csv (docs/memory_purpose.md).
#include "libinject/output/purpose_names.h"

#include <algorithm>
#include <array>

#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

struct PurposeRow {
  const MemoryPurposes* memory = nullptr;
  const DevicePurposes* device = nullptr;
  std::optional<std::size_t> purpose;  ///< none: the device
  std::uint64_t bytes() const { return purpose ? device->bytes[*purpose] : all_bytes(*device); }
  bool has_tensors() const { return purpose && *purpose < kTensorPurposes; }
  bool is_known() const {
    return purpose ? inject::is_known(*memory, *device, *purpose) : device->in_use != 0;
  }
};

Columns<PurposeRow> purpose_columns(const Report&) {
  using namespace units;
  constexpr std::string_view kOfPurposes = "rows other than `[all]`";
  Columns<PurposeRow> columns;
  columns
      .add(
          "Device", kNumber, [](const PurposeRow& row) { return row.device->device; },
          "The GPU's number in the process.")
      .add(
          "Purpose", kText,
          [](const PurposeRow& row) { return row.purpose ? purpose_name(*row.purpose) : "[all]"; },
          "What the memory is for. Each byte counts for the first purpose that applies, in the order of the "
          "rows.")
      .add(
          "Total", kText, [](const PurposeRow& row) { return row.purpose ? "no" : "yes"; },
          "`yes`: the row is the sum of the device's other rows; `no`: it is not.")
      .add(
          "Tensors", kCount,
          [](const PurposeRow& row) {
            return row.has_tensors() ? Cell(row.device->tensors[*row.purpose]) : Cell();
          },
          "Tensors through which it was found; several may share memory.", "rows without tensors")
      .add(
          "Memory (B)", kBytes,
          [](const PurposeRow& row) { return row.is_known() ? Cell(row.bytes()) : Cell(); },
          "Bytes in use at the reading; for `[all]`, by all processes on the GPU.",
          "the memory of some of its tensors cannot be determined; purposes that are not looked for "
          "(memory_purpose.md); `[outside of the allocator]` and `[all]` while a CUDA graph was captured")
      .add(
          "Largest (B)", kBytes,
          [](const PurposeRow& row) {
            return row.has_tensors() ? Cell(row.device->largest[*row.purpose].bytes) : Cell();
          },
          "Size of the largest of these tensors.", "rows without tensors")
      .add(
          "Largest Tensor", kText,
          [](const PurposeRow& row) {
            return row.has_tensors() ? Cell(row.device->largest[*row.purpose].text) : Cell();
          },
          "What holds it, its shape and its type.", "rows without tensors")
      .add(
          "Peak Allocated (B)", kBytes,
          [](const PurposeRow& row) { return row.purpose ? Cell() : Cell(row.device->peak_allocated); },
          "The most that the allocator had allocated up to that moment "
          "(`torch.cuda.max_memory_allocated()`).",
          kOfPurposes)
      .add(
          "Peak Reserved (B)", kBytes,
          [](const PurposeRow& row) { return row.purpose ? Cell() : Cell(row.device->peak_reserved); },
          "The most that it had reserved up to that moment (`torch.cuda.max_memory_reserved()`).",
          kOfPurposes)
      .add(
          "Activations at Peak (B)", kBytes,
          [](const PurposeRow& row) {
            if (row.purpose) return Cell();
            const auto rest = activations_at_peak(*row.memory, *row.device);
            return rest ? Cell(*rest) : Cell();
          },
          "Peak Allocated minus parameters, gradients, optimizer state, buffers, workspaces and "
          "communication buffers: activations, batches and temporary memory at the peak, minus gradients "
          "that did not exist yet.",
          "rows other than `[all]`; the memory of some tensors cannot be determined");
  return columns;
}

std::vector<PurposeRow> purpose_rows(const Report& report) {
  std::vector<PurposeRow> rows;
  const std::optional<MemoryPurposes>& memory = report.run->memory_purposes;
  if (!memory) return rows;
  for (const DevicePurposes& device : memory->devices) {
    for (std::size_t purpose = 0; purpose < kMemoryPurposes; ++purpose)
      rows.push_back({&*memory, &device, purpose});
    rows.push_back({&*memory, &device, std::nullopt});
  }
  return rows;
}

bool has_purposes(const Report& report) {
  return report.run->memory_purposes && !report.run->memory_purposes->devices.empty();
}

}  // namespace

std::string_view purpose_name(std::size_t purpose) {
  constexpr std::array<std::string_view, kMemoryPurposes> kNames{"parameters",
                                                                 "gradients",
                                                                 "optimizer state",
                                                                 "buffers",
                                                                 "other tensors",
                                                                 "workspaces",
                                                                 "communication buffers",
                                                                 "[no tensor]",
                                                                 "[rounding]",
                                                                 "[private pools]",
                                                                 "[cached]",
                                                                 "[outside of the allocator]"};
  return kNames[purpose];
}

bool is_known(const MemoryPurposes& memory, const DevicePurposes& device, std::size_t purpose) {
  return memory.unplaced[purpose] == 0 && !device.unknown[purpose] &&
         (purpose != static_cast<std::size_t>(MemoryPurpose::kOutside) || device.in_use != 0);
}

std::uint64_t all_bytes(const DevicePurposes& device) {
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : device.bytes) sum += bytes;
  return sum;
}

std::optional<std::uint64_t> activations_at_peak(const MemoryPurposes& memory, const DevicePurposes& device) {
  std::uint64_t lasting = 0;
  for (const MemoryPurpose lasts : kLastingPurposes) {
    const auto purpose = static_cast<std::size_t>(lasts);
    if (memory.unplaced[purpose] != 0 || device.unknown[purpose]) return std::nullopt;
    lasting += device.bytes[purpose];
  }
  return device.peak_allocated - std::min(device.peak_allocated, lasting);
}

TableFile purpose_table() {
  return make_table<purpose_columns, purpose_rows>(
      "memory_purpose.csv", "PyTorch's GPU memory by purpose, at one moment (memory_purpose.md).",
      &has_purposes, "where launches are named");
}

}  // namespace inject
