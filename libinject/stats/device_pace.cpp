// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/device_pace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

namespace inject {

namespace {

// Allows for clock changes, and for kernels taking slightly longer while traced.
constexpr double kAllowance = 0.9;
// From a single iteration, the variation is unknown.
constexpr double kAllowanceOfOne = 0.5;

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// The least time that the device needed: kernels that compute, or copies in one direction. Those of the
/// iterations before and after may run at the same time, so it is at most the iteration's own time.
double work_of(const IterationDeviceRow& row, const DeviceTimes& window) {
  const auto time = static_cast<double>(row.time(0));
  // A collective's kernel waits for other processes, and longer while these are profiled.
  const double kernels =
      static_cast<double>(row.kernel_busy) * share(window.compute_busy, window.kernel_busy);
  const double copies = time * share(std::max(window.upload_busy, window.download_busy), window.span);
  return std::min(time, std::max(kernels, copies));
}

struct Busiest {
  const IterationDeviceRow* device = nullptr;
  double work = 0;
};

bool is_complete_iteration(const IterationRow& row) {
  return row.kind == IterationRow::Kind::kPhase && row.label == IterationLabel::kIteration && row.complete;
}

/// Empty if the row is not a complete iteration, or is the last one of its window; unless `alone`: it is the
/// only one.
Busiest busiest(const IterationRow& row, const DeviceTimeStatistics& devices, bool alone = false) {
  Busiest found;
  if (!is_complete_iteration(row)) return found;
  for (const IterationDeviceRow& device : row.devices) {
    const DeviceTimeRow* window = devices.row(row.window, device.device);
    if ((!device.gap && !alone) || window == nullptr) continue;
    const double work = work_of(device, window->times);
    if (found.device == nullptr || work > found.work) found = {&device, work};
  }
  return found;
}

DeviceLoad load_of(const Moments& work, std::uint64_t launches) {
  if (work.count == 0) return {};
  const auto count = static_cast<double>(work.count);
  const double mean = work.sum / count;
  const auto known = [&](double paced, double least) {
    return DeviceLoad{mean, paced, least, static_cast<double>(launches) / count};
  };
  if (work.count == 1) return known(kAllowanceOfOne * mean, kAllowanceOfOne * mean);
  const double variance = std::max(0.0, work.squares - work.sum * mean) / (count - 1);
  return known(kAllowance * mean, kAllowance * std::max(0.0, mean - 2 * std::sqrt(variance / count)));
}

}  // namespace

std::optional<std::uint64_t> DevicePace::time_of(const IterationRow& row, const IterationRow* next,
                                                 const DeviceTimeStatistics& devices) {
  const Busiest found = busiest(row, devices);
  if (found.device == nullptr || next == nullptr || next->window != row.window || !next->complete)
    return std::nullopt;
  for (const IterationDeviceRow& device : next->devices) {
    if (device.device == found.device->device && device.last >= found.device->last)
      return device.last - found.device->last;
  }
  return std::nullopt;
}

DevicePace::DevicePace(std::span<const IterationRow> rows, const DeviceTimeStatistics& devices) {
  std::map<std::uint32_t, std::size_t> iterations;  // complete ones, by window
  for (const IterationRow& row : rows) iterations[row.window] += is_complete_iteration(row) ? 1 : 0;
  Moments works;
  std::uint64_t launches = 0;
  for (const IterationRow& row : rows) {
    const Busiest found = busiest(row, devices, iterations[row.window] == 1);
    if (found.device == nullptr) continue;
    works.add(static_cast<std::uint64_t>(found.work));
    const IterationRow* const next = &row == &rows.back() ? nullptr : &row + 1;
    if (const auto time = time_of(row, next, devices)) times_.add(*time);
    launches += row.launches;
  }
  load_ = load_of(works, launches);
}

}  // namespace inject
