// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/shape_tables.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "libinject/analysis/collective.h"
#include "libinject/analysis/gemm_hints.h"
#include "libinject/output/csv.h"

namespace inject {

namespace {

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

/// cublasLtEpilogue_t.
std::string epilogue_name(std::uint32_t epilogue) {
  constexpr std::pair<std::uint32_t, std::string_view> kNames[] = {{0, ""},
                                                                   {2, "ReLU"},
                                                                   {4, "bias"},
                                                                   {6, "ReLU bias"},
                                                                   {32, "GELU"},
                                                                   {36, "GELU bias"},
                                                                   {130, "ReLU aux"},
                                                                   {134, "ReLU aux bias"},
                                                                   {160, "GELU aux"},
                                                                   {164, "GELU aux bias"},
                                                                   {136, "dReLU"},
                                                                   {152, "dReLU bias gradient"},
                                                                   {192, "dGELU"},
                                                                   {208, "dGELU bias gradient"},
                                                                   {256, "bias gradient A"},
                                                                   {512, "bias gradient B"}};
  for (const auto& [value, name] : kNames) {
    if (value == epilogue) return std::string(name);
  }
  return std::to_string(epilogue);
}

/// Of the kernels of a row: used if those that take most of the time use them.
TensorCoreUse tensor_use(const CallShapeRow& row) {
  std::array<std::uint64_t, 3> time{};
  Operand operand = Operand::kUnknown;
  for (const auto& [name, share] : row.kernels) {
    const TensorCoreUse use = tensor_cores_of(name);
    time[static_cast<std::size_t>(use.cores)] += share.time;
    if (operand == Operand::kUnknown && use.cores == TensorCores::kUsed) operand = use.operand;
  }
  // Kernels that split sums are summed up by small ones of other kinds.
  const auto at = [&](TensorCores cores) { return time[static_cast<std::size_t>(cores)]; };
  if (at(TensorCores::kUsed) != 0 && at(TensorCores::kUsed) >= at(TensorCores::kUnknown))
    return {TensorCores::kUsed, operand};
  if (at(TensorCores::kNotUsed) > at(TensorCores::kUnknown)) return {TensorCores::kNotUsed, operand};
  return {};
}

std::string kernel_names(const CallShapeRow& row) {
  std::string names;
  for (const auto& [name, share] : row.kernels) {
    if (!names.empty()) names += "; ";
    names += name;
    if (share.count != row.entry.calls) names += " (" + std::to_string(share.count) + ")";
  }
  return names;
}

void size_cell(CsvRow& row, std::int64_t size, bool known) {
  if (known) {
    row.number(size);
  } else {
    row.empty();
  }
}

/// Calls whose kernels ran: what the GPU's time is a rate of.
std::uint64_t calls_on_gpu(const CallShapeEntry& entry) {
  const std::uint64_t executed = entry.calls - entry.captured;
  return std::min(executed, entry.gpu.count);
}

double rate_of(const CallShapeRow& row) {
  const std::uint64_t calls = calls_on_gpu(row.entry);
  if (calls == 0 || row.entry.gpu.sum == 0) return 0;
  // Operations per nanosecond; ends of calls that were cut have no operations of their own.
  return static_cast<double>(row.work.flops) * static_cast<double>(calls) /
         static_cast<double>(row.entry.gpu.sum);
}

void call_cells(CsvRow& row, const CallShapeEntry& entry) {
  row.number(entry.calls).number(entry.failed).number(entry.captured).number(entry.host.sum);
}

void gpu_cells(CsvRow& row, const CallShapeEntry& entry, std::uint64_t total) {
  row.decimal(percent(entry.gpu.sum, total), 1).number(entry.gpu.sum).decimal(entry.gpu.mean(), 1);
  row.number(entry.gpu.smallest()).number(entry.gpu.max).number(entry.kernels);
}

}  // namespace

DeviceSpecs specs_of(const RunInfo& run, std::uint32_t device) {
  const DeviceInfo* found = run.devices.empty() ? nullptr : &run.devices.front();
  for (const DeviceInfo& info : run.devices) {
    if (info.id == device) found = &info;
  }
  if (found == nullptr) return {};
  DeviceSpecs specs;
  specs.major = found->compute_major;
  specs.minor = found->compute_minor;
  specs.multiprocessors = found->multiprocessors;
  specs.clock_khz = found->clock_khz;
  specs.memory_clock_khz = found->memory_clock_khz;
  specs.bus_bits = found->memory_bus_bits;
  specs.half_rate_sums = sums_at_half_rate(found->name);
  return specs;
}

void gemm_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  std::vector<CallShapeRow> calls = statistics.call_shapes();
  std::erase_if(
      calls, [](const CallShapeRow& row) { return row.entry.other || row.shape.kind() != ShapeKind::kGemm; });
  std::uint64_t total = 0;
  std::vector<GemmRow> facts;
  for (const CallShapeRow& call : calls) {
    total += call.entry.gpu.sum;
    GemmRow& fact = facts.emplace_back();
    fact.shape = call.shape.as<GemmShape>();
    fact.calls = calls_on_gpu(call.entry);
    fact.gpu_ns = call.entry.gpu.sum;
    fact.hints = gemm_hints(fact.shape, tensor_use(call).cores, specs_of(run, call.entry.device));
  }
  add_row_hints(facts, specs_of(run, 0), statistics.iterations().step_times().count());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const CallShapeRow& call = calls[i];
    const GemmShape& shape = facts[i].shape;
    const DeviceSpecs specs = specs_of(run, call.entry.device);
    const bool sized = shape.groups <= 1 || shape.m != 0 || shape.n != 0 || shape.k != 0;
    const TensorCoreUse use = tensor_use(call);
    CsvRow row(text);
    row.text(call.function);
    size_cell(row, shape.m, sized);
    size_cell(row, shape.n, sized);
    size_cell(row, shape.k, sized);
    row.text(std::string_view(&shape.op_a, 1)).text(std::string_view(&shape.op_b, 1));
    row.text(data_type_name(shape.a)).text(data_type_name(shape.b)).text(data_type_name(shape.d));
    row.text(compute_type_name(shape.compute)).number(shape.batch);
    size_cell(row, shape.groups, shape.groups != 0);
    row.text(epilogue_name(shape.epilogue));
    size_cell(row, shape.lda, sized);
    size_cell(row, shape.ldb, sized);
    size_cell(row, shape.ldc, sized);
    call_cells(row, call.entry);
    gpu_cells(row, call.entry, total);
    row.number(shape.flops);
    const double rate = rate_of(call);  // GFLOP/s
    const auto arithmetic = gemm_arithmetic(shape, use.cores, specs);
    const auto peak = arithmetic ? peak_flops(specs, *arithmetic) : std::nullopt;
    if (rate == 0) {
      row.empty();
    } else {
      row.decimal(rate / 1e3, 3);
    }
    row.text(arithmetic ? arithmetic_name(*arithmetic) : std::string_view());
    if (rate == 0 || !peak) {
      row.empty();
    } else {
      row.decimal(100.0 * rate * 1e9 / *peak, 1);
    }
    row.number(shape.bytes);
    const Roofline roof = roofline(static_cast<double>(shape.flops), static_cast<double>(shape.bytes), peak,
                                   peak_bandwidth(specs));
    if (roof.intensity == 0) {
      row.empty();
    } else {
      row.decimal(roof.intensity, 2);
    }
    row.text(bound_name(roof.bound)).text(tensor_cores_name(use.cores));
    const TensorEligibility eligibility = tensor_eligibility(shape, specs);
    row.text(eligibility.reason.empty()
                 ? std::string(eligible_name(eligibility.eligible))
                 : std::string(eligible_name(eligibility.eligible)) + ": " + eligibility.reason);
    row.text(join_hints(facts[i].hints)).text(kernel_names(call)).end();
    sink(text);
  }
}

