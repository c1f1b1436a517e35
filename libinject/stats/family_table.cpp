// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/family_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "libinject/record/shape_table.h"

namespace inject {

namespace {

/// The category of the innermost of these library calls; kOther if there is none.
Category call_category(CallChain path, ShapeKind kind) {
  const unsigned depth = chain_depth(path);
  return depth == 0 ? Category::kOther : call_category(chain_at(path, depth - 1), kind);
}

}  // namespace

Category call_category(FunctionId function, ShapeKind kind) {
  if (function != kFn_cudnnBackendExecute && function != kFn_cudnnBackendPopulateCudaGraph)
    return function_category(function);
  switch (kind) {
    case ShapeKind::kGemm:
      return Category::kGemm;
    case ShapeKind::kAttention:
      return Category::kAttention;
    case ShapeKind::kNormalization:
      return Category::kNorm;
    case ShapeKind::kOtherGraph:
      return Category::kPlan;  // decided by the kernels' names
    default:
      return function_category(function);
  }
}

Family FamilyTable::add(const KernelEvent& event, CallChain path, ShapeKind kind, std::uint64_t duration) {
  const Category category = call_category(path, kind);
  const std::uint32_t known = keys_.size();
  const std::uint32_t index = keys_.find_or_add({event.name, static_cast<std::uint32_t>(category)});
  Entry& entry = entries_.at(index);
  if (index == known) {
    const std::string_view name = names_->name(event.name);
    entry.family = family_of(name, category);
    entry.cores = tensor_cores_of(name).cores;
  }
  entry.time.add(duration);
  if (path != 0) entry.attributed += duration;
  if (!event.launch.known || event.launch.shape == ShapeTable::kNone) entry.unshaped.add(duration);
  return entry.family;
}

std::unordered_map<std::uint32_t, TensorCores> FamilyTable::tensor_cores() const {
  std::unordered_map<std::uint32_t, TensorCores> cores;
  for (const std::uint32_t i : entries_.indices()) {
    if (i != kOtherIndex) cores.try_emplace(keys_.key(i)[0], entries_[i].cores);
  }
  return cores;
}

std::optional<Family> family_of_call(const CallShapeRow& call) {
  if (call.kernels.empty() || call.entry.other) return std::nullopt;
  std::array<std::uint64_t, kFamilies> computing{};
  std::array<std::uint64_t, kFamilies> helping{};
  bool only_helpers = true;
  const Category category = call_category(call.entry.function, call.shape.kind());
  for (const auto& [name, share] : call.kernels) {
    const bool helps = product_role_of(name) == ProductRole::kHelps;
    only_helpers = only_helpers && helps;
    (helps ? helping : computing)[static_cast<std::size_t>(family_of(name, category))] += share.time;
  }
  const auto& time = only_helpers ? helping : computing;
  return static_cast<Family>(std::max_element(time.begin(), time.end()) - time.begin());
}

std::vector<FamilyRow> FamilyTable::families() const {
  std::array<FamilyRow, kFamilies> families{};
  std::array<std::set<std::uint32_t>, kFamilies> names;
  for (const std::uint32_t i : entries_.indices()) {
    const Entry& entry = entries_[i];
    FamilyRow& row = families[static_cast<std::size_t>(entry.family)];
    row.time.merge(entry.time);
    row.attributed += entry.attributed;
    if (i != kOtherIndex) names[static_cast<std::size_t>(entry.family)].insert(keys_.key(i)[0]);
    if (entry.cores == TensorCores::kUsed) row.on_tensor_cores += entry.time.sum;
    if (entry.cores == TensorCores::kUnknown) row.unknown_cores += entry.time.sum;
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

std::vector<KernelFamilyRow> FamilyTable::by_name() const {
  struct Row {
    KernelFamilyRow row;
    std::uint64_t most = 0;
  };
  std::map<std::uint32_t, Row> by_name;
  for (const std::uint32_t i : entries_.indices()) {
    if (i == kOtherIndex) continue;
    const Entry& from = entries_[i];
    Row& entry = by_name[keys_.key(i)[0]];
    if (entry.row.time.count == 0 || from.time.sum > entry.most) {
      entry.row.family = from.family;
      entry.row.cores = from.cores;
      entry.most = from.time.sum;
    }
    entry.row.time.merge(from.time);
  }
  std::vector<KernelFamilyRow> rows;
  for (auto& [name, entry] : by_name) {
    entry.row.name = names_->name(name);
    rows.push_back(entry.row);
  }
  std::sort(rows.begin(), rows.end(), [](const KernelFamilyRow& a, const KernelFamilyRow& b) {
    return std::make_tuple(b.time.sum, a.name) < std::make_tuple(a.time.sum, b.name);
  });
  return rows;
}

std::vector<std::pair<std::string_view, Totals>> FamilyTable::unshaped_kernels(Family family) const {
  std::map<std::string_view, Totals> found;
  for (const std::uint32_t i : entries_.indices()) {
    const Entry& entry = entries_[i];
    if (i != kOtherIndex && entry.family == family && entry.unshaped.count != 0)
      found[names_->name(keys_.key(i)[0])].merge(entry.unshaped);
  }
  std::vector<std::pair<std::string_view, Totals>> rows(found.begin(), found.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.sum > b.second.sum; });
  return rows;
}

UnshapedWork FamilyTable::unshaped_work(bool (*of)(Family)) const {
  UnshapedWork work;
  for (const std::uint32_t i : entries_.indices()) {
    const Entry& entry = entries_[i];
    if (i == kOtherIndex || !of(entry.family)) continue;
    const bool in_call = static_cast<Category>(keys_.key(i)[1]) != Category::kOther;
    (in_call ? work.in_calls : work.by_itself).merge(entry.unshaped);
  }
  return work;
}

}  // namespace inject
