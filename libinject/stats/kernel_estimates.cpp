// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/kernel_estimates.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace inject {

namespace {

double microseconds(std::uint64_t time) {
  return static_cast<double>(time) * 1e-3;
}

}  // namespace

bool KernelMetricEntry::reliable() const {
  bool any = false;
  for (const MetricEstimate& metric : metrics) {
    if (metric.of_link) continue;
    if (metric.measured && !metric.reliable) return false;
    any = any || metric.measured;
  }
  return any;
}

KernelEstimates::DeviceSamples& KernelEstimates::samples_of(std::uint32_t device) {
  return devices_.try_emplace(device, kinds_.size()).first->second;
}

KernelEstimates::Row& KernelEstimates::row(std::uint32_t number) {
  if (number >= rows_.size()) rows_.resize(std::size_t{number} + 1);
  return rows_[number];
}

void KernelEstimates::add(std::uint32_t row_number, std::uint32_t device, std::uint64_t time) {
  entries_.reset();
  Row& row = this->row(row_number);
  if (row.instances == 0) row.device = device;
  if (row.device != device) row.several_devices = true;
  ++row.instances;
  row.time += time;
}

void KernelEstimates::add(std::uint32_t device, const JoinedSample& sample) {
  entries_.reset();
  for (const JoinedSample::RowPart& part : sample.rows) add_to_row(row(part.row), part, sample);
  DeviceSamples& own = samples_of(device);
  own.mixture.add(own.samples++, sample.states, sample.values, microseconds(sample.length));
}

void KernelEstimates::add_to_row(Row& row, const JoinedSample::RowPart& part,
                                 const JoinedSample& sample) const {
  const double weight = microseconds(sample.length);
  const double share = static_cast<double>(part.time) / static_cast<double>(sample.length);
  ++row.samples;
  row.sampled_time += part.time;
  row.shared_time += part.shared;
  if (row.bounds.empty()) row.bounds.resize(kinds_.size());
  if (share >= kWhole) {
    ++row.whole_samples;
    row.whole_share += share;
    row.whole_time += part.time;
    if (row.whole.empty()) row.whole.resize(kinds_.size());
  }
  for (std::size_t m = 0; m < kinds_.size(); ++m) {
    if (std::isnan(sample.values[m])) continue;
    const double value = double{sample.values[m]};
    Bounds& bounds = row.bounds[m];
    bounds.time += weight * share;
    if (kinds_.per_active_cycle(m)) {
      const double active = double{sample.values[kinds_.sm_active()]} / 100;
      if (share >= kWhole && active > 0) row.whole[m].add(value / active, weight * active);
      continue;
    }
    if (kinds_.percentage(m)) {
      bounds.low += weight * std::max(0.0, value - (1 - share) * 100);
      bounds.high += weight * std::min(100 * share, value);
    } else {
      bounds.low += share >= kWhole ? weight * value * share : 0.0;
      bounds.high += weight * value;
    }
    if (share >= kWhole) row.whole[m].add(value, weight);
  }
}

/// By row, for rows with enough samples: the estimates from decomposing their device's samples.
std::vector<std::vector<Estimate>> KernelEstimates::solve() const {
  std::map<std::uint32_t, std::vector<SampleMixture::Wanted>> wanted;  // by device
  for (std::uint32_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].samples >= kMinSamples && !rows_[i].several_devices)
      wanted[rows_[i].device].push_back({i, microseconds(rows_[i].sampled_time)});
  }
  std::vector<std::vector<Estimate>> estimates(rows_.size());
  for (const auto& [number, list] : wanted) {
    std::vector<std::vector<Estimate>> solved = devices_.at(number).mixture.solve(list);
    for (std::size_t i = 0; i < list.size(); ++i) estimates[list[i].row] = std::move(solved[i]);
  }
  return estimates;
}

