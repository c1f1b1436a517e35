// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/kernel_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

namespace inject {

namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

double microseconds(std::uint64_t time) {
  return static_cast<double>(time) * 1e-3;
}

/// The index of the middle one of `size`, but at least one is before it.
std::size_t half(std::size_t size) {
  return std::max<std::size_t>(size / 2, 1);
}

}  // namespace

bool is_percentage(const MetricInfo& metric) {
  constexpr std::string_view kSign = "(%)";
  const std::string_view title = metric.title;
  return title.size() >= kSign.size() && title.substr(title.size() - kSign.size()) == kSign;
}

bool is_per_active_cycle(const MetricInfo& metric) {
  return metric.quantity == Quantity::kIpc || metric.quantity == Quantity::kOccupancy;
}

bool is_of_link(const MetricInfo& metric) {
  return metric.quantity == Quantity::kPcieRead || metric.quantity == Quantity::kPcieWrite ||
         metric.quantity == Quantity::kNvlinkReceive || metric.quantity == Quantity::kNvlinkTransmit;
}

bool KernelMetricEntry::reliable() const {
  bool any = false;
  for (const MetricEstimate& metric : metrics) {
    if (metric.of_link) continue;
    if (metric.measured && !metric.reliable) return false;
    any = any || metric.measured;
  }
  return any;
}

void KernelMetrics::metrics(std::vector<MetricInfo> list) {
  if (list.size() > kMaxMetrics) list.resize(kMaxMetrics);
  if (std::equal(list.begin(), list.end(), metrics_.begin(), metrics_.end(),
                 [](const MetricInfo& a, const MetricInfo& b) { return a.name == b.name; })) {
    return;
  }
  *this = KernelMetrics();
  metrics_ = std::move(list);
  for (std::size_t m = 0; m < metrics_.size(); ++m) {
    percentage_.push_back(is_percentage(metrics_[m]));
    if (!sm_active_ && metrics_[m].quantity == Quantity::kSmActive) sm_active_ = m;
  }
}

bool KernelMetrics::per_active_cycle(std::size_t metric) const {
  return sm_active_ && is_per_active_cycle(metrics_[metric]);
}

KernelMetrics::Device* KernelMetrics::device(std::uint32_t number) {
  const auto found = devices_.find(number);
  if (found != devices_.end()) return &found->second;
  if (devices_.size() == kMaxDevices) return nullptr;
  return &devices_.try_emplace(number, metrics_.size()).first->second;
}

KernelMetrics::Row& KernelMetrics::row(std::uint32_t number) {
  if (number >= rows_.size()) rows_.resize(std::size_t{number} + 1);
  return rows_[number];
}

KernelMetrics::Window* KernelMetrics::window(std::uint32_t number, std::uint32_t device) {
  const std::uint32_t index = window_keys_.find_or_add({number, device});
  if (index == KeyIndex<2>::kOther) return nullptr;
  if (index == windows_.size()) windows_.emplace_back().means.resize(metrics_.size());
  return &windows_[index];
}

void KernelMetrics::kernel(std::uint32_t window, std::uint32_t device_number, std::uint32_t row_number,
                           Nanoseconds start, Nanoseconds end) {
  if (!active()) return;
  row_number = std::min(row_number, kMaxRows);
  const std::uint64_t time = end > start ? end - start : 0;
  entries_.reset();
  Row& row = this->row(row_number);
  if (row.instances == 0) row.device = device_number;
  if (row.device != device_number) row.several_devices = true;
  ++row.instances;
  row.time += time;
  RowTimes& rows = window_kernels_[window];
  const std::size_t rows_before = rows.size();
  rows[std::uint64_t{device_number} << 32 | row_number] += time;
  window_rows_ += rows.size() - rows_before;
  Device* const device = this->device(device_number);
  if (device == nullptr || start < device->joined_until) ++late_;
  if (device != nullptr) hold(*device, {start, end, row_number, window});
  if (window_rows_ > kMaxWindowRows) bound_window_kernels();
}

void KernelMetrics::other_kernel(std::uint32_t device_number, Nanoseconds start, Nanoseconds end) {
  if (!active()) return;
  if (Device* const device = this->device(device_number)) hold(*device, {start, end, kOthers, 0});
}

