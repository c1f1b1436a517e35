// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/kernel_metrics.h"

#include <algorithm>
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

bool KernelMetricEntry::reliable() const {
  bool any = false;
  for (const MetricEstimate& metric : metrics) {
    if (metric.measured && !metric.reliable) return false;
    any = any || metric.measured;
  }
  return any;
}

void KernelMetrics::metrics(std::vector<MetricInfo> list) {
  if (list.size() > kMostMetrics) list.resize(kMostMetrics);
  if (std::equal(list.begin(), list.end(), metrics_.begin(), metrics_.end(),
                 [](const MetricInfo& a, const MetricInfo& b) { return a.name == b.name; })) {
    return;
  }
  *this = KernelMetrics();
  metrics_ = std::move(list);
  for (const MetricInfo& metric : metrics_) percentage_.push_back(is_percentage(metric));
}

KernelMetrics::Device* KernelMetrics::device(std::uint32_t number) {
  const auto found = devices_.find(number);
  if (found != devices_.end()) return &found->second;
  if (devices_.size() == kMostDevices) return nullptr;
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
  row_number = std::min(row_number, kMostRows);
  const std::uint64_t time = end > start ? end - start : 0;
  Row& row = this->row(row_number);
  if (row.instances == 0) row.device = device_number;
  if (row.device != device_number) row.several_devices = true;
  ++row.instances;
  row.time += time;
  if (window > settled_through_)
    window_kernels_[window][std::uint64_t{device_number} << 32 | row_number] += time;
  Device* const device = this->device(device_number);
  if (device == nullptr || start < device->joined_until) ++late_;
  if (device == nullptr || end <= std::max(start, device->joined_until)) return;
  device->kernels.push_back({std::max(start, device->joined_until), end, row_number, window});
  if (++held_kernels_ > kMostKernels) bound();
}

void KernelMetrics::sample(const MetricSample& sample) {
  if (!active() || sample.end <= sample.start) return;
  if (sample.window != 0) {
    if (Window* const window = this->window(sample.window, sample.device)) {
      ++window->samples;
      window->time += sample.end - sample.start;
      const double weight = microseconds(sample.end - sample.start);
      for (std::size_t m = 0; m < metrics_.size(); ++m) {
        if (std::isnan(sample.values[m])) continue;
        window->means[m].weight += weight;
        window->means[m].sum += weight * double{sample.values[m]};
      }
    }
  }
  Device* const device = this->device(sample.device);
  if (device == nullptr || sample.start < device->joined_until) {
    ++late_;
    return;
  }
  auto place = device->samples.end();
  while (place != device->samples.begin() && std::prev(place)->start > sample.start) --place;
  const auto index = place - device->samples.begin();
  const auto stride = static_cast<std::ptrdiff_t>(metrics_.size());
  device->samples.insert(place, {sample.start, sample.end, sample.window});
  device->values.insert(device->values.begin() + index * stride, sample.values.begin(),
                        sample.values.begin() + stride);
  if (++held_samples_ > kMostSamples) bound();
}

