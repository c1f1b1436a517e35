// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "libinject/stats/statistics.h"
#include "libinject/stats/tables.h"

namespace inject {

namespace {

constexpr std::string_view kOtherName = "[other]";

template <typename Row>
void sort_by_total(std::vector<Row>& rows) {
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::make_tuple(b.stats->sum(), a.name) < std::make_tuple(a.stats->sum(), b.name);
  });
}

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

std::string path_name(CallChain path) {
  std::string name;
  for (unsigned level = 0; level < chain_depth(path); ++level) {
    if (level != 0) name += " > ";
    name += function_name(chain_at(path, level));
  }
  return name;
}

}  // namespace

std::vector<TimeRow> Statistics::kernels() const {
  const Tables& t = *tables_;
  std::vector<TimeRow> rows;
  for (const std::uint32_t i : t.kernels.indices()) {
    rows.push_back({i == kOtherIndex ? kOtherName : names_.name(t.kernel_names[i]), &t.kernels[i]});
  }
  sort_by_total(rows);
  return rows;
}

std::vector<ShapeRow> Statistics::kernel_shapes() const {
  const Tables& t = *tables_;
  std::vector<ShapeRow> rows;
  for (const std::uint32_t i : t.shapes.indices()) {
    ShapeRow row;
    row.stats = &t.shapes[i];
    row.other = i == kOtherIndex;
    row.name = kOtherName;
    if (!row.other) {
      const auto& key = t.shape_keys.key(i);
      row.name = names_.name(key[0]);
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

const std::vector<DetailRow>& Statistics::kernel_details() const {
  Tables& t = *tables_;
  if (t.detail_rows) return *t.detail_rows;
  // The table of families has looked most names up already.
  std::unordered_map<std::uint32_t, TensorCores> cores;
  for (const std::uint32_t i : t.families.indices()) {
    if (i != kOtherIndex) cores.try_emplace(t.family_keys.key(i)[0], t.families[i].cores);
  }
  std::vector<DetailRow> rows;
  for (const std::uint32_t i : t.details.indices()) {
    if (i == kOtherIndex) {
      rows.push_back(other_details(t.details[i].time));
      continue;
    }
    const auto& key = t.detail_keys.key(i);
    DetailRow& row = rows.emplace_back(detail_row(key, names_, t.details[i].time));
    row.number = i;
    const auto known = cores.find(key[0]);
    row.cores = known != cores.end() ? known->second : tensor_cores_of(row.name).cores;
  }
  std::sort(rows.begin(), rows.end(), is_before);
  return t.detail_rows.emplace(std::move(rows));
}

std::vector<KernelMetricRow> Statistics::kernel_metrics() const {
  const Tables& t = *tables_;
  std::vector<KernelMetricRow> rows;
  for (KernelMetricEntry& entry : t.metrics.rows()) {
    Totals time;  // since metrics were taken
    time.count = entry.instances;
    time.sum = entry.time;
    DetailRow detail = entry.row == KernelMetrics::kMaxRows
                           ? other_details(time)
                           : detail_row(t.detail_keys.key(entry.row), names_, time);
    detail.number = entry.row == KernelMetrics::kMaxRows ? kNoIndex : entry.row;
    rows.push_back({std::move(detail), std::move(entry)});
  }
  std::sort(rows.begin(), rows.end(),
            [](const KernelMetricRow& a, const KernelMetricRow& b) { return is_before(a.detail, b.detail); });
  return rows;
}

std::vector<TimeRow> Statistics::api_calls() const {
  const Tables& t = *tables_;
  std::vector<TimeRow> rows;
  for (const std::uint32_t i : t.apis.indices()) {
    const auto function = [&] { return static_cast<FunctionId>(t.api_keys.key(i)[0]); };
    rows.push_back({i == kOtherIndex ? kOtherName : function_name(function()), &t.apis[i]});
  }
  sort_by_total(rows);
  return rows;
}

std::vector<TimeRow> Statistics::operation_times() const {
  std::vector<TimeRow> rows;
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    if (tables_->operation_times[i].count() != 0)
      rows.push_back({kOperations[i], &tables_->operation_times[i]});
  }
  sort_by_total(rows);
  return rows;
}

std::vector<TimeRow> Statistics::operation_sizes() const {
  std::vector<TimeRow> rows;
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    if (tables_->operation_sizes[i].count() != 0)
      rows.push_back({kOperations[i], &tables_->operation_sizes[i]});
  }
  sort_by_total(rows);
  return rows;
}

std::vector<RangeRow> Statistics::ranges() const {
  const Tables& t = *tables_;
  std::vector<RangeRow> rows;
  for (const std::uint32_t i : t.range_times.indices()) {
    RangeRow row;
    row.stats = &t.range_times[i];
    if (row.stats->count() == 0) continue;
    row.other = i == kOtherIndex;
    row.name = kOtherName;
    if (!row.other) {
      row.name = names_.name(t.range_keys.key(i)[0]);
      row.style = static_cast<RangeStyle>(t.range_keys.key(i)[1]);
    }
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const RangeRow& a, const RangeRow& b) {
    return std::make_tuple(b.stats->sum(), a.name, a.style) <
           std::make_tuple(a.stats->sum(), b.name, b.style);
  });
  return rows;
}

