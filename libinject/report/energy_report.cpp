// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/energy_report.h"

#include <algorithm>
#include <span>

#include "libinject/base/csv.h"
#include "libinject/base/format.h"
#include "libinject/report/display_text.h"
#include "libinject/report/work_units.h"

namespace inject {

namespace {

std::optional<EnergyAmount> if_precise(const std::optional<EnergyAmount>& amount) {
  return amount && amount->is_precise() ? amount : std::nullopt;
}

bool is_complete_iteration(const IterationRow& row) {
  return row.kind == IterationRow::Kind::kPhase && row.complete && row.label == IterationLabel::kIteration;
}

/// False if a kernel's record is missing, because its time would count as idle.
bool all_kernels_known(const WindowInfo& window, const RunInfo& run) {
  return !window.losses.device_work() && run.device_time_records_lost == 0;
}

/// The rows of one device.
class DeviceRows {
 public:
  DeviceRows(const Statistics& statistics, const RunInfo& run, const DeviceReadings& readings)
      : statistics_(statistics),
        run_(run),
        readings_(readings),
        counter_(readings.energy, readings.limit_mw),
        sums_(readings.max_sm_mhz) {}

  /// `iterations`: those of the window. `in_time`: the device does their work between their edges on the
  /// host.
  void add(const WindowInfo& window, std::span<const IterationRow> iterations, bool in_time,
           std::vector<EnergyRow>& rows) {
    EnergyRow row = row_of(window, window.start, window.end);
    if (in_time) add_shares(row, iterations);
    const DeviceTimeRow* times = statistics_.device_times().row(window.number, readings_.device);
    if (times != nullptr && window.end != 0 && all_kernels_known(window, run_))
      row.idle =
          if_precise(energy_in_pauses(counter_, readings_.limit_mw, times->pauses, window.start, window.end));
    ++total_.windows_at_all;
    if (row.energy) {
      ++total_.windows;
      total_.energy.joules += row.energy->joules;
      total_.energy.error += row.energy->error;
      total_.duration += *row.duration;
    }
    if (row.joules_by_sample) total_.joules_by_sample = row.joules_by_sample;
    if (row.joules_by_unit) total_.joules_by_unit = row.joules_by_unit;
    if (window.end != 0) sums_.add(readings_.clocks, window.start, window.end);
    rows.push_back(std::move(row));
    for (const IterationRow& iteration : iterations) {
      if (iteration.kind != IterationRow::Kind::kPhase || iteration.begin == 0) continue;
      EnergyRow& part = rows.emplace_back(row_of(window, iteration.begin, iteration.end));
      part.iteration = &iteration;
      if (!in_time) continue;
      if (part.energy && run_.batch != 0 && is_complete_iteration(iteration))
        part.joules_by_sample = part.energy->joules / static_cast<double>(run_.batch);
      if (const auto units = units_of(run_, iteration); part.energy && units && *units > 0)
        part.joules_by_unit = part.energy->joules / *units;
    }
  }

  DeviceEnergy total() const {
    DeviceEnergy total = total_;
    total.device = readings_.device;
    total.clocks = sums_.use();
    total.max_sm_mhz = readings_.max_sm_mhz;
    return total;
  }

 private:
  EnergyRow row_of(const WindowInfo& window, Nanoseconds begin, Nanoseconds end) const {
    EnergyRow row;
    row.window = &window;
    row.device = readings_.device;
    row.max_sm_mhz = readings_.max_sm_mhz;
    if (end <= begin) return row;
    row.duration = end - begin;
    row.energy = if_precise(counter_.between(begin, end));
    ClockSums sums(readings_.max_sm_mhz);
    sums.add(readings_.clocks, begin, end);
    row.clocks = sums.use();
    return row;
  }