void KernelMetrics::hold(Device& device, const Execution& execution) {
  if (execution.end <= std::max(execution.start, device.joined_until)) return;
  device.kernels.push_back(execution);
  device.kernels.back().start = std::max(execution.start, device.joined_until);
  if (++held_kernels_ > kMaxKernels) bound_kernels();
}

/// A sample's values with those left out that can't be.
std::array<float, kMaxMetrics> KernelMetrics::possible(std::array<float, kMaxMetrics> values) {
  for (std::size_t m = 0; m < metrics_.size(); ++m) {
    if (!percentage_[m] || std::isnan(values[m]) || values[m] <= 100) continue;
    const bool rounded = double{values[m]} <= kMaxRounded;
    values[m] = rounded ? 100 : std::numeric_limits<float>::quiet_NaN();
    if (!rounded) ++impossible_;
  }
  return values;
}

void KernelMetrics::sample(const MetricSample& sample) {
  if (!active() || sample.end <= sample.start) return;
  const auto length = static_cast<double>(sample.end - sample.start);
  const std::array<float, kMaxMetrics> measured = possible(sample.values);
  std::array<float, kMaxMetrics> values = measured;
  std::array<WeightedMean, kMaxMetrics> means;
  for (std::size_t m = 0; m < metrics_.size(); ++m) {
    double weight = length;
    if (per_active_cycle(m)) {
      const float share = measured[*sm_active_] / 100;
      weight *= std::max(double{share}, 0.0);
      // Nothing was done in no cycle: known, though not how much per cycle.
      values[m] = share <= 0 ? 0 : measured[m] * share;
    }
    if (!std::isnan(measured[m]) && weight > 0) means[m] = {weight, weight * double{measured[m]}};
  }
  if (sample.window != 0) {
    if (Window* const window = this->window(sample.window, sample.device)) {
      ++window->samples;
      window->time += sample.end - sample.start;
      for (std::size_t m = 0; m < metrics_.size(); ++m) window->means[m].add(means[m]);
    }
  }
  Device* const device = this->device(sample.device);
  if (device == nullptr || sample.start < device->joined_until ||
      (sample.window != 0 && sample.window <= settled_through_)) {  // its kernels have gone
    ++late_;
    return;
  }
  device->history.add(sample.start, sample.end, means);
  auto place = device->samples.end();
  while (place != device->samples.begin() && std::prev(place)->start > sample.start) --place;
  const auto index = place - device->samples.begin();
  const auto stride = static_cast<std::ptrdiff_t>(metrics_.size());
  device->samples.insert(place, {sample.start, sample.end, sample.window, sample.after});
  device->values.insert(device->values.begin() + index * stride, values.begin(), values.begin() + stride);
  if (++held_samples_ > kMaxSamples) bound_samples();
}

/// Too many kernels are held: of the device that has most, the older half is joined.
void KernelMetrics::bound_kernels() {
  Device& device = std::max_element(devices_.begin(), devices_.end(), [](const auto& a, const auto& b) {
                     return a.second.kernels.size() < b.second.kernels.size();
                   })->second;
  std::vector<Nanoseconds> ends;
  ends.reserve(device.kernels.size());
  for (const Execution& kernel : device.kernels) ends.push_back(kernel.end);
  const auto middle = ends.begin() + static_cast<std::ptrdiff_t>(half(ends.size()));
  std::nth_element(ends.begin(), middle, ends.end());
  const auto later = std::find_if(device.samples.begin(), device.samples.end(),
                                  [until = *middle](const Held& sample) { return sample.start >= until; });
  join(device, static_cast<std::size_t>(later - device.samples.begin()));
  // There may have been no samples that they could be joined to.
  device.joined_until = std::max(device.joined_until, *middle);
  forget_joined(device, 0);
}

/// Too many samples are held: half as many of the device that has most. Where they do not follow each other
/// that is not possible, and the oldest are left out.
void KernelMetrics::bound_samples() {
  Device& device = std::max_element(devices_.begin(), devices_.end(), [](const auto& a, const auto& b) {
                     return a.second.samples.size() < b.second.samples.size();
                   })->second;
  const std::size_t before = device.samples.size();
  coarsen(device);
  if (device.samples.size() <= before - before / 4) return;
  const std::size_t oldest = half(device.samples.size());
  late_ += oldest;
  device.joined_until = std::max(device.joined_until, device.samples[oldest - 1].end);
  forget_joined(device, oldest);
}