std::vector<RangeKernelRow> Statistics::range_kernels() const {
  const Tables& t = *tables_;
  std::vector<RangeKernelRow> rows;
  if (!t.any_range) return rows;
  for (const std::uint32_t i : t.range_kernels.indices()) {
    RangeKernelRow row;
    row.stats = &t.range_kernels[i].time;
    row.range_instances = t.range_kernels[i].instances.count;
    row.other = i == kOtherIndex;
    if (row.other) {
      row.range = row.kernel = kOtherName;
      row.in_range = true;
    } else {
      const auto& key = t.range_kernel_keys.key(i);
      row.in_range = key[0] != kOutsideRanges;
      if (key[0] == kOtherIndex) {
        row.range = kOtherName;
      } else if (row.in_range) {
        row.range = names_.name(t.range_keys.key(key[0])[0]);
        row.style = static_cast<RangeStyle>(t.range_keys.key(key[0])[1]);
      }
      row.thread = key[1];
      row.kernel = names_.name(key[2]);
    }
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const RangeKernelRow& a, const RangeKernelRow& b) {
    return std::make_tuple(a.range, a.style, a.thread, b.stats->sum(), a.kernel) <
           std::make_tuple(b.range, b.style, b.thread, a.stats->sum(), b.kernel);
  });
  return rows;
}

std::vector<LibraryRow> Statistics::library_calls() const {
  const Tables& t = *tables_;
  std::vector<DeviceWork> inclusive(t.library_keys.size());
  for (std::uint32_t i = 0; i < t.library_keys.size(); ++i) {
    for (CallChain path = key_chain(t.library_keys.key(i)); path != 0; path = chain_parent(path)) {
      const std::uint32_t index = t.library_keys.find(chain_key(path));
      if (index != kNoIndex) inclusive[index].merge(t.libraries[i].work);
    }
  }
  std::vector<LibraryRow> rows;
  for (const std::uint32_t i : t.libraries.indices()) {
    const LibraryEntry& entry = t.libraries[i];
    LibraryRow row;
    row.host = entry.host;
    row.failed = entry.failed;
    row.self = entry.work;
    row.other = i == kOtherIndex;
    if (row.other) {
      row.path = kOtherName;
      row.inclusive = entry.work;
    } else {
      const CallChain path = key_chain(t.library_keys.key(i));
      row.path = path_name(path);
      const unsigned calls = chain_depth(path);
      row.depth = calls == 0 ? 0 : calls - 1;
      row.group = function_group(chain_at(path, row.depth));
      row.inclusive = inclusive[i];
    }
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const LibraryRow& a, const LibraryRow& b) {
    return std::make_tuple(b.inclusive.kernels.sum, b.host.sum, std::string_view(a.path)) <
           std::make_tuple(a.inclusive.kernels.sum, a.host.sum, std::string_view(b.path));
  });
  return rows;
}

const std::vector<CallShapeRow>& Statistics::call_shapes() const {
  if (tables_->call_shape_rows) return *tables_->call_shape_rows;
  std::vector<CallShapeRow> rows;
  for (CallShapeEntry& entry : tables_->call_shapes.rows()) {
    CallShapeRow& row = rows.emplace_back();
    if (entry.other) {
      row.function = kOtherName;
    } else {
      row.function = entry.function == kNoFunction ? std::string_view() : function_name(entry.function);
      row.shape = shapes_.shape(entry.shape);
      row.work = work_of(row.shape);
    }
    for (const KernelShare& share : entry.names)
      row.kernels.emplace_back(share.name == 0 ? kOtherName : names_.name(share.name), share);
    row.entry = std::move(entry);
  }
  return tables_->call_shape_rows.emplace(std::move(rows));
}

