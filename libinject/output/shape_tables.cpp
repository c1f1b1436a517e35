// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/shape_tables.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libinject/analysis/collective.h"
#include "libinject/analysis/gemm_hints.h"
#include "libinject/analysis/shape_text.h"
#include "libinject/output/csv.h"
#include "libinject/output/table_cells.h"

namespace inject {

namespace {

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
    if (share.count != row.entry.executed()) names += " (" + std::to_string(share.count) + ")";
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
  return std::min(entry.executed(), entry.gpu.count);
}

double rate_of(const CallShapeRow& row) {
  const std::uint64_t calls = calls_on_gpu(row.entry);
  if (calls == 0 || row.entry.gpu.sum == 0) return 0;
  // Operations per nanosecond; ends of calls that were cut have no operations of their own.
  return static_cast<double>(row.work.flops) * static_cast<double>(calls) /
         static_cast<double>(row.entry.gpu.sum);
}

void call_cells(CsvRow& row, const CallShapeEntry& entry) {
  row.number(entry.calls).number(entry.failed).number(entry.captured).number(entry.replayed);
  row.number(entry.host.sum);
}

void gpu_cells(CsvRow& row, const CallShapeEntry& entry, std::uint64_t total) {
  row.decimal(percent(entry.gpu.sum, total), 1).number(entry.gpu.sum).decimal(entry.gpu.mean(), 1);
  row.number(entry.gpu.smallest()).number(entry.gpu.max).number(entry.kernels);
}

/// What the kernels say they multiply, else what the call's types let them. A product's are its own.
std::optional<Arithmetic> arithmetic_of(const CallShapeRow& call, TensorCoreUse use,
                                        const DeviceSpecs& specs) {
  if (use.cores == TensorCores::kUsed && call.shape.kind() != ShapeKind::kGemm) {
    auto told = inject::arithmetic_of(use);
    if (told == Arithmetic::kFp16Tensor && call.work.compute == ComputeType::kF16)
      told = Arithmetic::kFp16TensorFp16Sums;  // names don't tell them apart
    if (told) return told;
  }
  return inject::arithmetic_of(call.work, use.cores, specs);
}

Roofline roofline_of(const CallShapeRow& call, std::optional<double> peak, const DeviceSpecs& specs) {
  return roofline(static_cast<double>(call.work.flops), static_cast<double>(call.work.bytes), peak,
                  peak_bandwidth(specs));
}

PeakShare peak_share(const CallShapeRow& call, TensorCoreUse use, const DeviceSpecs& specs) {
  const double rate = rate_of(call);  // GFLOP/s
  const std::optional<Arithmetic> arithmetic = arithmetic_of(call, use, specs);
  const auto peak = arithmetic ? peak_flops(specs, *arithmetic) : std::nullopt;
  if (rate == 0 || !peak || call.entry.kernels == 0) return {};
  const double each = static_cast<double>(call.entry.gpu.sum) / static_cast<double>(call.entry.kernels);
  return possible_share(rate * 1e9 / *peak, each);
}

/// FLOPs to Bound, of a call; the rate of all of them.
void work_cells(CsvRow& row, const CallShapeRow& call, TensorCoreUse use, const DeviceSpecs& specs) {
  if (call.work.flops_known) {
    row.number(call.work.flops);
  } else {
    row.empty();
  }
  const double rate = rate_of(call);  // GFLOP/s
  const std::optional<Arithmetic> arithmetic = arithmetic_of(call, use, specs);
  const auto peak = arithmetic ? peak_flops(specs, *arithmetic) : std::nullopt;
  if (rate == 0) {
    row.empty();
  } else {
    row.decimal(rate / 1e3, 3);
  }
  row.text(arithmetic ? arithmetic_name(*arithmetic) : std::string_view());
  if (const PeakShare share = peak_share(call, use, specs); share.value) {
    row.decimal(100.0 * *share.value, 1);
  } else {
    row.empty();
  }
  if (call.work.bytes == 0) {
    row.empty();
  } else {
    row.number(call.work.bytes);
  }
  const Roofline roof = roofline_of(call, peak, specs);
  if (roof.intensity == 0) {
    row.empty();
  } else {
    row.decimal(roof.intensity, 2);
  }
  row.text(bound_name(roof.bound));
}

std::string_view one_of(std::initializer_list<std::string_view> names, unsigned index) {
  return index < names.size() ? names.begin()[index] : std::string_view();
}

std::string_view convolution_algorithm(const CallShapeRow& call, const ConvolutionShape& shape) {
  ConvolutionAlgorithm algorithm = convolution_algorithm_of(shape);
  for (const auto& [name, share] : call.kernels) {
    if (algorithm == ConvolutionAlgorithm::kOther) algorithm = convolution_algorithm_of(name);
  }
  return algorithm == ConvolutionAlgorithm::kOther ? std::string_view() : algorithm_name(algorithm);
}

/// The rows of one kind, and the GPU's time for all of them.
struct KindRows {
  std::vector<CallShapeRow> calls;
  std::vector<CallShapeRow> others;
  UnshapedWork unshaped;
  std::uint64_t total = 0;