/// Neighbours become one sample, in pairs.
void KernelMetrics::coarsen(Device& device) {
  const std::size_t stride = metrics_.size();
  const std::size_t before = device.samples.size();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < before; ++kept) {
    Held sample = device.samples[i];
    float* const values = &device.values[kept * stride];
    std::copy_n(&device.values[i * stride], stride, values);
    ++i;
    if (i < before) {
      const Held& next = device.samples[i];
      const Nanoseconds length = sample.end - sample.start;
      if (next.window == sample.window && next.after == sample.after &&
          next.start <= sample.end + length / 64) {
        const auto weight =
            static_cast<float>(next.end - next.start) / static_cast<float>(length + (next.end - next.start));
        for (std::size_t m = 0; m < stride; ++m) {
          const float more = device.values[i * stride + m];
          values[m] = std::isnan(values[m]) ? more
                      : std::isnan(more)    ? values[m]
                                            : values[m] + (more - values[m]) * weight;
        }
        sample.end = std::max(sample.end, next.end);
        ++i;
      }
    }
    device.samples[kept] = sample;
  }
  device.samples.resize(kept);
  device.values.resize(kept * stride);
  held_samples_ -= before - kept;
}

void KernelMetrics::join_until(Nanoseconds time) {
  for (auto& [number, device] : devices_) {
    const auto later = std::find_if(device.samples.begin(), device.samples.end(),
                                    [time](const Held& sample) { return sample.end > time; });
    join(device, static_cast<std::size_t>(later - device.samples.begin()));
  }
}

void KernelMetrics::settle_window(std::uint32_t number) {
  if (!active()) return;
  for (auto& [id, device] : devices_) {
    const auto later = std::find_if(device.samples.begin(), device.samples.end(),
                                    [number](const Held& sample) { return sample.window > number; });
    const auto count = static_cast<std::size_t>(later - device.samples.begin());
    // But for the last one: kernels of the next window may have begun in it.
    join(device, count - std::min<std::size_t>(count, 1));
    device.history.forget(device.joined_until);
    // Kernels may run long after their window's end, when others are open; but no sample of it comes later.
    const Nanoseconds sampled = device.samples.empty() ? device.joined_until : device.samples.back().end;
    held_kernels_ -= std::erase_if(device.kernels, [&](const Execution& kernel) {
      return kernel.window <= number && kernel.start >= sampled;
    });
  }
  settled_through_ = std::max(settled_through_, number);
  entries_.reset();
}

/// By window, ascending: when the latest kernel of it or of one before it ends.
std::vector<std::pair<std::uint32_t, Nanoseconds>> KernelMetrics::last_ends(const Device& device) const {
  std::vector<std::pair<std::uint32_t, Nanoseconds>> ends;
  for (const Execution& kernel : device.kernels) {
    if (kernel.row != kOthers) ends.emplace_back(kernel.window, kernel.end);
  }
  std::sort(ends.begin(), ends.end());
  for (std::size_t i = 1; i < ends.size(); ++i) ends[i].second = std::max(ends[i].second, ends[i - 1].second);
  return ends;
}

