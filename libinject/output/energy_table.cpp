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

constexpr std::string_view kNotSharp =
    "the error is more than a third of it; the driver has no energy counter; the counter was reset";
constexpr std::string_view kTooFewReadings = "fewer than 3 readings; the driver does not tell";

void add_clock_columns(Columns<EnergyRow>& columns) {
  const auto clocks = columns.of(&EnergyRow::clocks, kTooFewReadings);
  const auto share = [](std::optional<double> ClockUse::*of) {
    return [of](const ClockUse& use) { return percent(use.*of); };
  };
  columns.add(
      "Clock Readings", kCount, [](const EnergyRow& row) { return row.clocks.readings; },
      "How often the clocks were read in it.");
  clocks
      .add("SM Clock (MHz)", kMeanClock, &ClockUse::sm_mhz,
           "The multiprocessors' clock, mean of the readings: that at which rates and shares of peaks were "
           "measured.")
      .add("SM Clock Min (MHz)", kClock, &ClockUse::sm_min_mhz, "The lowest reading.");
  columns.add(
      "SM Clock Highest (MHz)", kClock,
      [](const EnergyRow& row) { return cell_if(row.max_sm_mhz != 0, row.max_sm_mhz); },
      "The highest clock that the GPU has.", "the driver does not tell");
  clocks
      .add("Memory Clock (MHz)", kMeanClock, &ClockUse::memory_mhz,
           "The memory's clock, mean of the readings.")
      .add("Memory Clock Min (MHz)", kClock, &ClockUse::memory_min_mhz, "The lowest reading.")
      .add("Temperature Max (C)", kCelsius, &ClockUse::temperature, "The GPU's, the highest reading.")
      .add("Power Readings (W)", kWatts, &ClockUse::watts,
           "Mean of the driver's own readings of the power, which many GPUs average over a second.")
      .add("Held Down (%)", kPercent, share(&ClockUse::held),
           "Share of the readings in which the clocks were held down for one of the reasons that follow; "
           "several may hold at once.")
      .add("Held by Power (%)", kPercent, share(&ClockUse::held_by_power),
           "The power limit, or the power supply's brake.")
      .add("Held by Heat (%)", kPercent, share(&ClockUse::held_by_heat), "The temperature, of GPU or memory.")
      .add("Held by Hardware (%)", kPercent, share(&ClockUse::held_by_hardware),
           "A slowdown by the hardware itself, for heat, power or another reason.")
      .add("Held Cost Bound (%)", kPercent, share(&ClockUse::held_cost),
           "Share of the time that held-down clocks can have cost at most: SM Clock against SM Clock Highest "
           "while they were, as if all work became faster with the clock.");
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
      "The iteration's number, starting at 0.", "the row is of the window; anything that is no iteration");
  columns.add(
      "Of", kText,
      [](const Row& row) { return row.iteration == nullptr ? "window" : label_name(row.iteration->label); },
      "`window`; of its parts `iteration`, `validation`, `checkpoint`. Add up one kind of them alone.");
  columns.add("Device", kNumber, &Row::device, kDeviceNumber);
  columns.add(
      "Start (ns)", kMoment,
      [run](const Row& row) {
        return since_base(row.iteration != nullptr ? row.iteration->begin : row.window->start, *run);
      },
      "On the host, as in window_sum.csv and iteration_sum.csv.");
  columns.add("Duration (ns)", kTime, &Row::duration, "Likewise.", "not over");
  const auto joules = [](const EnergyAmount& amount) { return amount.joules; };
  const auto error = [](const EnergyAmount& amount) { return amount.error; };
  columns.of(&Row::energy, kNotSharp)
      .add("Energy (J)", kJoules, joules,
           "Of the whole GPU, by all processes on it: what its counter rose by, interpolated at both ends.")
      .add("± Energy (J)", kJoules, error,
           "By the counter's steps and the times of the readings: it is not more off.");
  columns.add("Power (W)", kWatts, &Row::watts, "Energy by Duration.", kNotSharp);
  static constexpr std::string_view kNoIdle =
      "rows of iterations; the error is more than a third of it; kernels' records were lost; too many pauses";
  columns.of(&Row::idle, kNoIdle)
      .add("Idle Energy (J)", kJoules, joules,
           "While no kernel ran: measured in pauses of 5 ms or more, shorter ones by their time (energy.md).")
      .add("± Idle Energy (J)", kJoules, error, "It is not more off.");
  columns.add(
      "Idle Energy (%)", kPercent,
      [](const Row& row) {
        if (!row.idle || !row.energy) return Cell();
        return Cell(std::min(100.0, 100 * row.idle->joules / row.energy->joules));
      },
      "Idle Energy by Energy.", kNoIdle);
  columns.add("Energy per Sample (J)", kJoulesBySample, &Row::joules_by_sample,
              "This GPU's energy by INJECT_BATCH; of a window, of its complete iterations.",
              "no INJECT_BATCH; no complete iteration; as Energy; other things between the iterations");
  columns.add(
      "Energy per Unit (J)", kJoulesBySample,
      [](const Row& row) { return exact_cell(row.joules_by_unit, kJoulesBySample); },
      "This GPU's energy by the units of work of the process (units.md); of a window, of its complete "
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
      has_readings, "where NVML tells");
}

}  // namespace inject
