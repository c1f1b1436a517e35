// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/kernel_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace inject {

void KernelMetrics::metrics(std::vector<MetricInfo> list) {
  if (list.size() > kMaxMetrics) list.resize(kMaxMetrics);
  const std::vector<MetricInfo>& before = metrics();
  if (std::equal(list.begin(), list.end(), before.begin(), before.end(),
                 [](const MetricInfo& a, const MetricInfo& b) { return a.name == b.name; })) {
    return;
  }
  *this = KernelMetrics();
  estimates_ = KernelEstimates(std::move(list));
}

KernelMetrics::Device* KernelMetrics::device(std::uint32_t number) {
  const auto found = devices_.find(number);
  if (found != devices_.end()) return &found->second;
  if (devices_.size() == kMaxDevices) return nullptr;
  return &devices_.try_emplace(number, kinds().size()).first->second;
}

KernelMetrics::Window* KernelMetrics::window(std::uint32_t number, std::uint32_t device) {
  const std::uint32_t index = window_keys_.find_or_add({number, device});
  if (index == KeyIndex<2>::kOther) return nullptr;
  if (index == windows_.size()) windows_.emplace_back().means.resize(kinds().size());
  return &windows_[index];
}

void KernelMetrics::kernel(std::uint32_t window, std::uint32_t device_number, std::uint32_t row,
                           Nanoseconds start, Nanoseconds end) {
  if (!active()) return;
  row = std::min(row, kMaxRows);
  const std::uint64_t time = end > start ? end - start : 0;
  estimates_.add(row, device_number, time);
  RowTimes& rows = window_kernels_[window];
  const std::size_t rows_before = rows.size();
  rows[std::uint64_t{device_number} << 32 | row] += time;
  window_rows_ += rows.size() - rows_before;
  Device* const device = this->device(device_number);
  if (device == nullptr || start < device->join.joined_until()) ++late_;
  if (device != nullptr) hold(*device, {start, end, row, window});
  if (window_rows_ > kMaxWindowRows) bound_window_kernels();
}

void KernelMetrics::other_kernel(std::uint32_t device_number, Nanoseconds start, Nanoseconds end) {
  if (!active()) return;
  if (Device* const device = this->device(device_number)) hold(*device, {start, end, SampleJoin::kOthers, 0});
}

void KernelMetrics::hold(Device& device, const SampleJoin::Execution& execution) {
  if (device.join.add(execution) && ++held_kernels_ > kMaxKernels) bound_kernels();
}

/// A sample's values, without the impossible ones.
std::array<float, kMaxMetrics> KernelMetrics::possible(std::array<float, kMaxMetrics> values) {
  for (std::size_t m = 0; m < kinds().size(); ++m) {
    if (!kinds().percentage(m) || std::isnan(values[m]) || values[m] <= 100) continue;
    const bool rounded = double{values[m]} <= KernelEstimates::kMaxRounded;
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
  for (std::size_t m = 0; m < kinds().size(); ++m) {
    double weight = length;
    if (kinds().per_active_cycle(m)) {
      const float share = measured[kinds().sm_active()] / 100;
      weight *= std::max(double{share}, 0.0);
      // Without active cycles the total is 0, though the value per cycle is unknown.
      values[m] = share <= 0 ? 0 : measured[m] * share;
    }
    if (!std::isnan(measured[m]) && weight > 0) means[m] = {weight, weight * double{measured[m]}};
  }
  if (sample.window != 0) {
    if (Window* const window = this->window(sample.window, sample.device)) {
      ++window->samples;
      window->time += sample.end - sample.start;
      for (std::size_t m = 0; m < kinds().size(); ++m) window->means[m].add(means[m]);
    }
  }
  Device* const device = this->device(sample.device);
  if (device == nullptr || sample.start < device->join.joined_until() ||
      (sample.window != 0 && sample.window <= settled_through_)) {  // its kernels are gone
    ++late_;
    return;
  }
  device->history.add(sample.start, sample.end, means);
  device->join.add({sample.start, sample.end, sample.window, sample.after}, values);
  if (++held_samples_ > kMaxSamples) bound_samples();
}

void KernelMetrics::count_held() {
  held_samples_ = held_kernels_ = 0;
  for (const auto& [number, device] : devices_) {
    held_samples_ += device.join.samples();
    held_kernels_ += device.join.kernels();
  }
}

SampleJoin::Take KernelMetrics::taker(std::uint32_t device) {
  return [this, device](const JoinedSample& sample) { estimates_.add(device, sample); };
}

void KernelMetrics::join(std::uint32_t number, Device& device, std::size_t samples) {
  device.join.join(samples, estimates_.mixture(number), taker(number));
}

/// Too many kernels are held: joins the older half of the device that has the most.
void KernelMetrics::bound_kernels() {
  auto& [number, device] = *std::max_element(
      devices_.begin(), devices_.end(),
      [](const auto& a, const auto& b) { return a.second.join.kernels() < b.second.join.kernels(); });
  device.join.join_older_half(estimates_.mixture(number), taker(number));
  count_held();
}

/// Too many samples are held: halves those of the device that has the most. Samples that are not contiguous
/// cannot be merged; then the oldest are left out.
void KernelMetrics::bound_samples() {
  SampleJoin& join = std::max_element(devices_.begin(), devices_.end(), [](const auto& a, const auto& b) {
                       return a.second.join.samples() < b.second.join.samples();
                     })->second.join;
  const std::size_t before = join.samples();
  join.coarsen();
  if (join.samples() > before - before / 4) late_ += join.leave_out_older_half();
  count_held();
}

void KernelMetrics::join_until(Nanoseconds time) {
  for (auto& [number, device] : devices_) join(number, device, device.join.samples_until(time));
  count_held();
}

void KernelMetrics::settle_window(std::uint32_t number) {
  if (!active()) return;
  for (auto& [id, device] : devices_) {
    const std::size_t count = device.join.samples_through(number);
    // Except the last one: kernels of the next window may have begun in it.
    join(id, device, count - std::min<std::size_t>(count, 1));
    device.history.forget(device.join.joined_until());
    device.join.forget_kernels(number);
  }
  settled_through_ = std::max(settled_through_, number);
  count_held();
}

/// Adds a window's kernels on a device, with the values known so far.
void KernelMetrics::add_kernels(KernelSum& sum, std::uint32_t device, const RowTimes& times) const {
  sum.metrics.resize(kinds().size());
  for (const auto& [key, time] : times) {
    if (key >> 32 != device) continue;
    sum.time += time;
    const KernelMetricEntry& entry = estimates_.entry(static_cast<std::uint32_t>(key));
    const auto share = static_cast<double>(time);
    for (std::size_t m = 0; m < kinds().size(); ++m) {
      const MetricEstimate& metric = entry.metrics[m];
      if (!metric.measured || (metric.bounded && !metric.reliable)) continue;
      sum.metrics[m].sum += metric.summand * share;
      sum.metrics[m].weight += share;
    }
  }
}

/// Too many rows are kept: fixes the windows' sums with the values known now.
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
    window.kernel_sums.resize(kinds().size());
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
  if (device == devices_.end() || metric >= kinds().size()) return {};
  return device->second.history.between(metric, from, to);
}

}  // namespace inject
