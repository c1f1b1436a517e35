// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/call_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "libinject/analysis/call_hints.h"
#include "libinject/report/device_specs.h"

namespace inject {

namespace {

/// True if a row's kernels use tensor cores: if those that take the most time do.
TensorCoreUse tensor_use(const CallShapeRow& row) {
  std::array<std::uint64_t, 3> time{};
  Operand operand = Operand::kUnknown;
  for (const auto& [name, share] : row.kernels) {
    const TensorCoreUse use = tensor_cores_of(name);
    time[static_cast<std::size_t>(use.cores)] += share.time;
    if (operand == Operand::kUnknown && use.cores == TensorCores::kUsed) operand = use.operand;
  }
  // Small kernels of other kinds add up the partial sums of split-K kernels.
  const auto at = [&](TensorCores cores) { return time[static_cast<std::size_t>(cores)]; };
  if (at(TensorCores::kUsed) != 0 && at(TensorCores::kUsed) >= at(TensorCores::kUnknown))
    return {TensorCores::kUsed, operand};
  if (at(TensorCores::kNotUsed) > at(TensorCores::kUnknown)) return {TensorCores::kNotUsed, operand};
  return {};
}

/// What the kernels multiply according to their names, else what the call's types allow. For a matrix
/// product, the call's types decide.
std::optional<Arithmetic> arithmetic_of_call(const CallShapeRow& call, TensorCoreUse use,
                                             const DeviceSpecs& specs) {
  if (use.cores == TensorCores::kUsed && call.shape.kind() != ShapeKind::kGemm) {
    auto arithmetic = arithmetic_of(use);
    if (arithmetic == Arithmetic::kFp16Tensor && call.work.compute == ComputeType::kF16)
      arithmetic = Arithmetic::kFp16TensorFp16Sums;  // their names are the same
    if (arithmetic) return arithmetic;
  }
  return arithmetic_of(call.work, use.cores, specs);
}

TensorEligibility eligibility_of(const CallShapeRow& call, const DeviceSpecs& specs) {
  const CallShape& shape = call.shape;
  switch (shape.kind()) {
    case ShapeKind::kGemm:
      return tensor_eligibility(shape.as<GemmShape>(), specs);
    case ShapeKind::kConvolution:
      return tensor_eligibility(shape.as<ConvolutionShape>(), specs);
    case ShapeKind::kAttention:
      return tensor_eligibility(shape.as<AttentionShape>(), specs);
    case ShapeKind::kRnn:
      return tensor_eligibility(shape.as<RnnShape>(), specs);
    default:
      return {};
  }
}

CallReport report_of(const CallShapeRow& call, const DeviceSpecs& specs) {
  CallReport report;
  report.call = &call;
  report.use = tensor_use(call);
  report.calls_on_gpu = std::min(call.entry.executed(), call.entry.gpu.count);
  if (call.entry.other) return report;
  report.eligibility = eligibility_of(call, specs);
  report.arithmetic = arithmetic_of_call(call, report.use, specs);
  const auto peak = report.arithmetic ? peak_flops(specs, *report.arithmetic) : std::nullopt;
  // Kernels of calls cut by a window's edge have no operations of their own.
  if (call.entry.is_timed() && report.calls_on_gpu != 0 && call.entry.gpu.sum != 0 && call.work.flops != 0) {
    report.rate = static_cast<double>(call.work.flops) * static_cast<double>(report.calls_on_gpu) /
                  (static_cast<double>(call.entry.gpu.sum) * 1e-9);
    const double each = static_cast<double>(call.entry.gpu.sum) / static_cast<double>(call.entry.kernels);
    if (peak && call.entry.kernels != 0) report.peak_share = possible_share(*report.rate / *peak, each);
    if (report.peak_share.impossible) report.rate.reset();
  }
  report.roof = roofline(static_cast<double>(call.work.flops), static_cast<double>(call.work.bytes), peak,
                         peak_bandwidth(specs));
  return report;
}

/// The calls whose shape is a `Shape`, by device: hints compare rates.
template <typename Shape>
std::map<std::uint32_t, std::vector<CallReport*>> reports_of(std::vector<CallReport>& calls) {
  std::map<std::uint32_t, std::vector<CallReport*>> found;
  for (CallReport& call : calls) {
    if (!call.call->entry.other && call.call->shape.kind() == Shape::kKind)
      found[call.call->entry.device].push_back(&call);
  }
  return found;
}

void add_gemm_hints(std::vector<CallReport>& calls, const Statistics& statistics, const RunInfo& run) {
  for (const auto& [device, products] : reports_of<GemmShape>(calls)) {
    const DeviceSpecs specs = specs_of(run, device);
    std::vector<GemmRow> rows;
    for (const CallReport* call : products) {
      GemmRow& row = rows.emplace_back();
      row.shape = call->call->shape.as<GemmShape>();
      row.shape.flops = call->call->work.flops;
      row.shape.bytes = call->call->work.bytes;
      row.calls = call->calls_on_gpu;
      row.gpu_ns = call->call->entry.is_timed() ? call->call->entry.gpu.sum : 0;
      row.shared = call->call->entry.shared;
      row.hints = gemm_hints(row.shape, call->use.cores, specs);
    }
    add_row_hints(rows, specs, statistics.iterations().step_times().count());
    for (std::size_t i = 0; i < rows.size(); ++i) products[i]->hints = std::move(rows[i].hints);
  }
}

/// The share of the kernels' time spent in those that change the layout of tensors.
double layout_share(const CallShapeRow& call) {
  std::uint64_t time = 0;
  std::uint64_t all = 0;
  for (const auto& [name, share] : call.kernels) {
    all += share.time;
    if (changes_layout(name)) time += share.time;
  }
  return all == 0 ? 0 : static_cast<double>(time) / static_cast<double>(all);
}

bool is_convolution_in_tf32(const CallReport& call) {
  if (call.call->entry.other || call.call->shape.kind() != ShapeKind::kConvolution) return false;
  const auto shape = call.call->shape.as<ConvolutionShape>();
  // An engine's compute type is what it uses; an older function's is what it may use.
  return shape.compute == ComputeType::kF32Tf32 &&
         (shape.legacy == 0 || call.use.cores == TensorCores::kUsed);
}

void add_convolution_hints(std::vector<CallReport>& calls, const RunInfo& run) {
  // Allowed for the whole process, whatever the device.
  const bool tf32_is_used = std::any_of(calls.begin(), calls.end(), &is_convolution_in_tf32);
  for (const auto& [device, convolutions] : reports_of<ConvolutionShape>(calls)) {
    const DeviceSpecs specs = specs_of(run, device);
    for (CallReport* call : convolutions) {
      call->hints = convolution_hints(
          call->call->shape.as<ConvolutionShape>(),
          {call->use.cores, call->roof.bound, layout_share(*call->call), tf32_is_used}, specs);
    }
  }
}

void add_rnn_hints(std::vector<CallReport>& calls, const RunInfo& run) {
  for (const auto& [device, layers] : reports_of<RnnShape>(calls)) {
    std::vector<RnnRow> rows;
    for (const CallReport* call : layers) {
      const auto shape = call->call->shape.as<RnnShape>();
      rows.push_back(
          {shape, call->rate.value_or(0), rnn_hints(shape, call->use.cores, specs_of(run, device))});
    }
    add_algorithm_hints(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) layers[i]->hints = std::move(rows[i].hints);
  }
}

}  // namespace

CallReport call_report(const CallShapeRow& call, const RunInfo& run) {
  return report_of(call, specs_of(run, call.entry.device));
}

std::vector<CallReport> call_reports(const Statistics& statistics, const RunInfo& run) {
  std::vector<CallReport> reports;
  for (const CallShapeRow& call : statistics.call_shapes()) reports.push_back(call_report(call, run));
  add_gemm_hints(reports, statistics, run);
  add_convolution_hints(reports, run);
  add_rnn_hints(reports, run);
  return reports;
}

}  // namespace inject