  KindRows(const Statistics& statistics, ShapeKind kind) {
    for (const CallShapeRow& call : statistics.call_shapes()) {
      if (call.entry.other) {
        if (kind_of(function_category(call.entry.function)) == kind) others.push_back(call);
      } else if (call.shape.kind() == kind) {
        calls.push_back(call);
      }
    }
    for (const auto* rows : {&calls, &others}) {
      for (const CallShapeRow& call : *rows) total += call.entry.gpu.sum;
    }
  }

  /// The table that a call of this category most likely belongs to.
  static ShapeKind kind_of(Category category) {
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

  void add(const UnshapedWork& work) {
    unshaped = work;
    total += work.in_calls.sum + work.by_itself.sum;
  }

  /// What has no shape, after all that has one. `header`: all tables have the columns from Calls to Kernels.
  void write_rest(std::string_view header, std::string& text, const TextSink& sink) const {
    const auto columns = [](std::string_view names) { return std::count(names.begin(), names.end(), ','); };
    const auto before = columns(header.substr(0, header.find(",Calls,")));
    const auto after = columns(header.substr(header.find(",Kernels,"))) - 2;
    for (const CallShapeRow& call : others) {
      CsvRow row(text);
      row.text("[other]");
      for (auto i = before; i-- > 0;) row.empty();
      call_cells(row, call.entry);
      gpu_cells(row, call.entry, total);
      for (auto i = after; i-- > 0;) row.empty();
      row.text(kernel_names(call)).end();
      sink(text);
    }
    for (const auto& [name, work] :
         {std::pair("[no shape]", &unshaped.in_calls), std::pair("[no call]", &unshaped.by_itself)}) {
      if (work->count == 0) continue;
      CsvRow row(text);
      row.text(name);
      for (auto i = before + 5; i-- > 0;) row.empty();
      row.decimal(percent(work->sum, total), 1).number(work->sum).decimal(work->mean(), 1);
      row.number(work->smallest()).number(work->max).number(work->count);
      for (auto i = after + 1; i-- > 0;) row.empty();
      row.end();
      sink(text);
    }
  }
};

void number_cell(CsvRow& row, std::int64_t value) {
  size_cell(row, value, value >= 0);
}

// As NCCL writes those in its log. Not a number to anything that reads tables, which would round it.
std::string communicator_text(std::uint64_t id) {
  if (id == 0) return {};
  std::array<char, 24> digits{};
  std::snprintf(digits.data(), digits.size(), "0x%016llx", static_cast<unsigned long long>(id));
  return digits.data();
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
  specs.product = product_of(specs.major, specs.minor, found->name);
  return specs;
}

PeakShare peak_share(const CallShapeRow& call, const DeviceSpecs& specs) {
  return call.entry.other ? PeakShare() : peak_share(call, tensor_use(call), specs);
}

Bound bound_of(const CallShapeRow& call, const DeviceSpecs& specs) {
  if (call.entry.other || call.work.flops == 0 || call.work.bytes == 0) return Bound::kUnknown;
  const std::optional<Arithmetic> arithmetic = arithmetic_of(call, tensor_use(call), specs);
  return roofline_of(call, arithmetic ? peak_flops(specs, *arithmetic) : std::nullopt, specs).bound;
}

void gemm_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  KindRows rows(statistics, ShapeKind::kGemm);
  rows.add(statistics.unshaped_work([](Family family) { return family == Family::kGemm; }));
  const std::vector<CallShapeRow>& calls = rows.calls;
  std::vector<GemmRow> facts;
  for (const CallShapeRow& call : calls) {
    GemmRow& fact = facts.emplace_back();
    fact.shape = call.shape.as<GemmShape>();
    fact.calls = calls_on_gpu(call.entry);
    fact.gpu_ns = call.entry.gpu.sum;
    fact.shared = call.entry.shared;
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
    gpu_cells(row, call.entry, rows.total);
    work_cells(row, call, use, specs);
    row.text(tensor_cores_name(use.cores));
    const TensorEligibility eligibility = tensor_eligibility(shape, specs);
    row.text(eligibility.reason.empty()
                 ? std::string(eligible_name(eligibility.eligible))
                 : std::string(eligible_name(eligibility.eligible)) + ": " + eligibility.reason);
    row.text(join_hints(facts[i].hints)).text(kernel_names(call)).end();
    sink(text);
  }
  rows.write_rest(kGemmHeader, text, sink);
}

void conv_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  KindRows rows(statistics, ShapeKind::kConvolution);
  rows.add(statistics.unshaped_work(is_convolution));
  for (const CallShapeRow& call : rows.calls) {
    const auto shape = call.shape.as<ConvolutionShape>();
    const DeviceSpecs specs = specs_of(run, call.entry.device);
    const TensorCoreUse use = tensor_use(call);
    const auto size_of = [&](const std::array<std::uint32_t, 3>& values, unsigned i) {
      return i + shape.dimensions >= 3 ? std::int64_t{values[i]} : -1;
    };
    CsvRow row(text);
    row.text(call.function).text(convolution_direction_name(shape.direction));
    row.number(shape.n).number(shape.c);
    for (unsigned i = 0; i < 3; ++i) number_cell(row, size_of(shape.in, i));
    row.number(shape.k);
    for (unsigned i = 0; i < 3; ++i) number_cell(row, size_of(shape.filter, i));
    row.text(spatial_text(shape.stride, shape.dimensions)).text(spatial_text(shape.pad, shape.dimensions));
    row.text(spatial_text(shape.dilation, shape.dimensions))
        .number(shape.groups)
        .text(layout_name(shape.layout, shape.dimensions));
    row.text(data_type_name(shape.x)).text(data_type_name(shape.w)).text(data_type_name(shape.y));
    row.text(compute_type_name(shape.compute)).text(operations_text(shape.fused));
    number_cell(row, shape.engine);
    row.text(convolution_algorithm(call, shape));
    call_cells(row, call.entry);
    gpu_cells(row, call.entry, rows.total);
    work_cells(row, call, use, specs);
    row.text(tensor_cores_name(use.cores)).text(kernel_names(call)).end();
    sink(text);
  }
  rows.write_rest(kConvHeader, text, sink);
}