  /// From the first complete iteration to the last, if nothing else is in between.
  void add_shares(EnergyRow& row, std::span<const IterationRow> iterations) const {
    const auto first = std::find_if(iterations.begin(), iterations.end(), is_complete_iteration);
    const auto after = std::find_if_not(first, iterations.end(), is_complete_iteration);
    const auto count = static_cast<std::uint64_t>(after - first);
    if (count == 0 || std::any_of(after, iterations.end(), is_complete_iteration)) return;
    const auto amount = if_precise(counter_.between(first->begin, std::prev(after)->end));
    if (!amount) return;
    if (run_.batch != 0) row.joules_by_sample = amount->joules / static_cast<double>(count * run_.batch);
    WorkUnits units;
    for (auto iteration = first; iteration != after; ++iteration)
      units.add(units_of(run_, *iteration), iteration->end - iteration->begin);
    if (units.iterations == count && units.units > 0) row.joules_by_unit = amount->joules / units.units;
  }

  const Statistics& statistics_;
  const RunInfo& run_;
  const DeviceReadings& readings_;
  EnergyCounter counter_;
  ClockSums sums_;
  DeviceEnergy total_;
};

}  // namespace

std::optional<double> EnergyRow::watts() const {
  if (!energy || !duration) return std::nullopt;
  return energy->joules / (static_cast<double>(*duration) * 1e-9);
}

std::string throttle_text(const DeviceEnergy& device) {
  constexpr double kWorthMentioning = 0.01;
  const ClockUse& clocks = device.clocks;
  if (clocks.throttled.value_or(0) < kWorthMentioning) return {};
  std::string reasons;
  const auto add = [&reasons](const char* name, const std::optional<double>& share) {
    if (share.value_or(0) == 0) return;
    if (!reasons.empty()) reasons += ", ";
    reasons += name + percent_text(100 * *share);
  };
  add("power ", clocks.throttled_by_power);
  add("heat ", clocks.throttled_by_heat);
  add("hardware slowdown ", clocks.throttled_by_hardware);
  std::string text =
      "clocks throttled " + percent_text(100 * *clocks.throttled) + " of the time (" + reasons + ")";
  if (clocks.throttled_sm_mhz && clocks.throttle_cost && device.max_sm_mhz != 0) {
    text += ": SM clock then ";
    append_decimal(text, *clocks.throttled_sm_mhz, 0);
    text += str_format(" MHz on average, of at most {}; this costs at most {} of the time", device.max_sm_mhz,
                       percent_text(100 * *clocks.throttle_cost));
  }
  return text;
}

const DeviceEnergy* EnergyReport::device(std::uint32_t number) const {
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [number](const DeviceEnergy& one) { return one.device == number; });
  return found == devices.end() ? nullptr : &*found;
}

EnergyReport energy_report(const Statistics& statistics, const RunInfo& run,
                           const std::vector<IterationRow>& iterations,
                           const std::function<bool(std::uint32_t window)>& by_host_pace) {
  EnergyReport report;
  std::vector<DeviceRows> devices;
  devices.reserve(run.energy.devices.size());
  for (const DeviceReadings& readings : run.energy.devices) devices.emplace_back(statistics, run, readings);
  // Both are in the order of the windows.
  auto next = iterations.begin();
  for (const WindowInfo& window : run.windows) {
    if (devices.empty()) break;
    const auto is_before = [&](const IterationRow& row) {
      return row.kind == IterationRow::Kind::kOlder || row.window < window.number;
    };
    const auto is_of = [&](const IterationRow& row) { return row.window == window.number; };
    next = std::find_if_not(next, iterations.end(), is_before);
    const auto after = std::find_if_not(next, iterations.end(), is_of);
    if (window.times_known()) {
      const bool in_time = by_host_pace(window.number);
      for (DeviceRows& device : devices) device.add(window, {next, after}, in_time, report.rows);
    }
    next = after;
  }
  for (const DeviceRows& device : devices) report.devices.push_back(device.total());
  return report;
}

}  // namespace inject