std::vector<FamilyRow> Statistics::families() const {
  std::array<FamilyRow, kFamilies> families{};
  std::array<std::set<std::uint32_t>, kFamilies> names;
  const Tables& t = *tables_;
  for (const std::uint32_t i : t.families.indices()) {
    const FamilyEntry& entry = t.families[i];
    FamilyRow& row = families[static_cast<std::size_t>(entry.family)];
    row.time.merge(entry.time);
    row.attributed += entry.attributed;
    if (i != kOtherIndex) names[static_cast<std::size_t>(entry.family)].insert(t.family_keys.key(i)[0]);
    if (entry.cores == TensorCores::kUsed) row.on_tensor_cores += entry.time.sum;
    if (entry.cores == TensorCores::kUnknown) row.unknown_cores += entry.time.sum;
  }
  // A call's operations belong to the family in which its kernels spent most.
  for (const CallShapeRow& call : call_shapes()) {
    std::array<std::uint64_t, kFamilies> time{};
    if (call.kernels.empty() || call.entry.other) continue;
    for (const auto& [name, share] : call.kernels)
      time[static_cast<std::size_t>(
          family_of(name, call_category(call.entry.function, call.shape.kind())))] += share.time;
    const auto most = std::max_element(time.begin(), time.end()) - time.begin();
    families[static_cast<std::size_t>(most)].flops += FlopSum{call.work.flops} * call.entry.executed();
  }
  std::vector<FamilyRow> rows;
  for (std::size_t i = 0; i < kFamilies; ++i) {
    if (families[i].time.count == 0) continue;
    families[i].family = static_cast<Family>(i);
    families[i].names = names[i].size();
    rows.push_back(families[i]);
  }
  std::sort(rows.begin(), rows.end(),
            [](const FamilyRow& a, const FamilyRow& b) { return a.time.sum > b.time.sum; });
  return rows;
}

const std::vector<KernelFamilyRow>& Statistics::kernel_families() const {
  Tables& t = *tables_;
  if (t.kernel_family_rows) return *t.kernel_family_rows;
  struct Entry {
    KernelFamilyRow row;
    std::uint64_t most = 0;
  };
  std::map<std::uint32_t, Entry> by_name;
  for (const std::uint32_t i : t.families.indices()) {
    if (i == kOtherIndex) continue;
    const FamilyEntry& from = t.families[i];
    Entry& entry = by_name[t.family_keys.key(i)[0]];
    if (entry.row.time.count == 0 || from.time.sum > entry.most) {
      entry.row.family = from.family;
      entry.row.cores = from.cores;
      entry.most = from.time.sum;
    }
    entry.row.time.merge(from.time);
  }
  std::vector<KernelFamilyRow> rows;
  for (auto& [name, entry] : by_name) {
    entry.row.name = names_.name(name);
    rows.push_back(entry.row);
  }
  std::sort(rows.begin(), rows.end(), [](const KernelFamilyRow& a, const KernelFamilyRow& b) {
    return std::make_tuple(b.time.sum, a.name) < std::make_tuple(a.time.sum, b.name);
  });
  return t.kernel_family_rows.emplace(std::move(rows));
}

std::vector<CollectiveRow> Statistics::collectives() const {
  const Tables& t = *tables_;
  auto times = t.overlap.rows();
  // Once: of one shape there may be calls of several functions.
  const auto take_overlap = [&times](std::uint32_t shape) {
    const auto found = times.extract(shape);
    return found.empty() ? OverlapStatistics::Times() : found.mapped();
  };
  const auto name_of = [this](const KernelShare& share) {
    return KernelTime{share.name == 0 ? kOtherName : names_.name(share.name), share.time};
  };
  std::vector<CollectiveInput> inputs;
  for (const CallShapeRow& row : call_shapes()) {
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
  if (t.unknown_collectives.count != 0) {
    CollectiveRow& unknown = rows.emplace_back();
    unknown.gpu = t.unknown_collectives;
    unknown.kernels = unknown.gpu.count;
    const OverlapStatistics::Times overlap = take_overlap(ShapeTable::kNone);
    unknown.kernel_time = overlap.time;
    unknown.overlapped = overlap.overlapped;
    for (const KernelShare& share : t.unknown_collective_names) unknown.names.push_back(name_of(share));
  }
  return rows;
}

std::vector<std::pair<std::string_view, Totals>> Statistics::unshaped_kernels(Family family) const {
  const Tables& t = *tables_;
  std::map<std::string_view, Totals> found;
  for (const std::uint32_t i : t.families.indices()) {
    const FamilyEntry& entry = t.families[i];
    if (i != kOtherIndex && entry.family == family && entry.unshaped.count != 0)
      found[names_.name(t.family_keys.key(i)[0])].merge(entry.unshaped);
  }
  std::vector<std::pair<std::string_view, Totals>> rows(found.begin(), found.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.sum > b.second.sum; });
  return rows;
}

