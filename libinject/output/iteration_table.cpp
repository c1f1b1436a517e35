// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// iteration_sum.csv (docs/iterations.md).
#include "libinject/output/metric_columns.h"
#include "libinject/output/tables.h"
#include "libinject/output/window_columns.h"

namespace inject {

namespace {

using namespace units;

using Kind = IterationRow::Kind;

Cell label_text(const IterationReport& report) {
  const IterationRow& row = *report.row;
  if (row.kind == Kind::kOlder) return {};
  if (row.kind == Kind::kOutside) return "outside";
  return label_name(row.label);
}

Columns<IterationReport> iteration_columns(const Report& report) {
  using Row = IterationReport;
  Columns<Row> columns;
  const RunInfo* const run = report.run;
  const auto phase =
      columns.of([](const Row& row) { return row.row->kind == Kind::kPhase ? &row : nullptr; });
  const auto known_time = columns.of(
      [](const Row& row) { return row.row->kind == Kind::kOutside ? nullptr : &row; }, "`outside`");
  columns.add(
      "Window", kText,
      [](const Row& row) { return row.row->kind == Kind::kOlder ? Cell("[other]") : Cell(row.row->window); },
      "Number of the window; `[other]`: all rows older than the latest 10,000.");
  phase.add(
      "Iteration", kCount,
      [](const Row& row) { return cell_if(row.row->label == IterationLabel::kIteration, row.row->number); },
      "The iteration's number, starting at 0.", "not an iteration");
  columns.add("Label", kText, label_text,
              "`iteration`, `validation`, `checkpoint`; `outside`: work launched before or after any known "
              "boundary, or whose launch was not seen.",
              "`[other]`");
  phase.add(
      "Complete", kFlag, [](const Row& row) { return row.row->complete ? 1 : 0; },
      "1: the window contains it from its boundary to the next one, and nothing of it was lost.",
      "`outside` and `[other]`");
  add_device(columns);
  phase
      .add(
          "Start (ns)", kMoment,
          [run](const Row& row) { return cell_if(row.row->begin != 0, since_base(row.row->begin, *run)); },
          "Host time of its boundary; if it began before the window, the window's start.",
          "`outside` and `[other]`; not known")
      .add("Duration (ns)", kTime, &Row::duration,
           "Next boundary - Start, on the host; if cut off by the end of the window, that end - Start.",
           "`outside` and `[other]`; not over")
      .add(
          "Step Time (ns)", kMeanTime, &Row::step_time,
          "Duration or, where the host ran ahead of the GPU, the time on the GPU from the end of the "
          "iteration's last work to that of the next one's (iterations.md).",
          "not a complete iteration; the host ran ahead, and it is the last of its window; the host may have "
          "run ahead while records of device work were lost")
      .add(
          "Samples/s", kRate, [](const Row& row) { return exact_cell(row.samples_per_second, kRate); },
          "INJECT_BATCH / Step Time.", "no INJECT_BATCH; otherwise as Step Time");
  constexpr std::string_view kNoUnits =
      "rows of one device; not complete; no units were reported, or not all are known";
  const auto units = columns.of(&Row::units, kNoUnits);
  units
      .add(
          "Units", kUnits, [](const WorkUnits& of) { return units_cell(of.total()); }, kUnitsMeaning)
      .add(
          "Units From", kText,
          [run](const WorkUnits& of) {
            return cell_if(of.iterations != 0, unit_source_name(run->unit_source));
          },
          kUnitSourceMeaning);
  columns.add(
      "Units/s", kUnitRate,
      [](const Row& row) {
        return exact_cell(row.pace == Pace::kHost ? row.units.per_second() : std::nullopt, kUnitRate);
      },
      "Units / Duration.",
      "rows of one device; not complete; no units were reported, or not all are known; the host ran ahead of "
      "the GPU, or may have while records of its work were lost");
  units.add(
      "Units/s of GPU Busy", kUnitRate,
      [](const WorkUnits& of) { return exact_cell(of.per_busy_second(), kUnitRate); },
      "Units / GPU Busy; with several GPUs, that of the busiest: the rate if that GPU always had work.",
      kNoUnits);
  columns.add(
      "Launches", kCount, [](const Row& row) { return cell_if(!row.device, row.row->launches); },
      "Host calls that submitted work to a device.", kAllDevices);
  known_time.add("GPU Busy (ns)", kTime, &Row::busy,
                 "Time during which at least one of the row's kernels, copies or memsets ran; `all`: sum "
                 "over the devices.",
                 "`outside`; records of its work were lost; no device activity was recorded");
  columns.add("Gap to Next (ns)", kTime, &Row::gap,
              "From the end of this row's last work to the start of the next row's first; `all`: time during "
              "which no device worked.",
              "the last of its window; records of its work or the next one's were lost");
  add_work_columns(columns, &Row::work, "no device activity was recorded");
  add_flop_columns(columns, &Row::flops);
  known_time
      .add("Kernel Busy (ns)", kTime, &Row::kernel_busy,
           "Time during which at least one of the row's kernels ran.", "as GPU Busy")
      .add(
          "GPU Utilization (%)", kPercent, [](const Row& row) { return percent(row.utilization); },
          "Kernel Busy / the iteration's time on the device: from its first work to the next one's.",
          "`outside`; the time is not known; the next one's work begins long before this one's ends; records "
          "of its work or the next one's were lost");
  add_fetch_columns(columns, &Row::fetches);
  add_metric_columns(columns, report, &Row::metrics);
  return columns;
}

const std::vector<IterationReport>& iteration_rows(const Report& report) {
  return report.iterations;
}

Columns<StepPace::Step> step_columns(const Report& report) {
  using Row = StepPace::Step;
  Columns<Row> columns;
  const RunInfo* const run = report.run;
  columns
      .add(
          "Iteration", kCount, [](const Row& row) { return row.step->number; },
          "The iteration's number, starting at 0.")
      .add(
          "Start (ns)", kMoment, [run](const Row& row) { return since_base(row.step->begin, *run); },
          "Host time of its boundary.")
      .add(
          "Duration (ns)", kTime, [](const Row& row) { return row.step->duration; },
          "Next boundary - Start, on the host.")
      .add("Step Time (ns)", kMeanTime, &Row::time,
           "Time the program takes for it: Duration. If the host waits for the GPU only every few "
           "iterations, the mean over several, in the last one's row (iterations.md).",
           "the host ran ahead of the GPU; included in another row's mean")
      .add(
          "Samples/s", kRate,
          [run](const Row& row) {
            return exact_cell(row.time ? samples_per_second(run->batch, *row.time) : std::nullopt, kRate);
          },
          "INJECT_BATCH / Step Time.", "no INJECT_BATCH; otherwise as Step Time");
  const auto of_step = [run](const Row& row) {
    WorkUnits units;
    units.add(units_of(*run, *row.step), row.step->duration);
    return units;
  };
  columns.of(of_step, "no units were reported, or not all are known")
      .add(
          "Units", kUnits, [](const WorkUnits& of) { return units_cell(of.total()); }, kUnitsMeaning)
      .add(
          "Units From", kText,
          [run](const WorkUnits& of) {
            return cell_if(of.iterations != 0, unit_source_name(run->unit_source));
          },
          kUnitSourceMeaning);
  columns.add(
      "Units/s", kUnitRate,
      [of_step](const Row& row) {
        return exact_cell(row.counts ? of_step(row).per_second() : std::nullopt, kUnitRate);
      },
      "Units / Duration.", "no units were reported, or not all are known; the host ran ahead of the GPU");
  return columns;
}

const std::vector<StepPace::Step>& step_rows(const Report& report) {
  return report.steps.steps;
}

}  // namespace

TableFile step_table() {
  return make_table<step_columns, step_rows>(
      "step_times.csv",
      "An iteration that ran without CUPTI, before, between or after the windows: the latest 1,000 "
      "(iterations.md). Empty if iterations are only looked for in windows.");
}

TableFile iteration_table() {
  return make_table<iteration_columns, iteration_rows>(
      "iteration_sum.csv",
      "An iteration, or what ran outside any: one row for all devices together (`all`), then one per device "
      "(iterations.md). Add up either the rows `all` or the others, not both.");
}

}  // namespace inject
