// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/collective_table.h"

#include "libinject/record/shape_table.h"
#include "libinject/stats/table_rows.h"

namespace inject {

void CollectiveTable::add(const KernelEvent& event, bool collective, std::uint64_t duration) {
  if (!collective) {
    overlap_.beside(event.launch.window, event.device, event.start, event.end);
    return;
  }
  overlap_.work(event.launch.window, event.device, event.launch.shape, event.start, event.end);
  if (event.launch.shape == ShapeTable::kNone) {
    unknown_.add(duration);
    add_share(unknown_names_, {event.name, 1, duration});
  }
}

std::vector<CollectiveRow> CollectiveTable::rows(std::span<const CallShapeRow> calls,
                                                 const NameTable& names) const {
  auto times = overlap_.rows();
  // Only once per shape: calls of several functions may share one.
  const auto take_overlap = [&times](std::uint32_t shape) {
    const auto found = times.extract(shape);
    return found.empty() ? OverlapStatistics::Times() : found.mapped();
  };
  const auto name_of = [&names](const KernelShare& share) {
    return KernelTime{share.name == 0 ? kOtherName : names.name(share.name), share.time};
  };
  std::vector<CollectiveInput> inputs;
  for (const CallShapeRow& row : calls) {
    if (row.entry.other || row.shape.kind() != ShapeKind::kCollective) continue;
    CollectiveInput& input = inputs.emplace_back();
    input.shape = row.shape.as<CollectiveShape>();
    input.calls = row.entry.calls;
    input.failed = row.entry.failed;
    input.captured = row.entry.captured;
    input.replayed = row.entry.replayed;
    input.host_time = row.entry.host.sum;
    input.gpu = row.entry.gpu;
    input.kernels = row.entry.kernels;
    for (const auto& [name, share] : row.kernels) input.names.push_back({name, share.time});
    const OverlapStatistics::Times overlap = take_overlap(row.entry.shape);
    input.kernel_time = overlap.time;
    input.overlapped = overlap.overlapped;
  }
  std::vector<CollectiveRow> rows = collective_rows(inputs);
  if (unknown_.count != 0) {
    CollectiveRow& unknown = rows.emplace_back();
    unknown.gpu = unknown_;
    unknown.kernels = unknown.gpu.count;
    const OverlapStatistics::Times overlap = take_overlap(ShapeTable::kNone);
    unknown.kernel_time = overlap.time;
    unknown.overlapped = overlap.overlapped;
    for (const KernelShare& share : unknown_names_) unknown.names.push_back(name_of(share));
  }
  return rows;
}

}  // namespace inject