UnshapedWork Statistics::unshaped_work(bool (*of)(Family)) const {
  const Tables& t = *tables_;
  UnshapedWork work;
  for (const std::uint32_t i : t.families.indices()) {
    const FamilyEntry& entry = t.families[i];
    if (i == kOtherIndex || !of(entry.family)) continue;
    const bool in_call = static_cast<Category>(t.family_keys.key(i)[1]) != Category::kOther;
    (in_call ? work.in_calls : work.by_itself).merge(entry.unshaped);
  }
  return work;
}

std::vector<ThreadRow> Statistics::threads() const {
  const Tables& t = *tables_;
  std::vector<ThreadRow> rows;
  for (const std::uint32_t i : t.threads.indices()) {
    if (i == kOtherIndex) {
      rows.push_back({kOtherIndex, kOtherIndex, &t.threads[i]});
    } else {
      rows.push_back({t.thread_keys.key(i)[0], t.thread_keys.key(i)[1], &t.threads[i]});
    }
  }
  std::sort(rows.begin(), rows.end(), [](const ThreadRow& a, const ThreadRow& b) {
    return std::make_tuple(b.stats->sum(), a.thread, a.device) <
           std::make_tuple(a.stats->sum(), b.thread, b.device);
  });
  return rows;
}

std::vector<WindowDeviceRow> Statistics::window_devices() const {
  const Tables& t = *tables_;
  std::vector<WindowDeviceRow> rows;
  for (const std::uint32_t i : t.window_devices.indices()) {
    WindowDeviceRow row;
    row.window = row.device = kOtherIndex;
    if (i != kOtherIndex) {
      row.window = t.window_device_keys.key(i)[0];
      row.device = t.window_device_keys.key(i)[1];
    }
    row.work = t.window_devices[i];
    row.busy = t.window_busy[i].busy();
    row.first = t.window_busy[i].first();
    row.last = t.window_busy[i].last();
    row.times = t.device_times.row(row.window, row.device);
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const WindowDeviceRow& a, const WindowDeviceRow& b) {
    return std::make_pair(a.window, a.device) < std::make_pair(b.window, b.device);
  });
  return rows;
}

std::vector<WindowHostRow> Statistics::window_hosts() const {
  const Tables& t = *tables_;
  std::vector<WindowHostRow> rows;
  for (const std::uint32_t i : t.window_hosts.indices()) {
    rows.push_back({i == kOtherIndex ? kOtherIndex : t.window_host_keys.key(i)[0], t.window_hosts[i]});
  }
  std::sort(rows.begin(), rows.end(),
            [](const WindowHostRow& a, const WindowHostRow& b) { return a.window < b.window; });
  return rows;
}

const IterationStatistics& Statistics::iterations() const {
  return tables_->iterations;
}

const DeviceTimeStatistics& Statistics::device_times() const {
  return tables_->device_times;
}

const KernelMetrics& Statistics::metrics() const {
  return tables_->metrics;
}

std::span<const WeightedMean> Statistics::iteration_metrics(const IterationRow& row,
                                                            std::uint32_t device) const {
  const auto found = tables_->iteration_metrics.find({row.window, row.begin, device});
  if (found == tables_->iteration_metrics.end()) return {};
  return found->second;
}

std::vector<PhaseRow> Statistics::phases() const {
  return tables_->phases.rows();
}

const CopyStatistics& Statistics::copies() const {
  return tables_->copies;
}

std::uint64_t Statistics::late_for_busy_time() const {
  return tables_->late_for_busy + tables_->iterations.late() + tables_->overlap.late() +
         tables_->copies.late();
}

std::uint64_t Statistics::left_out_of_device_times() const {
  return tables_->device_times.left_out();
}

DeviceWork Statistics::device_total() const {
  DeviceWork total;
  for (const std::uint32_t i : tables_->window_devices.indices()) total.merge(tables_->window_devices[i]);
  return total;
}

HostWork Statistics::host_total() const {
  HostWork total;
  for (const std::uint32_t i : tables_->window_hosts.indices()) total.merge(tables_->window_hosts[i]);
  return total;
}

}  // namespace inject
