// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// energy_sum.csv (docs/energy.md).
#include <algorithm>

#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"
#include "libinject/output/window_columns.h"

namespace inject {

namespace {

using namespace units;

constexpr Unit kJoules{"J", "≥ 0", 3};
constexpr Unit kJoulesBySample{"J", "≥ 0", 6};
constexpr Unit kWatts{"W", "≥ 0", 1};
constexpr Unit kMeanClock{"MHz", "≥ 0", 1};
constexpr Unit kClock{"MHz", "≥ 0"};
constexpr Unit kCelsius{"°C", "≥ 0"};

constexpr std::string_view kNotPrecise =
    "the error is more than a third of the value; the driver has no energy counter; the counter was reset";
constexpr std::string_view kTooFewReadings =
    "fewer than 3 readings, or none for a part of the time (energy.md); not reported by the driver";

void add_clock_columns(Columns<EnergyRow>& columns) {
  const auto clocks = columns.of(&EnergyRow::clocks, kTooFewReadings);
  const auto share = [](std::optional<double> ClockUse::*of) {
    return [of](const ClockUse& use) { return percent(use.*of); };
  };
  columns.add(
      "Clock Readings", kCount, [](const EnergyRow& row) { return row.clocks.readings; },
      "How often the clocks were read during this time.");
  clocks
      .add(
          "SM Clock (MHz)", kMeanClock, &ClockUse::sm_mhz,
          "The multiprocessors' clock, mean over the time: the clock at which rates and shares of peaks were "
          "measured.")
      .add("SM Clock Min (MHz)", kClock, &ClockUse::sm_min_mhz, "The lowest reading.");
  columns.add(
      "SM Clock Highest (MHz)", kClock,
      [](const EnergyRow& row) { return cell_if(row.max_sm_mhz != 0, row.max_sm_mhz); },
      "The GPU's highest SM clock.", "not reported by the driver");
  clocks.add("Memory Clock (MHz)", kMeanClock, &ClockUse::memory_mhz, "The memory clock, mean over the time.")
      .add("Memory Clock Min (MHz)", kClock, &ClockUse::memory_min_mhz, "The lowest reading.")
      .add("Temperature Max (C)", kCelsius, &ClockUse::temperature,
           "The highest reading of the GPU's temperature.")
      .add("Power Readings (W)", kWatts, &ClockUse::watts,
           "The driver's own power readings, mean over the time; many GPUs average them over a second.")
      .add("Held Down (%)", kPercent, share(&ClockUse::throttled),
           "Share of the time in which the clocks were held down (throttled) for one of the reasons that "
           "follow; several may apply at once.")
      .add("Held by Power (%)", kPercent, share(&ClockUse::throttled_by_power),
           "The power limit, or a power brake by the power supply.")
      .add("Held by Heat (%)", kPercent, share(&ClockUse::throttled_by_heat),
           "The temperature of the GPU or its memory.")
      .add("Held by Hardware (%)", kPercent, share(&ClockUse::throttled_by_hardware),
           "A slowdown by the hardware itself, for heat, power or another reason.")
      .add("Held Cost Bound (%)", kPercent, share(&ClockUse::throttle_cost),
           "Upper bound on the share of the time lost because clocks were held down: SM Clock against SM "
           "Clock Highest during that time, as if all work scaled with the clock.");
}

Columns<EnergyRow> energy_columns(const Report& report) {
  using Row = EnergyRow;
  Columns<Row> columns;
  const RunInfo* const run = report.run;
  columns.add(
      "Window", kCount, [](const Row& row) { return row.window->number; }, "Number of the window.");
  columns.add(
      "Iteration", kCount,
      [](const Row& row) {
        return row.iteration != nullptr && row.iteration->label == IterationLabel::kIteration
                   ? Cell(row.iteration->number)
                   : Cell();
      },
      "The iteration's number, starting at 0.", "rows of windows; not an iteration");
  columns.add(
      "Of", kText,
      [](const Row& row) { return row.iteration == nullptr ? "window" : label_name(row.iteration->label); },
      "`window`, or the parts of one: `iteration`, `validation`, `checkpoint`. Add up only rows of one "
      "kind.");
  columns.add("Device", kNumber, &Row::device, kDeviceNumber);
  columns.add(
      "Start (ns)", kMoment,
      [run](const Row& row) {
        return since_base(row.iteration != nullptr ? row.iteration->begin : row.window->start, *run);
      },
      "Host time, as in window_sum.csv and iteration_sum.csv.");
  columns.add("Duration (ns)", kTime, &Row::duration, "As in window_sum.csv and iteration_sum.csv.",
              "not over");
  const auto joules = [](const EnergyAmount& amount) { return amount.joules; };
  const auto error = [](const EnergyAmount& amount) { return amount.error; };
  columns.of(&Row::energy, kNotPrecise)
      .add("Energy (J)", kJoules, joules,
           "Energy of the whole GPU, used by all processes on it: the increase of its counter, interpolated "
           "at both ends.")
      .add("± Energy (J)", kJoules, error,
           "Maximum error, from the counter's steps and the times of the readings.");
  columns.add("Power (W)", kWatts, &Row::watts, "Energy / Duration.", kNotPrecise);
  static constexpr std::string_view kNoIdle =
      "rows of iterations; the error is more than a third of the value, as without cudaDeviceSynchronize(); "
      "records of kernels were lost; too many pauses";
  columns.of(&Row::idle, kNoIdle)
      .add("Idle Energy (J)", kJoules, joules,
           "Energy used while no kernel ran: measured in pauses of 5 ms or more, once earlier work is known "
           "to be over; estimated from their time for others (energy.md).")
      .add("± Idle Energy (J)", kJoules, error, "Maximum error.");
  columns.add(
      "Idle Energy (%)", kPercent,
      [](const Row& row) {
        if (!row.idle || !row.energy) return Cell();
        return Cell(std::min(100.0, 100 * row.idle->joules / row.energy->joules));
      },
      "Idle Energy / Energy.", kNoIdle);
  columns.add("Energy per Sample (J)", kJoulesBySample, &Row::joules_by_sample,
              "This GPU's energy / INJECT_BATCH; for a window, over its complete iterations.",
              "no INJECT_BATCH; no complete iteration; something else between the iterations; the host ran "
              "ahead of the "
              "GPU, or may have while records of its work were lost; otherwise as Energy");
  columns.add(
      "Energy per Unit (J)", kJoulesBySample,
      [](const Row& row) { return exact_cell(row.joules_by_unit, kJoulesBySample); },
      "This GPU's energy / the units of work of the process (units.md); for a window, over its complete "
      "iterations.",
      "the units of an iteration are not known, or 0; otherwise as Energy per Sample");
  add_clock_columns(columns);
  return columns;
}

const std::vector<EnergyRow>& energy_rows(const Report& report) {
  return report.energy.rows;
}

bool has_readings(const Report& report) {
  return !report.run->energy.devices.empty();
}

}  // namespace

TableFile energy_table() {
  return make_table<energy_columns, energy_rows>(
      "energy_sum.csv", "Energy and clocks of a GPU in a window, and in its iterations (energy.md).",
      has_readings, "if NVML reports it");
}

}  // namespace inject
