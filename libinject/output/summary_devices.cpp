// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/format.h"
#include "libinject/output/summary_parts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libinject/base/csv.h"
#include "libinject/output/purpose_names.h"
#include "libinject/record/memory_use.h"
#include "libinject/report/display_text.h"

namespace inject {

namespace {

/// What a device did in all windows.
struct DeviceSum {
  DeviceWork work;
  // Over the closed windows that are listed and have all device work.
  std::uint64_t busy = 0;
  std::uint64_t time = 0;
};

std::map<std::uint32_t, DeviceSum> sums_by_device(const Statistics& statistics, const RunInfo& run) {
  std::map<std::uint32_t, const WindowInfo*> closed;
  std::uint64_t windows_time = 0;
  for (const WindowInfo& window : run.windows) {
    if (window.end == 0 || !window.untraced.empty() || window.losses.device_work()) continue;
    closed[window.number] = &window;
    windows_time += window.end - window.start;
  }
  std::map<std::uint32_t, DeviceSum> devices;
  for (const WindowDeviceRow& row : statistics.window_devices()) {
    // Windows without any work on the device are part of its time, too.
    DeviceSum& device = devices.try_emplace(row.device, DeviceSum{{}, 0, windows_time}).first->second;
    device.work.merge(row.work);
    const auto window = closed.find(row.window);
    if (window == closed.end()) continue;
    device.busy += row.busy;
    const std::uint64_t duration = window->second->end - window->second->start;
    device.time += row.time(duration) - duration;
  }
  return devices;
}

/// What was allocated on a device; `row` is the one for all functions together.
std::string memory_text(const MemoryRow& row, const RunInfo& run) {
  const MemoryCounts& counts = row.counts;
  const auto size = [](std::uint64_t bytes) { return size_text(static_cast<double>(bytes)); };
  std::string text =
      "    memory: peak " + size(counts.peak) + " allocated by " + plural(counts.allocations, "call");
  for (auto window = run.windows.rbegin(); window != run.windows.rend(); ++window) {
    const auto memory = std::find_if(window->memory.begin(), window->memory.end(),
                                     [&](const WindowMemory& of) { return of.device == row.device; });
    if (memory == window->memory.end() || !memory->at_end) continue;
    text += ", " + size(*memory->at_end) + " in use on the GPU at the end";
    break;
  }
  if (counts.failed != 0) {
    text += str_format("; {} failed, {}of {}", counts.failed, counts.failed == 1 ? "" : "the largest ",
                       size(counts.largest_failed));
  }
  return text;
}

/// The most that PyTorch's allocator held on a device; empty if it has reported nothing.
std::string torch_text(const RunInfo& run, std::uint32_t device) {
  std::optional<std::uint64_t> allocated;
  std::optional<std::uint64_t> reserved;
  for (const MemoryLine& line : run.memory_lines) {
    if (line.device != device) continue;
    std::optional<std::uint64_t>* most = line.of == MemoryLine::Of::kTorchAllocated  ? &allocated
                                         : line.of == MemoryLine::Of::kTorchReserved ? &reserved
                                                                                     : nullptr;
    if (most == nullptr) continue;
    for (const MemoryInterval& interval : line.intervals)
      *most = std::max(most->value_or(0), interval.highest);
  }
  if (!allocated || !reserved) return {};
  return str_format("    PyTorch's allocator: peak {} allocated, {} reserved",
                    size_text(static_cast<double>(*allocated)), size_text(static_cast<double>(*reserved)));
}

/// The purposes of the memory of PyTorch's allocator; empty if unknown.
std::string purposes_text(const RunInfo& run, std::uint32_t device) {
  if (!run.memory_purposes) return {};
  std::string text;
  for (const DevicePurposes& found : run.memory_purposes->devices) {
    if (found.device != device) continue;
    for (const MemoryPurpose lasts : kLastingPurposes) {
      const auto purpose = static_cast<std::size_t>(lasts);
      if (found.bytes[purpose] == 0 || run.memory_purposes->unplaced[purpose] != 0) continue;
      text += std::string(text.empty() ? "    for " : ", ") + std::string(purpose_name(purpose)) + " " +
              size_text(static_cast<double>(found.bytes[purpose]));
    }
    if (const auto rest = activations_at_peak(*run.memory_purposes, found); rest && !text.empty())
      text += ", activations " + size_text(static_cast<double>(*rest)) + " at the peak";
  }
  return text;
}

/// Lines for each device: what was allocated on it, and what PyTorch's allocator held.
std::map<std::uint32_t, std::vector<std::string>> memory_texts(const RunInfo& run) {
  std::map<std::uint32_t, std::vector<std::string>> texts;
  for (const MemoryRow& row : run.memory) {
    if (!row.api && row.device < MemoryUse::kDevices) texts[row.device].push_back(memory_text(row, run));
  }
  for (const MemoryLine& line : run.memory_lines) {
    if (line.of == MemoryLine::Of::kTorchAllocated)
      if (std::string text = torch_text(run, line.device); !text.empty())
        texts[line.device].push_back(std::move(text));
  }
  return texts;
}

/// The energy that a device used in the windows, and its clock; empty if neither is known.
std::string energy_text(const DeviceEnergy& device) {
  std::string text;
  if (device.energy.is_precise()) {
    text += "energy: ";
    append_decimal(text, device.energy.joules, 1);
    text += "J ± ";
    append_decimal(text, device.energy.error, 1);
    text += "J, ";
    append_decimal(text, device.energy.joules / (static_cast<double>(device.duration) * 1e-9), 1);
    text += 'W';
    if (device.windows < device.windows_at_all)
      text += str_format(" in {} of {} windows", device.windows, device.windows_at_all);
    const std::optional<double> share =
        device.joules_by_sample ? device.joules_by_sample : device.joules_by_unit;
    if (share) {
      text += ", ";
      append_decimal(text, *share, 3);
      text += device.joules_by_sample ? "J a sample" : "J a unit";
    }
  }
  if (!device.clocks.sm_mhz) return text;
  text += text.empty() ? "SM clock: " : "; SM clock ";
  append_decimal(text, *device.clocks.sm_mhz, 0);
  text += "MHz";
  return device.max_sm_mhz == 0 ? text : text + str_format(" of at most {}", device.max_sm_mhz);
}

}  // namespace

void write_devices(TextPage& page, const Report& report) {
  const RunInfo& run = *report.run;
  const std::map<std::uint32_t, DeviceSum> devices = sums_by_device(*report.statistics, run);
  std::map<std::uint32_t, std::vector<std::string>> memory = memory_texts(run);
  const auto name_of = [&run](std::uint32_t device) {
    std::string text = "  GPU ";
    text += device == kOtherIndex ? "[other]" : std::to_string(device);
    for (const DeviceInfo& info : run.devices) {
      if (info.id == device) text += " " + info.name;
    }
    return text;
  };
  for (const auto& [device, sum] : devices) {
    const DeviceWork& work = sum.work;
    std::string text = name_of(device);
    text +=
        ": " + plural(work.kernels.count, "kernel") + " " + time_text(static_cast<double>(work.kernels.sum));
    if (sum.time != 0) text += ", busy " + share_text(sum.busy, sum.time) + " of the windows' time";
    page.line(text);
    // On a separate line: it would not fit after a GPU's full name.
    if (work.copies + work.memsets != 0) {
      page.line(str_format("    {} {} ({}), {} {}", plural(work.copies, "copy"),
                           time_text(static_cast<double>(work.copy_time)),
                           size_text(static_cast<double>(work.copy_bytes)), plural(work.memsets, "memset"),
                           time_text(static_cast<double>(work.memset_time))));
    }
    if (const auto found = memory.extract(device)) {
      for (const std::string& line : found.mapped()) page.line(line);
    }
    if (const std::string purposes = purposes_text(run, device); !purposes.empty()) page.line(purposes);
    const DeviceEnergy* energy = report.energy.device(device);
    if (energy == nullptr) continue;
    if (const std::string used = energy_text(*energy); !used.empty()) page.line("    " + used);
  }
  const bool traced = std::any_of(run.windows.begin(), run.windows.end(),
                                  [](const WindowInfo& window) { return window.untraced.empty(); });
  if (devices.empty() && (traced || run.windows.empty())) page.line("  no GPU work was launched in a window");
  for (const auto& [device, texts] : memory) {
    page.line(name_of(device) + (devices.empty() ? "" : ": no work in a window"));
    for (const std::string& line : texts) page.line(line);
  }
}

}  // namespace inject