/// Too many are held: of the device that has most, the older half is joined.
void KernelMetrics::bound() {
  const bool samples = held_samples_ > kMostSamples;
  const auto held = [samples](const Device& device) {
    return samples ? device.samples.size() : device.kernels.size();
  };
  auto fullest = devices_.begin();
  for (auto at = devices_.begin(); at != devices_.end(); ++at) {
    if (held(at->second) > held(fullest->second)) fullest = at;
  }
  Device& device = fullest->second;
  if (samples) {
    join(device, half(device.samples.size()));
    return;
  }
  std::vector<Nanoseconds> ends;
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

void KernelMetrics::settle_window(std::uint32_t number) {
  if (!active()) return;
  for (auto& [id, device] : devices_) {
    const auto later = std::find_if(device.samples.begin(), device.samples.end(),
                                    [number](const Held& sample) { return sample.window > number; });
    const auto count = static_cast<std::size_t>(later - device.samples.begin());
    // But for the last one: kernels of the next window may have begun in it.
    join(device, count - std::min<std::size_t>(count, 1));
    // A window's last kernels may run while the next one is open already, but none longer than that.
    held_kernels_ -=
        std::erase_if(device.kernels, [number](const Execution& kernel) { return kernel.window < number; });
  }
  settled_through_ = std::max(settled_through_, number);
  sum_up(number);
  window_kernels_.erase(window_kernels_.begin(), window_kernels_.upper_bound(number));
}

/// The oldest `count` samples of a device become sums.
void KernelMetrics::join(Device& device, std::size_t count) {
  if (count == 0) return;
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
    const std::uint64_t length = sample.end - now;
    while (now < sample.end) {
      for (; next != kernels.end() && next->start <= now; ++next) running.push_back(*next);
      std::erase_if(running, [now](const Execution& kernel) { return kernel.end <= now; });
      Nanoseconds until = std::min(look(device, running, now, length), sample.end);
      if (next != kernels.end()) until = std::min(until, next->start);
      spend(until - now);
      now = until;
    }
    account(device, {&device.values[i * metrics_.size()], metrics_.size()}, length);
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
    active.push_back(kernel.row);
    until = std::min(until, kernel.end);
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
      if (percentage_[m]) {
        bounds.low += weight * std::max(0.0, value - (1 - share) * 100);
        bounds.high += weight * std::min(100 * share, value);
      } else {
        bounds.low += share >= kWhole ? weight * value * share : 0.0;
        bounds.high += weight * value;
      }
      if (share >= kWhole) row.whole[m].add(value, weight);
    }
    scratch_.part_of_row[part.row] = kNone;
  }
  for (SampleMixture::Part& part : scratch_.parts) {
    scratch_.part_of_state[part.state] = kNone;
    part.share /= static_cast<double>(length);
  }
  device.mixture.add(device.serial++, scratch_.parts, values, weight);
  scratch_.rows.clear();
  scratch_.parts.clear();
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

MetricEstimate KernelMetrics::estimate(const Row& row, std::size_t metric, const Estimate& apart) const {
  MetricEstimate result;
  if (row.bounds.empty() || row.bounds[metric].time <= 0) return result;
  result.measured = true;
  const bool percentage = percentage_[metric];
  const double most = percentage ? 100.0 : std::numeric_limits<double>::infinity();
  if (!row.whole.empty() && row.whole[metric].values() >= kFewestWhole &&
      static_cast<double>(row.whole_time) >= kMostlyWhole * static_cast<double>(row.sampled_time)) {
    result.value = std::clamp(row.whole[metric].mean(), 0.0, most);
    // Nor is a sample wholly the kernel's where it fills 99 % of it.
    const double others = 1 - row.whole_share / static_cast<double>(row.whole_samples);
    result.error = row.whole[metric].error() +
                   std::max(others, 0.0) * std::max(result.value, percentage ? 100 - result.value : 0.0);
  } else {
    const Bounds& bounds = row.bounds[metric];
    const double low = std::clamp(bounds.low / bounds.time, 0.0, most);
    const double high = std::clamp(bounds.high / bounds.time, low, most);
    result.bounded = std::isnan(apart.value);
    result.value = result.bounded ? (low + high) / 2 : std::clamp(apart.value, low, high);
    result.error = std::max(result.value - low, high - result.value);
    if (!result.bounded) result.error = std::min(result.error, apart.error);
  }
  const double limit = percentage ? kMostPoints : kMostRelative * result.value;
  result.reliable = row.samples >= kFewestSamples && result.error <= limit;
  return result;
}

std::vector<KernelMetricEntry> KernelMetrics::rows() const {
  std::map<std::uint32_t, std::vector<SampleMixture::Wanted>> wanted;  // by device
  for (std::uint32_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].samples >= kFewestSamples && !rows_[i].several_devices)
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
    for (std::size_t m = 0; m < metrics_.size(); ++m)
      entry.metrics.push_back(estimate(row, m, apart[i].empty() ? Estimate() : apart[i][m]));
  }
  return entries;
}

