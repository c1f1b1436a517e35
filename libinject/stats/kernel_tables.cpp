// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/kernel_tables.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

namespace inject {

namespace {

std::array<std::int32_t, 3> three(const std::uint32_t* words) {
  return {static_cast<std::int32_t>(words[0]), static_cast<std::int32_t>(words[1]),
          static_cast<std::int32_t>(words[2])};
}

DetailRow detail_row(const KeyIndex<12>::Key& key, const NameTable& names, const Totals& time) {
  DetailRow row;
  row.time = time;
  row.name = names.name(key[0]);
  row.grid = three(&key[1]);
  row.block = three(&key[4]);
  row.device = key[7];
  row.registers_per_thread = key[8];
  row.static_shared_bytes = key[9];
  row.dynamic_shared_bytes = key[10];
  row.local_bytes_per_thread = key[11];
  return row;
}

DetailRow other_details(const Totals& time) {
  DetailRow row;
  row.time = time;
  row.other = true;
  row.name = kOtherName;
  return row;
}

/// By descending time.
bool is_before(const DetailRow& a, const DetailRow& b) {
  const auto order = [](const DetailRow& row) {
    return std::make_tuple(row.name, row.device, row.grid, row.block, row.registers_per_thread,
                           row.static_shared_bytes, row.dynamic_shared_bytes, row.local_bytes_per_thread);
  };
  return a.time.sum != b.time.sum ? a.time.sum > b.time.sum : order(a) < order(b);
}

}  // namespace

SampleStats& KernelTables::kernel_row(std::uint32_t name) {
  if (name == NameTable::kOther) return kernels_.at(kOtherIndex);
  if (name >= kernel_of_name_.size()) kernel_of_name_.resize(std::bit_ceil(std::size_t{name} + 1), kNoIndex);
  std::uint32_t& index = kernel_of_name_[name];
  if (index == kNoIndex) {
    if (kernel_names_.size() == Statistics::kMaxRows) return kernels_.at(kOtherIndex);
    index = static_cast<std::uint32_t>(kernel_names_.size());
    kernel_names_.push_back(name);
  }
  return kernels_.at(index, budget_);
}

std::uint32_t KernelTables::add(const KernelEvent& event, std::uint64_t duration) {
  const auto word = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };

  kernel_row(event.name).add(duration);

  const KeyIndex<7>::Key shape{event.name,          word(event.grid[0]),  word(event.grid[1]),
                               word(event.grid[2]), word(event.block[0]), word(event.block[1]),
                               word(event.block[2])};
  const KeyIndex<12>::Key detail{shape[0],
                                 shape[1],
                                 shape[2],
                                 shape[3],
                                 shape[4],
                                 shape[5],
                                 shape[6],
                                 event.device,
                                 event.registers_per_thread,
                                 event.static_shared_bytes,
                                 event.dynamic_shared_bytes,
                                 event.local_bytes_per_thread};
  const std::uint32_t details_known = detail_keys_.size();
  const std::uint32_t detail_index = detail_keys_.find_or_add(detail);
  DetailEntry& entry = details_.at(detail_index);
  // A launch's details imply its shape, so the second lookup is needed only for new details.
  std::uint32_t shape_index = entry.shape;
  if (detail_index == details_known || detail_index == kOtherIndex) {
    shape_index = shape_keys_.find_or_add(shape);
    entry.shape = shape_index;
  }
  entry.time.add(duration);
  shapes_.at(shape_index, budget_).add(duration);

  const std::uint32_t thread = event.launch.known ? event.launch.thread : kNoIndex;
  threads_.at(thread_keys_.find_or_add({thread, event.device}), budget_).add(duration);
  return detail_index;
}

std::vector<TimeRow> KernelTables::kernels(const NameTable& names) const {
  std::vector<TimeRow> rows;
  for (const std::uint32_t i : kernels_.indices()) {
    rows.push_back({i == kOtherIndex ? kOtherName : names.name(kernel_names_[i]), &kernels_[i]});
  }
  sort_by_total(rows);
  return rows;
}

std::vector<ShapeRow> KernelTables::shapes(const NameTable& names) const {
  std::vector<ShapeRow> rows;
  for (const std::uint32_t i : shapes_.indices()) {
    ShapeRow row;
    row.stats = &shapes_[i];
    row.other = i == kOtherIndex;
    row.name = kOtherName;
    if (!row.other) {
      const auto& key = shape_keys_.key(i);
      row.name = names.name(key[0]);
      row.grid = three(&key[1]);
      row.block = three(&key[4]);
    }
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const ShapeRow& a, const ShapeRow& b) {
    return std::make_tuple(b.stats->sum(), a.name, a.grid, a.block) <
           std::make_tuple(a.stats->sum(), b.name, b.grid, b.block);
  });
  return rows;
}

std::vector<DetailRow> KernelTables::details(const NameTable& names,
                                             const std::function<TensorCores(std::uint32_t)>& cores) const {
  std::vector<DetailRow> rows;
  for (const std::uint32_t i : details_.indices()) {
    if (i == kOtherIndex) {
      rows.push_back(other_details(details_[i].time));
      continue;
    }
    const auto& key = detail_keys_.key(i);
    DetailRow& row = rows.emplace_back(detail_row(key, names, details_[i].time));
    row.number = i;
    row.cores = cores(key[0]);
  }
  std::sort(rows.begin(), rows.end(), is_before);
  return rows;
}

std::vector<KernelMetricRow> KernelTables::with_details(std::vector<KernelMetricEntry> measured,
                                                        const NameTable& names) const {
  std::vector<KernelMetricRow> rows;
  for (KernelMetricEntry& entry : measured) {
    Totals time;  // since metrics were first sampled
    time.count = entry.instances;
    time.sum = entry.time;
    DetailRow detail = entry.row == KernelMetrics::kMaxRows
                           ? other_details(time)
                           : detail_row(detail_keys_.key(entry.row), names, time);
    detail.number = entry.row == KernelMetrics::kMaxRows ? kNoIndex : entry.row;
    rows.push_back({std::move(detail), std::move(entry)});
  }
  std::sort(rows.begin(), rows.end(),
            [](const KernelMetricRow& a, const KernelMetricRow& b) { return is_before(a.detail, b.detail); });
  return rows;
}

std::vector<ThreadRow> KernelTables::threads() const {
  std::vector<ThreadRow> rows;
  for (const std::uint32_t i : threads_.indices()) {
    if (i == kOtherIndex) {
      rows.push_back({kOtherIndex, kOtherIndex, &threads_[i]});
    } else {
      rows.push_back({thread_keys_.key(i)[0], thread_keys_.key(i)[1], &threads_[i]});
    }
  }
  std::sort(rows.begin(), rows.end(), [](const ThreadRow& a, const ThreadRow& b) {
    return std::make_tuple(b.stats->sum(), a.thread, a.device) <
           std::make_tuple(a.stats->sum(), b.thread, b.device);
  });
  return rows;
}

}  // namespace inject
