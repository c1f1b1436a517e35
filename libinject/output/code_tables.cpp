// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// op_sum.csv, module_sum.csv, line_sum.csv, gap_line_sum.csv and gpu_stacks.folded.
#include "libinject/base/format.h"
#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

/// The columns of the phases, which add up to the time of `work`.
template <typename Row, typename Base>
void add_phase_columns(Columns<Row>& columns, CodeWork Base::*work) {
  const auto in = [work](CodePhase phase) {
    return [work, phase](const Row& row) { return (row.*work).phases[static_cast<std::size_t>(phase)]; };
  };
  columns
      .add("Forward (ns)", kTime, in(CodePhase::kForward),
           "Part of Total Time: launched in an operator or module, but in none of the following.")
      .add("Backward (ns)", kTime, in(CodePhase::kBackward),
           "Part of Total Time: launched in the backward pass.")
      .add("Recomputation (ns)", kTime, in(CodePhase::kRecompute),
           "Part of Total Time: the forward pass run again in the backward pass, as with checkpointing.")
      .add("Optimizer (ns)", kTime, in(CodePhase::kOptimizer),
           "Part of Total Time: launched in an optimizer step.")
      .add("Other (ns)", kTime, in(CodePhase::kOther),
           "Part of Total Time: launched in none of these, or it is not known where.");
}

template <typename Row>
void add_time_columns(Columns<Row>& columns, std::string_view self, std::string_view total) {
  columns
      .add(
          "Self Time (ns)", kTime, [](const Row& row) { return row.self.time; }, self)
      .add(
          "Self Instances", kCount, [](const Row& row) { return row.self.instances; },
          "Number of these kernels.")
      .add(
          "Total Time (ns)", kTime, [](const Row& row) { return row.inclusive.time; }, total)
      .add(
          "Total Instances", kCount, [](const Row& row) { return row.inclusive.instances; },
          "Number of these kernels.");
}

/// For everything launched in it.
template <typename Row>
void add_flop_columns(Columns<Row>& columns) {
  const auto rate = [](const Row& row) -> const FlopRate& { return row.inclusive.rate; };
  columns
      .add(
          "FLOP Time (ns)", kTime, [](const Row& row) { return row.inclusive.flop_time; },
          "Part of Total Time: kernels of library calls and operators whose FLOPs are known (code.md).")
      .add(
          "FLOPs", kFlop, [rate](const Row& row) { return rate(row).flops; },
          "FLOPs of these kernels, with attention counted as if it were not causal.")
      .add(
          "TFLOP/s", kTeraflops, [rate](const Row& row) { return rate(row).teraflops; }, "FLOPs / FLOP Time.",
          "no FLOPs are known; an impossible rate (peaks.md)")
      .add(
          "Peak (%)", kRateShare, [rate](const Row& row) { return percent(rate(row).peak_share.value); },
          "Time the FLOPs would take at the first device's peaks, as a share of FLOP Time.",
          "the rate or a peak is not known");
}

/// What limits everything launched in it.
template <typename Row>
void add_limit_columns(Columns<Row>& columns) {
  columns
      .add(
          "Compute-bound (ns)", kTime, [](const Row& row) { return row.inclusive.limits.compute; },
          "Part of Total Time: kernels limited by arithmetic (diagnosis.md).")
      .add(
          "Memory-bound (ns)", kTime, [](const Row& row) { return row.inclusive.limits.memory; },
          "Part of Total Time: kernels limited by memory.")
      .add(
          "Latency-bound (ns)", kTime, [](const Row& row) { return row.inclusive.limits.latency; },
          "Part of Total Time: kernels that are too short, or have too few blocks, to use the device.");
}

template <typename Row>
std::vector<Listed<Row>> with_total(const std::vector<Row>& rows, const Report& report) {
  std::vector<Listed<Row>> result;
  result.reserve(rows.size());
  for (const Row& row : rows) result.push_back({row, report.code.all.time});
  return result;
}

Columns<Listed<OperatorRow>> operator_columns(const Report&) {
  using Row = Listed<OperatorRow>;
  Columns<Row> columns;
  columns
      .add(
          "Time (%)", kPercent, [](const Row& row) { return percent(row.self.time, row.total); },
          "Self Time as a share of the time of all kernels.")
      .add("Operator", kText, &OperatorRow::name,
           "The PyTorch operator, or the node of the backward pass; `[none]`: launched outside any; "
           "`[unattributed]`: not known.");
  add_time_columns(columns, "Sum of the durations of kernels launched with it as the innermost operator.",
                   "Sum of the durations of all kernels launched in it.");
  add_phase_columns(columns, &OperatorRow::inclusive);
  add_limit_columns(columns);
  add_flop_columns(columns);
  return columns;
}

std::vector<Listed<OperatorRow>> operator_rows(const Report& report) {
  return with_total(report.code.operators, report);
}

Columns<Listed<ModuleRow>> module_columns(const Report&) {
  using Row = Listed<ModuleRow>;
  Columns<Row> columns;
  columns
      .add(
          "Time (%)", kPercent, [](const Row& row) { return percent(row.inclusive.time, row.total); },
          "Total Time as a share of the time of all kernels.")
      .add("Module", kText, &ModuleRow::path,
           "Path of the module, starting at the outermost module called, which is given by its class; "
           "`[none]`: launched outside any; `[unattributed]`: not known.")
      .add("Class", kText, &ModuleRow::type, "The module's class.",
           "rows in brackets; several classes at one path, in models of one class")
      .add("Depth", kCount, &ModuleRow::depth, "Number of nested module calls around it.",
           "it is called at several depths")
      .add("Parent", kText, &ModuleRow::parent, "The module that calls it.",
           "several modules call it, or none does (depth 0)");
  add_time_columns(columns, "Sum of the durations of kernels launched with it as the innermost module.",
                   "Sum of the durations of all kernels launched in it.");
  add_phase_columns(columns, &ModuleRow::inclusive);
  add_limit_columns(columns);
  add_flop_columns(columns);
  return columns;
}