/// The value of a row, from shared samples alone.
Estimate KernelEstimates::shared_estimate(const Row& row, std::span<const Estimate> solved,
                                          std::size_t metric) const {
  if (solved.empty()) return {};
  Estimate result = solved[metric];
  if (kinds_.per_active_cycle(metric)) {
    // Sums within a sample are per elapsed cycle: divide by the share of active ones.
    const Estimate& active = solved[kinds_.sm_active()];
    if (std::isnan(result.value) || std::isnan(active.value) || active.value <= active.error) return {};
    result.error = (result.error + std::abs(result.value) * active.error / active.value) * 100 / active.value;
    result.value = result.value * 100 / active.value;
  }
  if (!std::isnan(result.value) && row.time > 0) {
    const double edges = kEdges * static_cast<double>(row.instances) / static_cast<double>(row.time);
    result.error += std::abs(result.value) * std::min(kCarriedOver + edges, 1.0);
  }
  return result;
}

MetricEstimate KernelEstimates::estimate(const Row& row, std::size_t metric,
                                         std::span<const Estimate> solved) const {
  const Estimate apart = shared_estimate(row, solved, metric);
  MetricEstimate result;
  result.of_link = kinds_.of_link(metric);
  if (row.bounds.empty() || row.bounds[metric].time <= 0) return result;
  result.measured = true;
  const bool percentage = kinds_.percentage(metric);
  const double most = percentage ? 100.0 : std::numeric_limits<double>::infinity();
  if (!row.whole.empty() && row.whole[metric].values() >= kMinWhole &&
      static_cast<double>(row.whole_time) >= kMostlyWhole * static_cast<double>(row.sampled_time)) {
    result.summand = row.whole[metric].mean();
    result.value = std::clamp(result.summand, 0.0, most);
    // Even a sample that the kernel fills to 99 % is not entirely its own.
    const double others = 1 - row.whole_share / static_cast<double>(row.whole_samples);
    result.error = row.whole[metric].error() +
                   std::max(others, 0.0) * std::max(result.value, percentage ? 100 - result.value : 0.0);
  } else if (kinds_.per_active_cycle(metric)) {
    // Other kernels in a sample leave no bounds for such a metric. An interval entirely beyond what is
    // possible cannot be the kernel's.
    result.bounded = std::isnan(apart.value) || (percentage && apart.value - apart.error > kMaxRounded);
    if (!result.bounded) {
      result.summand = apart.value;
      result.value = std::clamp(apart.value, 0.0, most);
      result.error = apart.error;
    } else {
      result.error = std::numeric_limits<double>::infinity();
    }
  } else {
    const Bounds& bounds = row.bounds[metric];
    const double low = std::clamp(bounds.low / bounds.time, 0.0, most);
    const double high = std::clamp(bounds.high / bounds.time, low, most);
    result.bounded = std::isnan(apart.value);
    result.value = result.bounded ? (low + high) / 2 : std::clamp(apart.value, low, high);
    result.summand = result.bounded ? result.value : apart.value;
    result.error = std::max(result.value - low, high - result.value);
    if (!result.bounded) result.error = std::min(result.error, apart.error);
  }
  const double limit = percentage ? kMaxPoints : kMaxRelative * result.value;
  result.reliable = row.samples >= kMinSamples && result.error <= limit;
  return result;
}

const std::vector<KernelMetricEntry>& KernelEstimates::entries() const {
  if (entries_) return *entries_;
  const std::vector<std::vector<Estimate>> solved = solve();
  std::vector<KernelMetricEntry> entries;
  for (std::uint32_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.instances == 0) continue;
    KernelMetricEntry& entry = entries.emplace_back();
    entry.row = i;
    entry.instances = row.instances;
    entry.time = row.time;
    entry.samples = row.samples;
    entry.whole_samples = row.whole_samples;
    entry.sampled_time = row.sampled_time;
    entry.shared_time = row.shared_time;
    for (std::size_t m = 0; m < kinds_.size(); ++m) entry.metrics.push_back(estimate(row, m, solved[i]));
  }
  return entries_.emplace(std::move(entries));
}

const KernelMetricEntry& KernelEstimates::entry(std::uint32_t row) const {
  const std::vector<KernelMetricEntry>& entries = this->entries();
  return *std::lower_bound(entries.begin(), entries.end(), row,
                           [](const KernelMetricEntry& of, std::uint32_t wanted) { return of.row < wanted; });
}

std::uint64_t KernelEstimates::crowded() const {
  std::uint64_t sum = 0;
  for (const auto& [number, apart] : devices_) sum += apart.mixture.left_out();
  return sum;
}

}  // namespace inject
