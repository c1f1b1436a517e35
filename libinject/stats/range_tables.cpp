// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/range_tables.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

namespace inject {

namespace {

/// Takes the place of a range's number: launched outside any range.
constexpr std::uint32_t kOutsideRanges = kOtherIndex - 1;
constexpr std::size_t kMaxEnds = 16 * 1024;  // per range and thread
constexpr std::size_t kMinEnds = 256;
constexpr std::size_t kMaxEndsTotal = 1u << 20;  // 8 MiB

}  // namespace

void RangeTables::InstanceCounter::add(std::uint64_t instance) {
  if (count == 0) {
    latest = instance;
    seen = 1;
    count = 1;
  } else if (instance > latest) {
    const std::uint64_t distance = instance - latest;
    seen = distance < 64 ? seen << distance | 1 : 1;
    latest = instance;
    ++count;
  } else {
    const std::uint64_t distance = latest - instance;
    if (distance < 64 && (seen >> distance & 1) == 0) {
      seen |= std::uint64_t{1} << distance;
      ++count;
    }
  }
}

void RangeTables::add(const RangeEvent& event, std::uint64_t duration) {
  any_range_ = true;
  const std::uint32_t range = range_of(tree_->node(event.node));
  // Kernels may have added ranges that have not ended yet.
  ranges_.fill(range_keys_.size(), budget_);
  ranges_.at(range, budget_).add(duration);
  range_ended(event.thread, range, event.end);
}

void RangeTables::add(const KernelEvent& event, std::uint64_t duration) {
  const std::uint32_t thread = event.launch.known ? event.launch.thread : kNoIndex;
  if (!event.launch.known || event.launch.range == 0) {
    kernel_row(kOutsideRanges, thread, event.name).time.add(duration);
    return;
  }
  any_range_ = true;
  const Around around = ranges_around(event.launch.range);
  for (std::uint32_t i = around.begin; i < around.begin + around.size; ++i) {
    const std::uint32_t range = around_ranges_[i];
    KernelEntry& row = kernel_row(range, thread, event.name);
    row.time.add(duration);
    row.instances.add(instance_at(thread, range, event.launch.host_begin));
  }
}

std::uint32_t RangeTables::range_of(const RangeTree::Node& node) {
  return range_keys_.find_or_add({node.name, static_cast<std::uint32_t>(node.style)});
}

// Built from the ranges around the parent: a program may push and never pop, and the path must not be walked
// again for each node on it.
RangeTables::Around RangeTables::ranges_around(std::uint32_t node) {
  if (node >= around_.size()) around_.resize(std::bit_ceil(std::size_t{node} + 1));
  std::vector<std::uint32_t> unknown;
  // A parent is always older than its child; the bound only guards against a damaged tree.
  for (std::uint32_t id = node; id != 0 && !around_[id].known;) {
    unknown.push_back(id);
    const std::uint32_t parent = tree_->node(id).parent;
    id = parent < id ? parent : 0;
  }
  for (; !unknown.empty(); unknown.pop_back()) {
    const RangeTree::Node entry = tree_->node(unknown.back());
    const Around outer = entry.parent < unknown.back() ? around_[entry.parent] : Around{};
    around_[unknown.back()] = with_range(outer, range_of(entry));
  }
  return around_[node];
}

RangeTables::Around RangeTables::with_range(const Around& outer, std::uint32_t range) {
  const auto first = around_ranges_.begin() + outer.begin;
  if (std::find(first, first + outer.size, range) != first + outer.size) return outer;
  const auto begin = static_cast<std::uint32_t>(around_ranges_.size());
  const std::size_t kept = std::min<std::size_t>(outer.size, kMaxRangeNesting - 1);
  around_ranges_.push_back(range);
  for (std::size_t i = 0; i < kept; ++i) around_ranges_.push_back(around_ranges_[outer.begin + i]);
  return {begin, static_cast<std::uint32_t>(kept + 1), true};
}

RangeTables::InstanceCache& RangeTables::cache_of(std::uint32_t thread, std::uint32_t range) {
  return instance_cache_[(thread * 5 + range) % instance_cache_.size()];
}

void RangeTables::range_ended(std::uint32_t thread, std::uint32_t range, Nanoseconds end) {
  const std::uint32_t index = ended_keys_.find_or_add({thread, range});
  if (index == kOtherIndex) return;
  if (index == ended_.size()) ended_.emplace_back();
  EndedRanges& entry = ended_[index];
  if (entry.ends.size() >= kMaxEnds || (ends_kept_ >= kMaxEndsTotal && entry.ends.size() >= kMinEnds)) {
    const std::size_t half = entry.ends.size() / 2;
    entry.ends.erase(entry.ends.begin(), entry.ends.begin() + static_cast<std::ptrdiff_t>(half));
    entry.dropped += half;
    ends_kept_ -= half;
  }
  // A range ended by another thread may arrive late: keep the list in order.
  if (!entry.ends.empty()) end = std::max(end, entry.ends.back());
  entry.ends.push_back(end);
  ++ends_kept_;
  InstanceCache& cache = cache_of(thread, range);
  if (cache.thread == thread && cache.range == range) cache = {};
}

std::uint64_t RangeTables::instance_at(std::uint32_t thread, std::uint32_t range, Nanoseconds time) {
  InstanceCache& cache = cache_of(thread, range);
  if (cache.thread == thread && cache.range == range && time >= cache.begin && time < cache.end) {
    return cache.instance;
  }
  cache = {thread, range, 0, std::numeric_limits<Nanoseconds>::max(), 0};
  const std::uint32_t index = ended_keys_.find({thread, range});
  if (index == kNoIndex) return 0;
  const EndedRanges& entry = ended_[index];
  const auto next = std::upper_bound(entry.ends.begin(), entry.ends.end(), time);
  if (next != entry.ends.begin()) cache.begin = *(next - 1);
  if (next != entry.ends.end()) cache.end = *next;
  cache.instance = entry.dropped + static_cast<std::uint64_t>(next - entry.ends.begin());
  return cache.instance;
}

RangeTables::KernelEntry& RangeTables::kernel_row(std::uint32_t range, std::uint32_t thread,
                                                  std::uint32_t name) {
  return kernels_.at(kernel_keys_.find_or_add({range, thread, name}), budget_);
}

std::vector<RangeRow> RangeTables::ranges() const {
  std::vector<RangeRow> rows;
  for (const std::uint32_t i : ranges_.indices()) {
    RangeRow row;
    row.stats = &ranges_[i];
    if (row.stats->count() == 0) continue;
    row.other = i == kOtherIndex;
    row.name = kOtherName;
    if (!row.other) {
      row.name = names_->name(range_keys_.key(i)[0]);
      row.style = static_cast<RangeStyle>(range_keys_.key(i)[1]);
    }
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const RangeRow& a, const RangeRow& b) {
    return std::make_tuple(b.stats->sum(), a.name, a.style) <
           std::make_tuple(a.stats->sum(), b.name, b.style);
  });
  return rows;
}

std::vector<RangeKernelRow> RangeTables::kernels() const {
  std::vector<RangeKernelRow> rows;
  if (!any_range_) return rows;
  for (const std::uint32_t i : kernels_.indices()) {
    RangeKernelRow row;
    row.stats = &kernels_[i].time;
    row.range_instances = kernels_[i].instances.count;
    row.other = i == kOtherIndex;
    if (row.other) {
      row.range = row.kernel = kOtherName;
      row.in_range = true;
    } else {
      const auto& key = kernel_keys_.key(i);
      row.in_range = key[0] != kOutsideRanges;
      if (key[0] == kOtherIndex) {
        row.range = kOtherName;
      } else if (row.in_range) {
        row.range = names_->name(range_keys_.key(key[0])[0]);
        row.style = static_cast<RangeStyle>(range_keys_.key(key[0])[1]);
      }
      row.thread = key[1];
      row.kernel = names_->name(key[2]);
    }
    rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [](const RangeKernelRow& a, const RangeKernelRow& b) {
    return std::make_tuple(a.range, a.style, a.thread, b.stats->sum(), a.kernel) <
           std::make_tuple(b.range, b.style, b.thread, a.stats->sum(), b.kernel);
  });
  return rows;
}

}  // namespace inject