std::vector<Listed<ModuleRow>> module_rows(const Report& report) {
  return with_total(report.code.modules, report);
}

Columns<Listed<LineRow>> line_columns(const Report&) {
  using Row = Listed<LineRow>;
  Columns<Row> columns;
  columns
      .add(
          "Time (%)", kPercent, [](const Row& row) { return percent(row.user_time, row.total); },
          "User Code Time as a share of the time of all kernels.")
      .add("File", kText, &LineRow::file, "The source file, as named by Python.")
      .add(
          "Line", kNumber, [](const Row& row) { return cell_if(row.line != 0, row.line); }, "The line.",
          "a row without a line, such as `[none]`")
      .add("Function", kText, &LineRow::function,
           "The function; `[none]`: launched by no line or, for User Code Time, only by lines of libraries; "
           "`[unattributed]`: not known.")
      .add("In Library", kFlag, &LineRow::is_library,
           "1: the code belongs to an installed package or to Python, or was generated.")
      .add("User Code Time (ns)", kTime, &LineRow::user_time,
           "Sum of the durations of kernels for which it is the innermost line outside libraries.");
  columns
      .add("User Code Copies", kCount, &LineRow::copies,
           "Copies and memsets for which it is the innermost line outside libraries.")
      .add("User Code Copy Time (ns)", kTime, &LineRow::copy_time, "Sum of their durations.");
  add_time_columns(columns, "Sum of the durations of kernels launched with it as the innermost line.",
                   "Sum of the durations of all kernels launched by it and by what it calls.");
  add_phase_columns(columns, &LineRow::inclusive);
  add_limit_columns(columns);
  add_flop_columns(columns);
  return columns;
}

std::vector<Listed<LineRow>> line_rows(const Report& report) {
  return with_total(report.code.lines, report);
}

Columns<Listed<GapLineRow>> gap_columns(const Report&) {
  using Row = Listed<GapLineRow>;
  Columns<Row> columns;
  columns
      .add(
          "Time (%)", kPercent, [](const Row& row) { return percent(row.time, row.total); },
          "Idle Time as a share of the idle time of all devices.")
      .add("File", kText, &GapLineRow::file, "The source file, as named by Python.")
      .add(
          "Line", kNumber, [](const Row& row) { return cell_if(row.line != 0, row.line); }, "The line.",
          "a row without a line, such as `[device]`")
      .add("Function", kText, &GapLineRow::function,
           "The function; `[device]`: the host was not late; `[none]`: no line of the program, only lines of "
           "libraries; `[unattributed]`: not known.")
      .add("Idle Time (ns)", kTime, &GapLineRow::time,
           "How long the devices were idle because of this line, the innermost one outside libraries.")
      .add("Gaps", kCount, &GapLineRow::gaps,
           "Number of these gaps; a gap shared by several lines counts for one of them.");
  for (std::size_t i = 0; i < kIdleCauses; ++i)
    columns.add(
        str_format("Idle: {} (ns)", idle_cause_name(static_cast<IdleCause>(i))), kTime,
        [i](const Row& row) { return row.causes[i]; },
        "Part of Idle Time with this cause, as in `window_sum.csv`.");
  columns.add("Own Work (ns)", kTime, &GapLineRow::own_work, "Part of Host Compute, as in `window_sum.csv`.");
  return columns;
}

std::vector<Listed<GapLineRow>> gap_rows(const Report& report) {
  std::vector<Listed<GapLineRow>> rows;
  rows.reserve(report.code.gaps.size());
  for (const GapLineRow& row : report.code.gaps) rows.push_back({row, report.code.idle});
  return rows;
}

constexpr std::string_view kWhen = "where launches are named";

bool has_code(const Report& report) {
  return !report.code.empty();
}

}  // namespace

TableFile operator_table() {
  return make_table<operator_columns, operator_rows>(
      "op_sum.csv", "A PyTorch operator, or a node of the backward pass (code.md).", &has_code, kWhen);
}

TableFile module_table() {
  return make_table<module_columns, module_rows>("module_sum.csv", "A PyTorch module (code.md).", &has_code,
                                                 kWhen);
}

TableFile gap_line_table() {
  return make_table<gap_columns, gap_rows>(
      "gap_line_sum.csv", "A line of Python that the GPU waited for (code.md).", &has_code, kWhen);
}

// The collapsed format that flame graph tools read: a stack, a space and a number.
TableFile kernel_stack_file() {
  return {"gpu_stacks.folded",
          "Kernels of one name by the Python stack that launches them (code.md).",
          nullptr,
          [](const Report& report, std::string& text, const TextSink& sink) {
            for (const KernelStack& stack : report.code.stacks) {
              text += str_format("{} {}\n", stack.text, stack.time);
              sink(text);
            }
          },
          &has_code,
          kWhen};
}

TableFile line_table() {
  return make_table<line_columns, line_rows>("line_sum.csv", "A line of Python (code.md).", &has_code, kWhen);
}

}  // namespace inject
