// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/collective.h"

#include <algorithm>
#include <array>
#include <map>

#include "libinject/base/format.h"

namespace inject {

namespace {

/// For the end of a group of equal calls, the shape of these calls.
CollectiveShape shape_of_row(CollectiveShape shape) {
  if (shape.role == GroupRole::kEqual) {
    shape.role = GroupRole::kMember;
    shape.operations = 0;
  }
  return shape;
}

struct Gathered {
  CollectiveRow row;
  std::uint64_t failed_in_groups = 0;
};

void add(Gathered& gathered, const CollectiveInput& input) {
  CollectiveRow& row = gathered.row;
  const bool ends_group = input.shape.role == GroupRole::kEqual;
  const std::uint64_t calls = ends_group ? std::max(input.shape.operations, 1u) : 1;
  if (ends_group) {
    // It is not a call of its own: its times belong to the group's calls, which failed if it did.
    gathered.failed_in_groups += input.failed * calls;
  } else {
    row.calls += input.calls;
    row.failed += input.failed;
  }
  row.captured += input.captured * calls;
  row.replayed += input.replayed * calls;
  row.host_time += input.host_time;
  Totals gpu = input.gpu;
  if (gpu.count != 0) {
    gpu.count *= calls;
    gpu.min /= calls;
    gpu.max /= calls;
  }
  row.gpu.merge(gpu);
  row.kernels += input.kernels;
  row.kernel_time += input.kernel_time;
  row.overlapped += input.overlapped;
  for (const KernelTime& kernel : input.names) {
    const auto same = [&](const KernelTime& other) { return other.name == kernel.name; };
    const auto there = std::find_if(row.names.begin(), row.names.end(), same);
    if (there == row.names.end()) {
      row.names.push_back(kernel);
    } else {
      there->time += kernel.time;
    }
  }
}

void finish(Gathered& gathered) {
  CollectiveRow& row = gathered.row;
  const std::uint64_t failed = std::min(gathered.failed_in_groups, row.calls);
  row.calls -= failed;
  row.failed += failed;
  row.captured = std::min(row.captured, row.calls);
  std::stable_sort(row.names.begin(), row.names.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.time > b.time; });
}

}  // namespace

std::string_view collective_name(Collective operation) {
  constexpr std::array<std::string_view, 13> kNames{
      "",     "AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "Send",
      "Recv", "SendRecv",  "AllToAll",  "",       "Gather",    "Scatter"};
  const auto index = static_cast<std::size_t>(operation);
  return index < kNames.size() ? kNames[index] : std::string_view();
}

std::string_view collective_type_name(unsigned type) {
  constexpr std::array<std::string_view, 12> kNames{"int8",  "uint8",  "int32",    "uint32",
                                                    "int64", "uint64", "fp16",     "fp32",
                                                    "fp64",  "bf16",   "fp8 e4m3", "fp8 e5m2"};
  if (type == CollectiveShape::kSeveral) return "several";
  return type < kNames.size() ? kNames[type] : std::string_view();
}

std::string_view reduction_name(unsigned reduction) {
  constexpr std::array<std::string_view, 6> kNames{"", "sum", "prod", "max", "min", "avg"};
  if (reduction == CollectiveShape::kSeveral) return "several";
  return reduction < kNames.size() ? kNames[reduction] : "custom";
}

std::optional<double> bus_factor(Collective operation, std::uint32_t ranks) {
  const double n = ranks;
  switch (operation) {
    case Collective::kAllReduce:
      return ranks == 0 ? std::nullopt : std::optional(2 * (n - 1) / n);
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return ranks == 0 ? std::nullopt : std::optional((n - 1) / n);
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSend:
    case Collective::kRecv:
    case Collective::kSendRecv:
      return 1;
    case Collective::kUnknown:
    case Collective::kMixed:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> CollectiveRow::algorithm_bandwidth() const {
  // Bytes per nanosecond are 10^9 bytes per second.
  if (gpu.sum == 0 || !is_known() || shape.bytes == kUnknownBytes) return std::nullopt;
  // What failed calls moved is unknown.
  if (gpu.count > calls - captured + replayed) return std::nullopt;
  return static_cast<double>(shape.bytes) * static_cast<double>(gpu.count) / static_cast<double>(gpu.sum);
}

std::optional<double> CollectiveRow::bus_bandwidth() const {
  const std::optional<double> bandwidth = algorithm_bandwidth();
  const std::optional<double> factor = bus_factor(shape.operation, shape.ranks);
  if (!bandwidth || !factor) return std::nullopt;
  return *bandwidth * *factor;
}

std::optional<double> CollectiveRow::overlap() const {
  if (kernel_time == 0) return std::nullopt;
  return static_cast<double>(overlapped) / static_cast<double>(kernel_time);
}

std::string CollectiveRow::operation() const {
  if (!is_known()) return "[unknown]";
  const std::string_view name = collective_name(shape.operation);
  if (shape.role != GroupRole::kDifferent) return std::string(name);
  std::string text = str_format("Group of {}", shape.operations);
  if (!name.empty()) text.append(" ").append(name);
  return text;
}

std::string_view CollectiveRow::grouped() const {
  switch (shape.role) {
    case GroupRole::kNone:
      return "no";
    case GroupRole::kMember:
    case GroupRole::kEqual:
      return "yes";
    case GroupRole::kDifferent:
      return "group";
  }
  return "";
}

std::vector<CollectiveRow> collective_rows(const std::vector<CollectiveInput>& inputs) {
  std::map<CallShape::Words, Gathered> rows;
  for (const CollectiveInput& input : inputs) {
    const CollectiveShape shape = shape_of_row(input.shape);
    Gathered& gathered = rows[CallShape(shape).words()];
    gathered.row.shape = shape;
    add(gathered, input);
  }
  std::vector<CollectiveRow> result;
  result.reserve(rows.size());
  for (auto& [words, gathered] : rows) {
    finish(gathered);
    result.push_back(std::move(gathered.row));
  }
  std::stable_sort(result.begin(), result.end(), [](const CollectiveRow& a, const CollectiveRow& b) {
    return a.gpu.sum != b.gpu.sum ? a.gpu.sum > b.gpu.sum : a.shape.bytes > b.shape.bytes;
  });
  return result;
}

}  // namespace inject