/// The oldest `count` samples of a device become sums.
void KernelMetrics::join(Device& device, std::size_t count) {
  if (count == 0) return;
  entries_.reset();
  const auto ends = last_ends(device);
  const auto last_end = [&ends](std::uint32_t window) -> Nanoseconds {
    const auto after = std::upper_bound(ends.begin(), ends.end(), window,
                                        [](std::uint32_t of, const auto& end) { return of < end.first; });
    return after == ends.begin() ? 0 : std::prev(after)->second;
  };
  std::vector<Execution>& kernels = device.kernels;
  std::sort(kernels.begin(), kernels.end(), [](const Execution& a, const Execution& b) {
    return std::tie(a.start, a.end, a.row) < std::tie(b.start, b.end, b.row);
  });
  std::vector<Execution> running;
  auto next = kernels.begin();
  Nanoseconds now = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Held& sample = device.samples[i];
    now = std::max(now, sample.start);
    if (now >= sample.end) continue;
    // After a window's end: as long as it is known what runs.
    if (sample.window == 0 && sample.end > last_end(sample.after)) {
      now = sample.end;
      continue;
    }
    const std::uint64_t length = sample.end - now;
    while (now < sample.end) {
      for (; next != kernels.end() && next->start <= now; ++next) running.push_back(*next);
      std::erase_if(running, [now](const Execution& kernel) { return kernel.end <= now; });
      Nanoseconds until = std::min(look(device, running, now, length), sample.end);
      if (next != kernels.end()) until = std::min(until, next->start);
      spend(until - now);
      now = until;
    }
    if (!scratch_.others) account(device, {&device.values[i * metrics_.size()], metrics_.size()}, length);
    clear_scratch();
  }
  device.joined_until = std::max(device.joined_until, now);
  forget_joined(device, count);
}

/// Notes what the device does at `now`, with these running; returns how long it does, if nothing else starts.
Nanoseconds KernelMetrics::look(Device& device, std::span<const Execution> running, Nanoseconds now,
                                std::uint64_t sample_length) {
  std::vector<std::uint32_t>& active = scratch_.active;
  active.clear();
  Nanoseconds until = std::numeric_limits<Nanoseconds>::max();
  for (const Execution& kernel : running) {
    scratch_.others = scratch_.others || kernel.row == kOthers;
    active.push_back(kernel.row);
    until = std::min(until, kernel.end);
  }
  // A sample that is not used is gone through all the same: what runs at its end runs on in the next one.
  if (scratch_.others) {
    active.clear();
    scratch_.state = SampleMixture::kMixed;
    return until;
  }
  std::sort(active.begin(), active.end());
  active.erase(std::unique(active.begin(), active.end()), active.end());
  unsigned part = 0;
  if (running.size() == 1) {
    const Execution& kernel = running.front();
    const Nanoseconds time = kernel.end - kernel.start;
    const bool halves = time <= sample_length / 2;
    const unsigned parts = halves ? 2 : 4;
    const auto end_of = [&](unsigned index) { return kernel.start + time * (index + 1) / parts; };
    while (part + 1 < parts && end_of(part) <= now) ++part;
    until = end_of(part);
    if (!halves) part += 2;  // numbers of their own
  }
  scratch_.state = device.mixture.state(active, part);
  return until;
}

void KernelMetrics::spend(std::uint64_t time) {
  Scratch& s = scratch_;
  if (s.state >= s.part_of_state.size()) s.part_of_state.resize(std::size_t{s.state} + 1, kNone);
  if (s.part_of_state[s.state] == kNone) {
    s.part_of_state[s.state] = static_cast<std::uint32_t>(s.parts.size());
    s.parts.push_back({s.state, 0});
  }
  s.parts[s.part_of_state[s.state]].share += static_cast<double>(time);
  for (const std::uint32_t row : s.active) {
    if (row >= s.part_of_row.size()) s.part_of_row.resize(std::size_t{row} + 1, kNone);
    if (s.part_of_row[row] == kNone) {
      s.part_of_row[row] = static_cast<std::uint32_t>(s.rows.size());
      s.rows.push_back({row, 0, 0});
    }
    Scratch::RowPart& part = s.rows[s.part_of_row[row]];
    part.time += time;
    if (s.active.size() > 1) part.shared += time;
  }
}