/// The window's kernels, with the values that are known by now.
void KernelMetrics::sum_up(std::uint32_t number) {
  const auto found = window_kernels_.find(number);
  if (found == window_kernels_.end()) return;
  struct Sum {
    std::uint64_t time = 0;
    std::vector<std::pair<double, double>> metrics;  // value x time, time that has a value
  };
  std::map<std::uint32_t, Sum> sums;
  for (const KernelMetricEntry& entry : rows()) {
    for (const auto& [id, device] : devices_) {
      const auto time = found->second.find(std::uint64_t{id} << 32 | entry.row);
      if (time == found->second.end()) continue;
      Sum& sum = sums[id];
      sum.time += time->second;
      sum.metrics.resize(metrics_.size());
      for (std::size_t m = 0; m < metrics_.size(); ++m) {
        if (!entry.metrics[m].measured || entry.metrics[m].bounded) continue;
        const auto share = static_cast<double>(time->second);
        sum.metrics[m].first += entry.metrics[m].value * share;
        sum.metrics[m].second += share;
      }
    }
  }
  for (const auto& [id, sum] : sums) {
    const std::uint32_t index = window_keys_.find({number, id});
    if (index == KeyIndex<2>::kNone) continue;  // not sampled
    Window* const window = &windows_[index];
    window->kernel_sums.assign(metrics_.size(), std::nullopt);
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      const auto& [total, known] = sum.metrics[m];
      if (known > 0 && known >= kLeastKnown * static_cast<double>(sum.time))
        window->kernel_sums[m] = total * static_cast<double>(sum.time) / known;
    }
  }
}

std::vector<WindowMetrics> KernelMetrics::windows() const {
  std::vector<WindowMetrics> result;
  for (std::uint32_t i = 0; i < windows_.size(); ++i) {
    const Window& from = windows_[i];
    WindowMetrics& window = result.emplace_back();
    window.window = window_keys_.key(i)[0];
    window.device = window_keys_.key(i)[1];
    window.samples = from.samples;
    window.sampled_time = from.time;
    window.means.resize(metrics_.size());
    for (std::size_t m = 0; m < metrics_.size(); ++m) {
      if (from.means[m].weight > 0) window.means[m] = from.means[m].sum / from.means[m].weight;
    }
    window.kernel_sums = from.kernel_sums;
    window.kernel_sums.resize(metrics_.size());
  }
  std::sort(result.begin(), result.end(), [](const WindowMetrics& a, const WindowMetrics& b) {
    return std::make_pair(a.window, a.device) < std::make_pair(b.window, b.device);
  });
  return result;
}

std::optional<double> KernelMetrics::mean_between(std::uint32_t number, std::size_t metric, Nanoseconds from,
                                                  Nanoseconds to) const {
  const auto device = devices_.find(number);
  if (device == devices_.end() || metric >= metrics_.size()) return std::nullopt;
  const std::vector<Held>& samples = device->second.samples;
  // Samples hardly overlap: the one before the first that begins in time is the first that may reach into it.
  auto at = std::lower_bound(samples.begin(), samples.end(), from,
                             [](const Held& sample, Nanoseconds time) { return sample.start < time; });
  if (at != samples.begin()) --at;
  Mean mean;
  for (; at != samples.end() && at->start < to; ++at) {
    const Nanoseconds begin = std::max(at->start, from);
    const Nanoseconds end = std::min(at->end, to);
    const float value =
        device->second.values[static_cast<std::size_t>(at - samples.begin()) * metrics_.size() + metric];
    if (end <= begin || std::isnan(value)) continue;
    mean.weight += static_cast<double>(end - begin);
    mean.sum += static_cast<double>(end - begin) * double{value};
  }
  if (mean.weight <= 0) return std::nullopt;
  return mean.sum / mean.weight;
}

std::uint64_t KernelMetrics::crowded() const {
  std::uint64_t sum = 0;
  for (const auto& [number, device] : devices_) sum += device.mixture.left_out();
  return sum;
}

}  // namespace inject