void nccl_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const std::vector<CollectiveRow> rows = statistics.collectives();
  std::uint64_t total = 0;
  for (const CollectiveRow& entry : rows) total += entry.gpu.sum;
  for (const CollectiveRow& entry : rows) {
    const CollectiveShape& shape = entry.shape;
    CsvRow row(text);
    const auto decimal = [&row](std::optional<double> value, int digits) {
      if (value) {
        row.decimal(*value, digits);
      } else {
        row.empty();
      }
    };
    row.text(entry.operation());
    if (entry.is_known()) {
      row.text(collective_type_name(shape.type)).text(reduction_name(shape.reduction)).number(shape.bytes);
      size_cell(row, shape.ranks, shape.ranks != 0);
      size_cell(row, shape.peer, shape.peer >= 0);
      row.text(entry.grouped()).number(entry.calls).number(entry.failed).number(entry.captured);
      row.number(entry.host_time);
    } else {
      row.empty().empty().empty().empty().empty().empty().empty().empty().empty().empty();
    }
    row.decimal(percent(entry.gpu.sum, total), 1).number(entry.gpu.sum).decimal(entry.gpu.mean(), 1);
    row.number(entry.gpu.smallest()).number(entry.gpu.max);
    decimal(entry.algorithm_bandwidth(), 3);
    decimal(entry.bus_bandwidth(), 3);
    const std::optional<double> overlap = entry.overlap();
    decimal(overlap ? std::optional(100.0 * *overlap) : std::nullopt, 1);
    row.number(entry.kernels);
    std::string names;
    for (const KernelTime& kernel : entry.names) {
      if (!names.empty()) names += "; ";
      names += kernel.name;
    }
    row.text(names).end();
    sink(text);
  }
}

void family_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const std::vector<FamilyRow> families = statistics.families();
  std::uint64_t total = 0;
  for (const FamilyRow& family : families) total += family.time.sum;
  for (const FamilyRow& family : families) {
    const Totals& time = family.time;
    CsvRow row(text);
    row.decimal(percent(time.sum, total), 1).number(time.sum).number(time.count).decimal(time.mean(), 1);
    row.number(time.smallest()).number(time.max).number(family.names);
    row.decimal(percent(family.attributed, time.sum), 1)
        .decimal(percent(family.on_tensor_cores, time.sum), 1);
    row.decimal(percent(family.unknown_cores, time.sum), 1).number(family.flops);
    if (family.flops == 0 || time.sum == 0) {
      row.empty();
    } else {
      row.decimal(static_cast<double>(family.flops) / static_cast<double>(time.sum) / 1e3, 3);
    }
    row.text(family_name(family.family)).end();
    sink(text);
  }
}

}  // namespace inject