/// A sample of this length, the parts of which have been spent.
void KernelMetrics::account(Device& device, std::span<const float> values, std::uint64_t length) {
  const double weight = microseconds(length);
  for (const Scratch::RowPart& part : scratch_.rows) {
    Row& row = this->row(part.row);
    ++row.samples;
    row.sampled_time += part.time;
    row.shared_time += part.shared;
    const double share = static_cast<double>(part.time) / static_cast<double>(length);
    if (row.bounds.empty()) row.bounds.resize(metrics_.size());
    if (share >= kWhole) {
      ++row.whole_samples;
      row.whole_share += share;
      row.whole_time += part.time;
      if (row.whole.empty()) row.whole.resize(metrics_.size());
    }
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      if (std::isnan(values[m])) continue;
      const double value = double{values[m]};
      Bounds& bounds = row.bounds[m];
      bounds.time += weight * share;
      if (per_active_cycle(m)) {
        const double active = double{values[*sm_active_]} / 100;
        if (share >= kWhole && active > 0) row.whole[m].add(value / active, weight * active);
        continue;
      }
      if (percentage_[m]) {
        bounds.low += weight * std::max(0.0, value - (1 - share) * 100);
        bounds.high += weight * std::min(100 * share, value);
      } else {
        bounds.low += share >= kWhole ? weight * value * share : 0.0;
        bounds.high += weight * value;
      }
      if (share >= kWhole) row.whole[m].add(value, weight);
    }
  }
  for (SampleMixture::Part& part : scratch_.parts) part.share /= static_cast<double>(length);
  device.mixture.add(device.serial++, scratch_.parts, values, weight);
}

void KernelMetrics::clear_scratch() {
  for (const Scratch::RowPart& part : scratch_.rows) scratch_.part_of_row[part.row] = kNone;
  for (const SampleMixture::Part& part : scratch_.parts) scratch_.part_of_state[part.state] = kNone;
  scratch_.rows.clear();
  scratch_.parts.clear();
  scratch_.others = false;
}

void KernelMetrics::forget_joined(Device& device, std::size_t count) {
  const auto samples = static_cast<std::ptrdiff_t>(count);
  const auto values = static_cast<std::ptrdiff_t>(count * metrics_.size());
  device.samples.erase(device.samples.begin(), device.samples.begin() + samples);
  device.values.erase(device.values.begin(), device.values.begin() + values);
  held_samples_ -= count;
  held_kernels_ -= std::erase_if(
      device.kernels, [&device](const Execution& kernel) { return kernel.end <= device.joined_until; });
}

/// Of a row, if nothing but samples that it shares tells of it.
Estimate KernelMetrics::apart_of(std::span<const Estimate> estimates, std::size_t metric) const {
  if (estimates.empty()) return {};
  if (!per_active_cycle(metric)) return estimates[metric];
  // What adds up in a sample was done in all cycles: over the share of the active ones.
  const Estimate& all = estimates[metric];
  const Estimate& active = estimates[*sm_active_];
  Estimate result;
  if (std::isnan(all.value) || std::isnan(active.value) || active.value <= active.error) return result;
  result.value = all.value * 100 / active.value;
  result.error = (all.error + std::abs(all.value) * active.error / active.value) * 100 / active.value;
  return result;
}

MetricEstimate KernelMetrics::estimate(const Row& row, std::size_t metric,
                                       std::span<const Estimate> estimates) const {
  Estimate apart = apart_of(estimates, metric);
  if (!std::isnan(apart.value) && row.time > 0) {
    const double edges = kEdges * static_cast<double>(row.instances) / static_cast<double>(row.time);
    apart.error += std::abs(apart.value) * std::min(kCarriedOver + edges, 1.0);
  }
  MetricEstimate result;
  result.of_link = is_of_link(metrics_[metric]);
  if (row.bounds.empty() || row.bounds[metric].time <= 0) return result;
  result.measured = true;
  const bool percentage = percentage_[metric];
  const double most = percentage ? 100.0 : std::numeric_limits<double>::infinity();
  if (!row.whole.empty() && row.whole[metric].values() >= kMinWhole &&
      static_cast<double>(row.whole_time) >= kMostlyWhole * static_cast<double>(row.sampled_time)) {
    result.summand = row.whole[metric].mean();
    result.value = std::clamp(result.summand, 0.0, most);
    // Nor is a sample wholly the kernel's where it fills 99 % of it.
    const double others = 1 - row.whole_share / static_cast<double>(row.whole_samples);
    result.error = row.whole[metric].error() +
                   std::max(others, 0.0) * std::max(result.value, percentage ? 100 - result.value : 0.0);
  } else if (per_active_cycle(metric)) {
    // What others do in a sample bounds it by nothing. Where all of its interval lies beyond what can be, it
    // is not the kernel's.
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

std::vector<KernelMetricEntry> KernelMetrics::rows() const {
  return entries();
}

const std::vector<KernelMetricEntry>& KernelMetrics::entries() const {
  if (entries_) return *entries_;
  std::map<std::uint32_t, std::vector<SampleMixture::Wanted>> wanted;  // by device
  for (std::uint32_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].samples >= kMinSamples && !rows_[i].several_devices)
      wanted[rows_[i].device].push_back({i, microseconds(rows_[i].sampled_time)});
  }
  std::vector<std::vector<Estimate>> apart(rows_.size());
  for (const auto& [number, list] : wanted) {
    std::vector<std::vector<Estimate>> solved = devices_.at(number).mixture.solve(list);
    for (std::size_t i = 0; i < list.size(); ++i) apart[list[i].row] = std::move(solved[i]);
  }
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
    for (std::size_t m = 0; m < metrics_.size(); ++m) entry.metrics.push_back(estimate(row, m, apart[i]));
  }
  return entries_.emplace(std::move(entries));
}

