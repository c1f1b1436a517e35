// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/call_columns.h"

#include <utility>

#include "libinject/base/format.h"

namespace inject {

using namespace units;

namespace {

std::string kernel_names(const CallShapeRow& row) {
  std::string names;
  for (const auto& [name, share] : row.kernels) {
    if (!names.empty()) names += "; ";
    names += name;
    if (share.count != row.entry.executed()) names += str_format(" ({})", share.count);
  }
  return names;
}

/// The table to which a call of this category most likely belongs.
ShapeKind kind_of(Category category) {
  switch (category) {
    case Category::kGemm:
      return ShapeKind::kGemm;
    case Category::kConv:
      return ShapeKind::kConvolution;
    case Category::kAttention:
      return ShapeKind::kAttention;
    case Category::kRnn:
      return ShapeKind::kRnn;
    case Category::kNorm:
      return ShapeKind::kNormalization;
    default:
      return ShapeKind::kNone;
  }
}

CallTableRow row_of(const CallReport& report) {
  const CallShapeRow& call = *report.call;
  CallTableRow row;
  row.name = call.entry.other ? "[other]" : call.function;
  row.call = call.entry.other ? nullptr : &report;
  row.entry = &call.entry;
  row.gpu = call.entry.gpu;
  row.kernels = call.entry.kernels;
  if (!call.entry.other) row.cores = report.use.cores;
  row.kernel_names = kernel_names(call);
  return row;
}

}  // namespace

CallTableRow derived_row(const DerivedProducts& products) {
  CallTableRow row = row_of(products.report);
  row.derived = products.kind;
  if (products.kind == DerivedProducts::Kind::kProduct) row.cores.reset();
  return row;
}

CallTableRow kernel_row(std::string_view name, const Totals& kernels) {
  CallTableRow row;
  row.name = name;
  row.gpu = kernels;
  row.kernels = kernels.count;
  return row;
}

std::vector<CallTableRow> call_rows(const Report& report, ShapeKind kind, const UnshapedWork& unshaped) {
  std::vector<CallTableRow> rows;
  for (const CallReport& call : report.calls) {
    if (!call.call->entry.other && call.call->shape.kind() == kind) rows.push_back(row_of(call));
  }
  for (const CallReport& call : report.calls) {
    if (call.call->entry.other && kind_of(function_category(call.call->entry.function)) == kind)
      rows.push_back(row_of(call));
  }
  if (unshaped.in_calls.count != 0) rows.push_back(kernel_row("[no shape]", unshaped.in_calls));
  if (unshaped.by_itself.count != 0) rows.push_back(kernel_row("[no call]", unshaped.by_itself));
  return rows;
}

std::vector<CallTableRow> with_total(std::vector<CallTableRow> rows) {
  std::uint64_t total = 0;
  for (const CallTableRow& row : rows) total += row.gpu.sum;
  for (CallTableRow& row : rows) row.total = total;
  return rows;
}

void add_function(Columns<CallTableRow>& columns) {
  columns.add("API", kText, &CallTableRow::name,
              "The function whose arguments were read. `[other]`: calls beyond 10,000 shapes; `[no shape]`: "
              "kernels of calls whose arguments are not known; `[no call]`: kernels of this kind launched "
              "outside library calls.",
              "the calls' own records were lost");
}

void add_call_columns(Columns<CallTableRow>& columns) {
  columns.of(&CallTableRow::entry, "`[no shape]`, `[no call]`: no calls are known")
      .add("Calls", kCount, &CallShapeEntry::calls, "Calls that the library accepted.")
      .add("Failed Calls", kCount, &CallShapeEntry::failed, "Calls that it rejected.")
      .add("Captured Calls", kCount, &CallShapeEntry::captured,
           "Of Calls, those captured into a CUDA graph: they ran nothing themselves.")
      .add("Replayed Calls", kCount, &CallShapeEntry::replayed,
           "Captured calls run by graph launches, counted once per launch (graphs.md).")
      .add(
          "Host Time (ns)", kTime, [](const CallShapeEntry& entry) { return entry.host.sum; },
          "Time in all calls, including failed ones.");
  columns.add(
      "GPU Time (%)", kPercent, [](const CallTableRow& row) { return percent(row.gpu.sum, row.total); },
      "Share of the table's GPU time.");
  columns.of(&CallTableRow::gpu)
      .add("GPU Time (ns)", kTime, &Totals::sum, "Sum of the durations of the calls' kernels.")
      .add("GPU Avg (ns)", kMeanTime, &Totals::mean,
           "Mean kernel time per call; in rows without calls, per kernel.")
      .add("GPU Min (ns)", kTime, &Totals::smallest,
           "Shortest kernel time per call; in rows without calls, per kernel.")
      .add("GPU Max (ns)", kTime, &Totals::max,
           "Longest kernel time per call; in rows without calls, per kernel.");
  columns.add("Kernels", kCount, &CallTableRow::kernels, "Kernels that ran.");
}

void add_rate_columns(Columns<CallTableRow>& columns) {
  columns.of(&CallTableRow::call)
      .add(
          "FLOPs", kFlop,
          [](const CallReport& call) { return cell_if(call.call->work.flops_known, call.call->work.flops); },
          "FLOPs per call. A multiply-add counts as two; normalizations, activations and biases are not "
          "counted.",
          "rows in brackets: no single shape is known; sizes do not determine the number (shapes.md), or it "
          "exceeds 64 bits")
      .add(
          "TFLOP/s", kTeraflops,
          [](const CallReport& call) { return call.rate ? Cell(*call.rate / 1e12) : Cell(); },
          "FLOPs of the calls whose kernels ran / their GPU time.",
          "no FLOPs or no GPU time; records of the calls or their kernels may be lost; a failed call ran "
          "kernels; an impossible rate (peaks.md)")
      .add(
          "Peak", kText,
          [](const CallReport& call) {
            return call.arithmetic ? Cell(arithmetic_name(*call.arithmetic)) : Cell();
          },
          "The arithmetic whose peak the rate is compared with (peaks.md).", "not known")
      .add(
          "Peak (%)", kRateShare, [](const CallReport& call) { return percent(call.peak_share.value); },
          "TFLOP/s as a share of that peak.", "the rate or the peak is not known")
      .add(
          "Bytes", kBytes,
          [](const CallReport& call) { return cell_if(call.call->work.bytes != 0, call.call->work.bytes); },
          "Per call, with operands read once and results written once, including those of what is fused.",
          "not known")
      .add(
          "FLOP/Byte", kIntensity,
          [](const CallReport& call) { return cell_if(call.roof.intensity != 0, call.roof.intensity); },
          "FLOPs / Bytes.", "one of the two is not known")
      .add(
          "Bound", kText, [](const CallReport& call) { return bound_name(call.roof.bound); },
          "`memory` below the device's ridge point, otherwise `compute`.", "a peak is not known");
  columns.add(
      "Tensor Cores", kText,
      [](const CallTableRow& row) { return row.cores ? Cell(tensor_cores_name(*row.cores)) : Cell(); },
      "`yes`, `no` or `unknown`: by the names of the kernels that take most of the time.", kNoShape);
}

void add_eligible(Columns<CallTableRow>& columns) {
  columns.add(
      "Eligible", kText,
      [](const CallTableRow& row) {
        if (row.call == nullptr) return Cell();
        const TensorEligibility& eligibility = row.call->eligibility;
        std::string text(eligible_name(eligibility.eligible));
        if (!eligibility.reason.empty()) text += ": " + eligibility.reason;
        return Cell(std::move(text));
      },
      "Whether the device's tensor cores could do it, given type, shape and alignment (gemm.md, shapes.md).",
      kNoShape);
}

void add_hint(Columns<CallTableRow>& columns) {
  columns.add(
      "Hint", kText,
      [](const CallTableRow& row) {
        return row.call == nullptr ? Cell() : Cell(join_hints(row.call->hints));
      },
      "What could be improved (gemm.md, shapes.md).", "no hint");
}

void add_kernel_names(Columns<CallTableRow>& columns) {
  columns.add("Kernel Names", kText, &CallTableRow::kernel_names,
              "In descending order of time, with the count where it is not one per call.",
              "`[no shape]`, `[no call]`");
}

}  // namespace inject