void attention_rows(const Statistics& statistics, const RunInfo& run, std::string& text,
                    const TextSink& sink) {
  KindRows rows(statistics, ShapeKind::kAttention);
  const auto own = statistics.unshaped_kernels(Family::kAttention);
  for (const auto& [name, time] : own) rows.total += time.sum;
  const auto flag = [](const AttentionShape& shape, AttentionFlags bit) {
    return (shape.flags & bit) != 0 ? 1 : 0;
  };
  for (const CallShapeRow& call : rows.calls) {
    const auto shape = call.shape.as<AttentionShape>();
    const DeviceSpecs specs = specs_of(run, call.entry.device);
    const TensorCoreUse use = tensor_use(call);
    CsvRow row(text);
    row.text("library call").text(call.function).text(attention_direction_name(shape.direction));
    row.number(shape.batch).number(shape.heads).number(shape.kv_heads).number(shape.query_length);
    row.number(shape.key_length).number(shape.head_size).number(shape.value_head_size);
    row.number(flag(shape, kAttentionCausal)).number(flag(shape, kAttentionBias));
    row.number(flag(shape, kAttentionDropout)).number(flag(shape, kAttentionRagged));
    row.text(data_type_name(shape.type)).text(compute_type_name(shape.compute));
    number_cell(row, shape.engine);
    call_cells(row, call.entry);
    gpu_cells(row, call.entry, rows.total);
    work_cells(row, call, use, specs);
    row.text(tensor_cores_name(use.cores)).text(kernel_names(call)).end();
    sink(text);
  }
  rows.write_rest(kAttentionHeader, text, sink);
  // Kernels of no call that is known for attention: all that is known of them is their names.
  for (const auto& [name, time] : own) {
    CsvRow row(text);
    row.text("kernel name");
    for (int i = 0; i < 21; ++i) row.empty();
    row.decimal(percent(time.sum, rows.total), 1).number(time.sum).decimal(time.mean(), 1);
    row.number(time.smallest()).number(time.max).number(time.count);
    for (int i = 0; i < 7; ++i) row.empty();
    row.text(tensor_cores_name(tensor_cores_of(name).cores)).text(name).end();
    sink(text);
  }
}