/// A window's kernels on a device, with the values that are known by now.
void KernelMetrics::add_kernels(KernelSum& sum, std::uint32_t device, const RowTimes& times) const {
  sum.metrics.resize(metrics_.size());
  const std::vector<KernelMetricEntry>& entries = this->entries();
  for (const auto& [key, time] : times) {
    if (key >> 32 != device) continue;
    sum.time += time;
    const auto entry =
        std::lower_bound(entries.begin(), entries.end(), static_cast<std::uint32_t>(key),
                         [](const KernelMetricEntry& of, std::uint32_t wanted) { return of.row < wanted; });
    const auto share = static_cast<double>(time);
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      const MetricEstimate& metric = entry->metrics[m];
      if (!metric.measured || (metric.bounded && !metric.reliable)) continue;
      sum.metrics[m].sum += metric.summand * share;
      sum.metrics[m].weight += share;
    }
  }
}

/// Too many windows have too many kernels: what is known of these now is what their sums are made of.
void KernelMetrics::bound_window_kernels() {
  for (const auto& [number, times] : window_kernels_) {
    for (const auto& [id, device] : devices_) {
      if (Window* const window = this->window(number, id)) add_kernels(window->kernels, id, times);
    }
  }
  window_kernels_.clear();
  window_rows_ = 0;
}

std::vector<WindowMetrics> KernelMetrics::windows() const {
  std::vector<WindowMetrics> result;
  for (std::uint32_t i = 0; i < windows_.size(); ++i) {
    const Window& from = windows_[i];
    if (from.samples == 0) continue;
    WindowMetrics& window = result.emplace_back();
    window.window = window_keys_.key(i)[0];
    window.device = window_keys_.key(i)[1];
    window.samples = from.samples;
    window.sampled_time = from.time;
    window.means = from.means;
    window.kernel_sums.resize(metrics_.size());
    if (window.window > settled_through_) continue;
    KernelSum sum = from.kernels;
    if (const auto times = window_kernels_.find(window.window); times != window_kernels_.end())
      add_kernels(sum, window.device, times->second);
    window.kernel_time = sum.time;
    const auto time = static_cast<double>(sum.time);
    for (std::size_t m = 0; m < sum.metrics.size(); ++m) {
      const auto value = sum.metrics[m].value();
      if (value && sum.metrics[m].weight >= kMinKnown * time)
        window.kernel_sums[m] = std::max(*value, 0.0) * time;
    }
  }
  std::sort(result.begin(), result.end(), [](const WindowMetrics& a, const WindowMetrics& b) {
    return std::make_pair(a.window, a.device) < std::make_pair(b.window, b.device);
  });
  return result;
}

WeightedMean KernelMetrics::mean_between(std::uint32_t number, std::size_t metric, Nanoseconds from,
                                         Nanoseconds to) const {
  const auto device = devices_.find(number);
  if (device == devices_.end() || metric >= metrics_.size()) return {};
  return device->second.history.between(metric, from, to);
}

std::uint64_t KernelMetrics::crowded() const {
  std::uint64_t sum = 0;
  for (const auto& [number, device] : devices_) sum += device.mixture.left_out();
  return sum;
}

}  // namespace inject
