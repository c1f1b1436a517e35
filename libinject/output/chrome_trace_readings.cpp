// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The timeline's counters: power, clocks, temperature and memory, as they were read in windows.

#include <algorithm>
#include <cmath>
#include <optional>

#include "libinject/output/chrome_trace.h"
#include "libinject/output/timeline_text.h"
#include "libinject/record/memory_use.h"

namespace inject {

using namespace timeline;

void ChromeTrace::counter(std::string_view quoted_name, std::uint64_t process, Nanoseconds time,
                          double value) {
  if (process < kMaxDevices) counted_devices_.insert(static_cast<std::uint32_t>(process));
  text_.text(R"({"ph":"C","name":)").text(quoted_name);
  text_.text(R"(,"pid":)").number(process).text(R"(,"ts":)").microseconds(since(time));
  text_.text(R"(,"args":{"value":)").decimal(value).text("}");
  end_event();
}

void ChromeTrace::add(const MetricSample& sample, std::span<const MetricInfo> columns) {
  const std::size_t values = std::min(columns.size(), sample.values.size());
  if (!take(static_cast<unsigned>(values))) return;
  constexpr float kMax = 1e15f;
  for (std::size_t i = 0; i < values; ++i) {
    if (!(std::abs(sample.values[i]) < kMax)) continue;  // not measured
    scratch_ = quoted_text(columns[i].title);
    counter(scratch_, sample.device, sample.start, static_cast<double>(sample.values[i]));
  }
}

void ChromeTrace::add(const ClockReading& reading, std::uint32_t device) {
  const auto tell = [&](std::string_view quoted_name, std::optional<std::uint32_t> value, double unit) {
    if (value && take(1)) counter(quoted_name, device, reading.time, *value / unit);
  };
  tell("\"power (W)\"", reading.milliwatts, 1e3);
  tell("\"SM clock (MHz)\"", reading.sm_mhz, 1);
  tell("\"memory clock (MHz)\"", reading.memory_mhz, 1);
  tell("\"temperature (°C)\"", reading.temperature, 1);
}

// The level when the window began, and its changes in the window. Of merged changes, the highest and the
// last.
void ChromeTrace::add(const MemoryLine& line, const WindowInfo& window) {
  const bool host = line.device == MemoryUse::kHost;
  if (!host && line.device >= MemoryUse::kDevices) return;
  const std::uint64_t process = host ? host_pid_ : line.device;
  const std::string_view name =
      line.of == MemoryLine::Of::kInUse            ? "\"memory in use (MB)\""
      : line.of == MemoryLine::Of::kTorchReserved  ? "\"memory reserved by PyTorch (MB)\""
      : line.of == MemoryLine::Of::kTorchAllocated ? "\"memory allocated by PyTorch (MB)\""
      : host                                       ? "\"pinned memory allocated (MB)\""
                                                   : "\"memory allocated (MB)\"";
  const auto tell = [&](Nanoseconds time, std::uint64_t bytes) {
    if (take(1)) counter(name, process, time, static_cast<double>(bytes) / 1e6);
  };
  const auto later = [](Nanoseconds time, const MemoryInterval& interval) { return time < interval.begin; };
  auto at = std::upper_bound(line.intervals.begin(), line.intervals.end(), window.start, later);
  // An interval across the window's beginning may have changed on either side of it.
  if (at != line.intervals.begin()) {
    const MemoryInterval& before = *std::prev(at);
    if (before.last_at > window.start) {
      --at;
    } else if (line.of != MemoryLine::Of::kInUse || window.start - before.last_at <= kReadingHolds) {
      tell(window.start, before.last);
    }
  }
  for (; at != line.intervals.end() && at->begin <= window.end; ++at) {
    const auto inside = [&](Nanoseconds time) { return time >= window.start && time <= window.end; };
    if (inside(at->highest_at)) tell(at->highest_at, at->highest);
    if (at->last != at->highest && inside(at->last_at)) tell(at->last_at, at->last);
  }
}

void ChromeTrace::add_readings(const RunInfo& run, std::span<const WindowInfo> windows) {
  if (!file_.is_open()) return;
  for (const WindowInfo& window : windows) {
    if (window.number <= read_window_ || window.end == 0) continue;
    read_window_ = window.number;
    for (const DeviceReadings& device : run.energy.devices) {
      const auto earlier = [](const ClockReading& reading, Nanoseconds time) { return reading.time < time; };
      for (auto at = std::lower_bound(device.clocks.begin(), device.clocks.end(), window.start, earlier);
           at != device.clocks.end() && at->time <= window.end; ++at) {
        add(*at, device.device);
      }
    }
    for (const auto* lines : {&run.memory_lines, &run.energy.memory}) {
      for (const MemoryLine& line : *lines) add(line, window);
    }
  }
}

}  // namespace inject