void rnn_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink) {
  KindRows rows(statistics, ShapeKind::kRnn);
  rows.add(statistics.unshaped_work([](Family family) { return family == Family::kRnnCell; }));
  for (const CallShapeRow& call : rows.calls) {
    const auto shape = call.shape.as<RnnShape>();
    const DeviceSpecs specs = specs_of(run, call.entry.device);
    const TensorCoreUse use = tensor_use(call);
    CsvRow row(text);
    row.text(call.function).text(rnn_direction_name(shape.direction));
    row.text(rnn_cell_name(shape.cell)).number(shape.layers);
    row.number(shape.bidirectional != 0 ? 2 : 1).number(shape.input_size).number(shape.hidden_size);
    row.number(shape.projection_size).number(shape.length).number(shape.batch).number(shape.steps);
    row.text(data_type_name(shape.type)).text(compute_type_name(shape.compute));
    row.text(rnn_algorithm_name(shape.algorithm));
    row.text(one_of({"", "default", "tensor operations", "tensor operations, conversion allowed", "FMA"},
                    shape.tensor_math));
    call_cells(row, call.entry);
    gpu_cells(row, call.entry, rows.total);
    work_cells(row, call, use, specs);
    row.text(tensor_cores_name(use.cores)).text(kernel_names(call)).end();
    sink(text);
  }
  rows.write_rest(kRnnHeader, text, sink);
}

void norm_rows(const Statistics& statistics, const RunInfo&, std::string& text, const TextSink& sink) {
  const KindRows rows(statistics, ShapeKind::kNormalization);
  for (const CallShapeRow& call : rows.calls) {
    const auto shape = call.shape.as<NormalizationShape>();
    CsvRow row(text);
    row.text(call.function).text(normalization_direction_name(shape.direction));
    row.text(normalization_mode_name(shape.mode));
    std::string size;
    for (unsigned i = 0; i < shape.size.size() && i < shape.dimensions; ++i)
      size += (i == 0 ? "" : "x") + std::to_string(shape.size[i]);
    row.text(size)
        .text(layout_name(shape.layout,
                          static_cast<std::uint8_t>(shape.dimensions < 2 ? 0 : shape.dimensions - 2)))
        .text(data_type_name(shape.type));
    row.text(operations_text(shape.fused));
    call_cells(row, call.entry);
    gpu_cells(row, call.entry, rows.total);
    row.text(kernel_names(call)).end();
    sink(text);
  }
  rows.write_rest(kNormHeader, text, sink);
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
      row.number(entry.replayed).number(entry.host_time);
    } else {
      for (int i = 0; i < 11; ++i) row.empty();
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
    row.text(names).text(communicator_text(shape.communicator)).end();
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
