// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/shape_tables.h"

#include <array>
#include <cstdio>
#include <initializer_list>
#include <utility>

#include "libinject/analysis/collective.h"
#include "libinject/analysis/gemm_hints.h"
#include "libinject/analysis/shape_text.h"

namespace inject {

namespace {

using namespace units;

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

std::string kernel_names(const CallShapeRow& row) {
  std::string names;
  for (const auto& [name, share] : row.kernels) {
    if (!names.empty()) names += "; ";
    names += name;
    if (share.count != row.entry.executed()) names += " (" + std::to_string(share.count) + ")";
  }
  return names;
}

std::string_view one_of(std::initializer_list<std::string_view> names, unsigned index) {
  return index < names.size() ? names.begin()[index] : std::string_view();
}

// As NCCL writes those in its log. Not a number to anything that reads tables, which would round it.
std::string communicator_text(std::uint64_t id) {
  if (id == 0) return {};
  std::array<char, 24> digits{};
  std::snprintf(digits.data(), digits.size(), "0x%016llx", static_cast<unsigned long long>(id));
  return digits.data();
}

/// The table that a call of this category most likely belongs to.
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

CallTableRow row_of_kernels(std::string_view name, const Totals& kernels) {
  CallTableRow row;
  row.name = name;
  row.gpu = kernels;
  row.kernels = kernels.count;
  return row;
}

/// Calls of one kind, then what has no shape.
std::vector<CallTableRow> rows_of(const Report& report, ShapeKind kind, const UnshapedWork& unshaped = {}) {
  std::vector<CallTableRow> rows;
  for (const CallReport& call : report.calls) {
    if (!call.call->entry.other && call.call->shape.kind() == kind) rows.push_back(row_of(call));
  }
  for (const CallReport& call : report.calls) {
    if (call.call->entry.other && kind_of(function_category(call.call->entry.function)) == kind)
      rows.push_back(row_of(call));
  }
  if (unshaped.in_calls.count != 0) rows.push_back(row_of_kernels("[no shape]", unshaped.in_calls));
  if (unshaped.by_itself.count != 0) rows.push_back(row_of_kernels("[no call]", unshaped.by_itself));
  return rows;
}

std::vector<CallTableRow> with_total(std::vector<CallTableRow> rows) {
  std::uint64_t total = 0;
  for (const CallTableRow& row : rows) total += row.gpu.sum;
  for (CallTableRow& row : rows) row.total = total;
  return rows;
}

constexpr std::string_view kUnknown = "`[unknown]`: kernels of no call that is known";
constexpr std::string_view kNoShape = "rows in brackets: no one shape is known";

/// A column of what the calls' arguments say. `of`: from the shape.
template <typename Shape>
class ShapeColumns {
 public:
  explicit ShapeColumns(Columns<CallTableRow>& columns) : columns_(columns) {}

  template <typename Function>
  void add(std::string header, const Unit& unit, Function of, std::string_view meaning,
           std::string_view empty = kNoShape) {
    columns_.add(
        std::move(header), unit,
        [of](const CallTableRow& row) {
          return row.call == nullptr ? Cell() : Cell(of(row.call->call->shape.template as<Shape>()));
        },
        meaning, empty);
  }
  /// A member that is shown as it is.
  template <typename Member>
  void count(std::string header, Member Shape::*member, std::string_view meaning) {
    add(
        std::move(header), kCount, [member](const Shape& shape) { return shape.*member; }, meaning);
  }
  void type(std::string header, DataType Shape::*member, std::string_view meaning) {
    add(
        std::move(header), kText, [member](const Shape& shape) { return data_type_name(shape.*member); },
        meaning);
  }
  void compute() {
    add(
        "Compute Type", kText, [](const Shape& shape) { return compute_type_name(shape.compute); },
        "What sums are made in.");
  }
  void engine() {
    add(
        "Engine", kNumber, [](const Shape& shape) { return cell_if(shape.engine >= 0, shape.engine); },
        "Number of cuDNN's engine.", "rows in brackets; not known");
  }

 private:
  Columns<CallTableRow>& columns_;
};

void add_name(Columns<CallTableRow>& columns) {
  columns.add(
      "API", kText, [](const CallTableRow& row) { return row.name; },
      "The function whose arguments were read. `[other]`: calls of shapes beyond 10,000; `[no shape]`: "
      "kernels "
      "of calls whose arguments are not known; `[no call]`: kernels of this kind launched in no library "
      "call.",
      "the calls' own records were lost");
}

/// Calls to Kernels.
void add_call_columns(Columns<CallTableRow>& columns) {
  const auto count = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning) {
    columns.add(
        std::move(header), unit,
        [of](const CallTableRow& row) { return row.entry == nullptr ? Cell() : Cell(of(*row.entry)); },
        meaning, "`[no shape]`, `[no call]`: no calls are known");
  };
  count(
      "Calls", kCount, [](const CallShapeEntry& entry) { return entry.calls; },
      "Calls that the library accepted.");
  count(
      "Failed Calls", kCount, [](const CallShapeEntry& entry) { return entry.failed; },
      "Calls that it rejected.");
  count(
      "Captured Calls", kCount, [](const CallShapeEntry& entry) { return entry.captured; },
      "Of Calls, those whose work went into a CUDA graph: they ran nothing themselves.");
  count(
      "Replayed Calls", kCount, [](const CallShapeEntry& entry) { return entry.replayed; },
      "Captured calls that graph launches ran, once for each launch (graphs.md).");
  count(
      "Host Time (ns)", kTime, [](const CallShapeEntry& entry) { return entry.host.sum; },
      "Time in all calls, failed ones included.");
  columns
      .add(
          "GPU Time (%)", kPercent, [](const CallTableRow& row) { return percent(row.gpu.sum, row.total); },
          "Share of the table's GPU time.")
      .add(
          "GPU Time (ns)", kTime, [](const CallTableRow& row) { return row.gpu.sum; },
          "Sum of the durations of the calls' kernels.")
      .add(
          "GPU Avg (ns)", kMeanTime, [](const CallTableRow& row) { return row.gpu.mean(); },
          "Mean of a call's kernels together; without calls, of a kernel.")
      .add(
          "GPU Min (ns)", kTime, [](const CallTableRow& row) { return row.gpu.smallest(); },
          "The least of them.")
      .add(
          "GPU Max (ns)", kTime, [](const CallTableRow& row) { return row.gpu.max; }, "The most of them.")
      .add(
          "Kernels", kCount, [](const CallTableRow& row) { return row.kernels; }, "Kernels that ran.");
}

/// FLOPs to Tensor Cores.
void add_rate_columns(Columns<CallTableRow>& columns) {
  const auto add = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning,
                              std::string_view empty) {
    columns.add(
        std::move(header), unit,
        [of](const CallTableRow& row) { return row.call == nullptr ? Cell() : Cell(of(*row.call)); }, meaning,
        empty);
  };
  add(
      "FLOPs", kFlops,
      [](const CallReport& call) { return cell_if(call.call->work.flops_known, call.call->work.flops); },
      "Of one call, a multiply-add counting two; normalizations, activations and biases count nothing.",
      "rows in brackets: no one shape is known; more than 64 bits hold");
  add(
      "TFLOP/s", kTeraflops,
      [](const CallReport& call) { return call.rate ? Cell(*call.rate / 1e12) : Cell(); },
      "FLOPs of the calls whose kernels ran by their GPU time.", "no FLOPs, or no GPU time");
  add(
      "Peak", kText,
      [](const CallReport& call) {
        return call.arithmetic ? Cell(arithmetic_name(*call.arithmetic)) : Cell();
      },
      "The arithmetic whose peak the rate is held against (peaks.md).", "not known");
  add(
      "Peak (%)", kRateShare, [](const CallReport& call) { return percent(call.peak_share.value); },
      "TFLOP/s by that peak.", "the rate or the peak is not known; a share that can't be (peaks.md)");
  add(
      "Bytes", kBytes,
      [](const CallReport& call) { return cell_if(call.call->work.bytes != 0, call.call->work.bytes); },
      "Operands read and results written once, of one call.", "not known");
  add(
      "FLOP/Byte", kIntensity,
      [](const CallReport& call) { return cell_if(call.roof.intensity != 0, call.roof.intensity); },
      "FLOPs by Bytes.", "one of them is not known");
  add(
      "Bound", kText, [](const CallReport& call) { return bound_name(call.roof.bound); },
      "`memory` below the device's ridge, else `compute`.", "a peak is not known");
  columns.add(
      "Tensor Cores", kText,
      [](const CallTableRow& row) { return row.cores ? Cell(tensor_cores_name(*row.cores)) : Cell(); },
      "`yes`, `no` or `unknown`: by the names of the kernels that take most of the time.", kNoShape);
}

void add_kernel_names(Columns<CallTableRow>& columns) {
  columns.add(
      "Kernel Names", kText, [](const CallTableRow& row) { return std::string_view(row.kernel_names); },
      "By descending time, with the number where it is not one a call.", "`[no shape]`, `[no call]`");
}

}  // namespace

Columns<CallTableRow> gemm_columns(const Report&) {
  Columns<CallTableRow> columns;
  add_name(columns);
  ShapeColumns<GemmShape> shape(columns);
  const auto size = [&shape](std::string header, auto member, std::string_view meaning) {
    shape.add(
        std::move(header), kCount,
        [member](const GemmShape& gemm) {
          const bool sized = gemm.groups <= 1 || gemm.m != 0 || gemm.n != 0 || gemm.k != 0;
          return cell_if(sized, gemm.*member);
        },
        meaning, "rows in brackets; groups of products of different sizes");
  };
  size("M", &GemmShape::m,
       "Rows of op(A) and of the result, column-major as the library has them (gemm.md).");
  size("N", &GemmShape::n, "Columns of op(B) and of the result.");
  size("K", &GemmShape::k, "Columns of op(A), rows of op(B).");
  shape.add(
      "Op A", kText, [](const GemmShape& gemm) { return std::string(1, gemm.op_a); }, "`N`, `T` or `C`.");
  shape.add(
      "Op B", kText, [](const GemmShape& gemm) { return std::string(1, gemm.op_b); }, "`N`, `T` or `C`.");
  shape.type("Type A", &GemmShape::a, "Elements of A.");
  shape.type("Type B", &GemmShape::b, "Elements of B.");
  shape.type("Type C", &GemmShape::d, "Elements of the result.");
  shape.compute();
  shape.count("Batch", &GemmShape::batch, "Products of one call.");
  shape.add(
      "Groups", kCount, [](const GemmShape& gemm) { return cell_if(gemm.groups != 0, gemm.groups); },
      "Groups of a grouped product.", "not a grouped product");
  shape.add(
      "Epilogue", kText, [](const GemmShape& gemm) { return epilogue_name(gemm.epilogue); },
      "What cuBLASLt does to the result.", "nothing");
  size("Lda", &GemmShape::lda, "Leading dimension of A.");
  size("Ldb", &GemmShape::ldb, "Leading dimension of B.");
  size("Ldc", &GemmShape::ldc, "Leading dimension of the result.");
  add_call_columns(columns);
  add_rate_columns(columns);
  columns
      .add(
          "Eligible", kText,
          [](const CallTableRow& row) {
            if (row.call == nullptr) return Cell();
            const TensorEligibility& eligibility = row.call->eligibility;
            std::string text(eligible_name(eligibility.eligible));
            if (!eligibility.reason.empty()) text += ": " + eligibility.reason;
            return Cell(std::move(text));
          },
          "Whether tensor cores of the device could do it, by type, shape and alignment (gemm.md).", kNoShape)
      .add(
          "Hint", kText,
          [](const CallTableRow& row) {
            return row.call == nullptr ? Cell() : Cell(join_hints(row.call->hints));
          },
          "What could be better (gemm.md).", "nothing");
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> gemm_rows(const Report& report) {
  return with_total(rows_of(report, ShapeKind::kGemm, report.statistics->unshaped_work([](Family family) {
    return family == Family::kGemm;
  })));
}

Columns<CallTableRow> conv_columns(const Report&) {
  Columns<CallTableRow> columns;
  add_name(columns);
  ShapeColumns<ConvolutionShape> shape(columns);
  const auto size = [&shape](std::string header, auto member, unsigned place, std::string_view meaning) {
    shape.add(
        std::move(header), kCount,
        [member, place](const ConvolutionShape& convolution) {
          return cell_if(place + convolution.dimensions >= 3, (convolution.*member)[place]);
        },
        meaning, "rows in brackets; fewer dimensions");
  };
  const auto spatial = [&shape](std::string header, auto member, std::string_view meaning) {
    shape.add(
        std::move(header), kText,
        [member](const ConvolutionShape& convolution) {
          return spatial_text(convolution.*member, convolution.dimensions);
        },
        meaning);
  };
  shape.add(
      "Direction", kText,
      [](const ConvolutionShape& convolution) { return convolution_direction_name(convolution.direction); },
      "Forward, or what is computed backward: the gradient of the data or of the filter.");
  shape.count("N", &ConvolutionShape::n, "Images of the batch.");
  shape.count("C", &ConvolutionShape::c, "Channels of the input.");
  size("D", &ConvolutionShape::in, 0, "Depth of the input.");
  size("H", &ConvolutionShape::in, 1, "Height of the input.");
  size("W", &ConvolutionShape::in, 2, "Width of the input.");
  shape.count("K", &ConvolutionShape::k, "Channels of the output.");
  size("T", &ConvolutionShape::filter, 0, "Depth of the filter.");
  size("R", &ConvolutionShape::filter, 1, "Height of the filter.");
  size("S", &ConvolutionShape::filter, 2, "Width of the filter.");
  spatial("Stride", &ConvolutionShape::stride, "In each dimension.");
  spatial("Padding", &ConvolutionShape::pad, "In each dimension.");
  spatial("Dilation", &ConvolutionShape::dilation, "In each dimension.");
  shape.count("Groups", &ConvolutionShape::groups, "Groups of channels.");
  shape.add(
      "Layout", kText,
      [](const ConvolutionShape& convolution) {
        return layout_name(convolution.layout, convolution.dimensions);
      },
      "Of the input in memory.");
  shape.type("Type X", &ConvolutionShape::x, "Elements of the input.");
  shape.type("Type W", &ConvolutionShape::w, "Elements of the filter.");
  shape.type("Type Y", &ConvolutionShape::y, "Elements of the output.");
  shape.compute();
  shape.add(
      "Fused", kText, [](const ConvolutionShape& convolution) { return operations_text(convolution.fused); },
      "What the call does besides: bias, activation, ….", "nothing");
  shape.engine();
  columns.add(
      "Algorithm", kText,
      [](const CallTableRow& row) {
        if (row.call == nullptr) return Cell();
        const CallShapeRow& call = *row.call->call;
        ConvolutionAlgorithm algorithm = convolution_algorithm_of(call.shape.as<ConvolutionShape>());
        if (algorithm == ConvolutionAlgorithm::kOther) {
          for (const auto& [name, share] : call.kernels)
            algorithm = algorithm_of_both(algorithm, convolution_algorithm_of(name));
        }
        return cell_if(algorithm != ConvolutionAlgorithm::kOther, algorithm_name(algorithm));
      },
      "By the call's arguments, else by the kernels' names.", "neither tells");
  add_call_columns(columns);
  add_rate_columns(columns);
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> conv_rows(const Report& report) {
  return with_total(
      rows_of(report, ShapeKind::kConvolution, report.statistics->unshaped_work(&is_convolution)));
}

Columns<CallTableRow> attention_columns(const Report&) {
  Columns<CallTableRow> columns;
  columns
      .add(
          "Source", kText,
          [](const CallTableRow& row) {
            if (row.call != nullptr) return Cell("library call");
            return row.entry != nullptr ? Cell(row.name) : Cell("kernel name");
          },
          "`library call`; `kernel name`: kernels of no call that is known, by their names; `[other]`: calls "
          "of shapes "
          "beyond 10,000.")
      .add(
          "API", kText, [](const CallTableRow& row) { return row.call == nullptr ? Cell() : Cell(row.name); },
          "The function whose arguments were read.", "not known");
  ShapeColumns<AttentionShape> shape(columns);
  const auto flag = [&shape](std::string header, AttentionFlags bit, std::string_view meaning) {
    shape.add(
        std::move(header), kFlag,
        [bit](const AttentionShape& attention) { return (attention.flags & bit) != 0 ? 1 : 0; }, meaning);
  };
  shape.add(
      "Direction", kText,
      [](const AttentionShape& attention) { return attention_direction_name(attention.direction); },
      "Forward or backward.");
  shape.count("B", &AttentionShape::batch, "Sequences of the batch.");
  shape.count("H", &AttentionShape::heads, "Heads of the queries.");
  shape.count("KV Heads", &AttentionShape::kv_heads, "Heads of keys and values.");
  shape.count("S Query", &AttentionShape::query_length, "Queries of a sequence.");
  shape.count("S Key", &AttentionShape::key_length, "Keys of a sequence.");
  shape.count("D", &AttentionShape::head_size, "Elements of a query and a key.");
  shape.count("D Value", &AttentionShape::value_head_size, "Elements of a value.");
  flag("Causal", kAttentionCausal, "A query sees no later key.");
  flag("Bias", kAttentionBias, "Something is added to the scores.");
  flag("Dropout", kAttentionDropout, "Dropout is part of the call.");
  flag("Varying Lengths", kAttentionRagged,
       "Sequences have lengths of their own: FLOPs and bytes are of the longest.");
  shape.type("Type", &AttentionShape::type, "Elements of queries, keys and values.");
  shape.compute();
  shape.engine();
  add_call_columns(columns);
  add_rate_columns(columns);
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> attention_rows(const Report& report) {
  std::vector<CallTableRow> rows = rows_of(report, ShapeKind::kAttention);
  // Kernels of no call that is known for attention: all that is known of them is their names.
  for (const auto& [name, time] : report.statistics->unshaped_kernels(Family::kAttention)) {
    CallTableRow& row = rows.emplace_back(row_of_kernels({}, time));
    row.cores = tensor_cores_of(name).cores;
    row.kernel_names = name;
  }
  return with_total(std::move(rows));
}

Columns<CallTableRow> rnn_columns(const Report&) {
  Columns<CallTableRow> columns;
  add_name(columns);
  ShapeColumns<RnnShape> shape(columns);
  shape.add(
      "Direction", kText, [](const RnnShape& rnn) { return rnn_direction_name(rnn.direction); },
      "Forward, or what is computed backward.");
  shape.add(
      "Cell", kText, [](const RnnShape& rnn) { return rnn_cell_name(rnn.cell); }, "`LSTM`, `GRU`, ….");
  shape.count("Layers", &RnnShape::layers, "Layers of the call.");
  shape.add(
      "Directions", kCount, [](const RnnShape& rnn) { return rnn.bidirectional != 0 ? 2 : 1; },
      "2 where it runs both ways.");
  shape.count("Input Size", &RnnShape::input_size, "Elements of an input.");
  shape.count("Hidden Size", &RnnShape::hidden_size, "Elements of the state.");
  shape.count("Projection Size", &RnnShape::projection_size, "Elements that the state is projected to.");
  shape.count("T", &RnnShape::length, "Steps of the longest sequence.");
  shape.count("B", &RnnShape::batch, "Sequences of the batch.");
  shape.count("Steps", &RnnShape::steps, "Steps of all sequences together.");
  shape.type("Type", &RnnShape::type, "Elements.");
  shape.compute();
  shape.add(
      "Algorithm", kText, [](const RnnShape& rnn) { return rnn_algorithm_name(rnn.algorithm); },
      "As the descriptor has it.");
  shape.add(
      "Math", kText,
      [](const RnnShape& rnn) {
        return one_of({"", "default", "tensor operations", "tensor operations, conversion allowed", "FMA"},
                      rnn.tensor_math);
      },
      "As the descriptor has it.", "not known");
  add_call_columns(columns);
  add_rate_columns(columns);
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> rnn_rows(const Report& report) {
  return with_total(rows_of(report, ShapeKind::kRnn, report.statistics->unshaped_work([](Family family) {
    return family == Family::kRnnCell;
  })));
}

Columns<CallTableRow> norm_columns(const Report&) {
  Columns<CallTableRow> columns;
  add_name(columns);
  ShapeColumns<NormalizationShape> shape(columns);
  shape.add(
      "Direction", kText,
      [](const NormalizationShape& norm) { return normalization_direction_name(norm.direction); },
      "Forward (training or inference) or backward.");
  shape.add(
      "Mode", kText, [](const NormalizationShape& norm) { return normalization_mode_name(norm.mode); },
      "Batch, layer, … normalization.");
  shape.add(
      "Size", kText,
      [](const NormalizationShape& norm) {
        std::string size;
        for (unsigned i = 0; i < norm.size.size() && i < norm.dimensions; ++i)
          size += (i == 0 ? "" : "x") + std::to_string(norm.size[i]);
        return size;
      },
      "Of the input.");
  shape.add(
      "Layout", kText,
      [](const NormalizationShape& norm) {
        return layout_name(norm.layout,
                           static_cast<std::uint8_t>(norm.dimensions < 2 ? 0 : norm.dimensions - 2));
      },
      "Of the input in memory.");
  shape.type("Type", &NormalizationShape::type, "Elements of the input.");
  shape.add(
      "Fused", kText, [](const NormalizationShape& norm) { return operations_text(norm.fused); },
      "What the call does besides.", "nothing");
  add_call_columns(columns);
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> norm_rows(const Report& report) {
  return with_total(rows_of(report, ShapeKind::kNormalization));
}

Columns<Listed<CollectiveRow>> nccl_columns(const Report&) {
  using Row = Listed<CollectiveRow>;
  Columns<Row> columns;
  const auto known = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning,
                                std::string_view empty = kUnknown) {
    columns.add(
        std::move(header), unit,
        [of](const Row& row) { return row.row.is_known() ? Cell(of(row.row)) : Cell(); }, meaning, empty);
  };
  const auto gpu = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning) {
    columns.add(
        std::move(header), unit, [of](const Row& row) { return of(row.row.gpu); }, meaning);
  };
  columns.add(
      "Operation", kText, [](const Row& row) { return row.row.operation(); },
      "`AllReduce`, …, `Group of 3 AllReduce`; `[unknown]`: kernels of no call that is known.");
  known(
      "Type", kText, [](const CollectiveRow& row) { return collective_type_name(row.shape.type); },
      "Elements.");
  known(
      "Reduction", kText, [](const CollectiveRow& row) { return reduction_name(row.shape.reduction); },
      "`sum`, `avg`, ….", "nothing is reduced; `[unknown]`");
  known(
      "Bytes", kBytes, [](const CollectiveRow& row) { return row.shape.bytes; },
      "Of one call, as collectives.md counts them.");
  known(
      "Ranks", kCount,
      [](const CollectiveRow& row) { return cell_if(row.shape.ranks != 0, row.shape.ranks); },
      "Of the communicator.", "not known");
  known(
      "Peer/Root", kNumber,
      [](const CollectiveRow& row) { return cell_if(row.shape.peer >= 0, row.shape.peer); },
      "The other rank of a send or receive, the root of a broadcast or reduce.", "the operation has none");
  known(
      "Grouped", kText, [](const CollectiveRow& row) { return row.grouped(); },
      "`no`; `yes`: submitted by a group's end; `group`: the end of a group of different calls.");
  known(
      "Calls", kCount, [](const CollectiveRow& row) { return row.calls; }, "Calls that did not fail.");
  known(
      "Failed Calls", kCount, [](const CollectiveRow& row) { return row.failed; }, "Calls that failed.");
  known(
      "Captured Calls", kCount, [](const CollectiveRow& row) { return row.captured; },
      "Of Calls, those whose work went into a CUDA graph.");
  known(
      "Replayed Calls", kCount, [](const CollectiveRow& row) { return row.replayed; },
      "Captured calls that graph launches ran, once for each launch.");
  known(
      "Host Time (ns)", kTime, [](const CollectiveRow& row) { return row.host_time; },
      "Time in the calls, with that of the group's end.");
  columns.add(
      "GPU Time (%)", kPercent, [](const Row& row) { return percent(row.row.gpu.sum, row.total); },
      "Share of the table's GPU time.");
  gpu(
      "GPU Time (ns)", kTime, [](const Totals& time) { return time.sum; },
      "Sum of the kernels' durations, their waiting for other ranks included.");
  gpu(
      "GPU Avg (ns)", kMeanTime, [](const Totals& time) { return time.mean(); }, "Mean of a call.");
  gpu(
      "GPU Min (ns)", kTime, [](const Totals& time) { return time.smallest(); }, "Shortest.");
  gpu(
      "GPU Max (ns)", kTime, [](const Totals& time) { return time.max; }, "Longest.");
  columns
      .add(
          "Algorithm BW (GB/s)", kBandwidth, [](const Row& row) { return row.row.algorithm_bandwidth(); },
          "Bytes by GPU time.", "no GPU time; bytes not known; GPU time of calls that failed")
      .add(
          "Bus BW (GB/s)", kBandwidth, [](const Row& row) { return row.row.bus_bandwidth(); },
          "Algorithm bandwidth by the operation's factor (collectives.md).", "as Algorithm BW")
      .add(
          "Overlap with Compute (%)", kPercent, [](const Row& row) { return percent(row.row.overlap()); },
          "Share of the kernels' time in which a kernel that is no collective's ran on the device.",
          "no kernels")
      .add(
          "Kernels", kCount, [](const Row& row) { return row.row.kernels; }, "Kernels that ran.")
      .add(
          "Kernel Names", kText,
          [](const Row& row) {
            std::string names;
            for (const KernelTime& kernel : row.row.names) {
              if (!names.empty()) names += "; ";
              names += kernel.name;
            }
            return names;
          },
          "Each once, by descending time.", "no kernels")
      .add(
          "Communicator", kText, [](const Row& row) { return communicator_text(row.row.shape.communicator); },
          "Its identity, the same in all ranks, as NCCL logs it.", "not known");
  return columns;
}
std::vector<Listed<CollectiveRow>> nccl_rows(const Report& report) {
  return listed(report.statistics->collectives(), [](const CollectiveRow& row) { return row.gpu.sum; });
}

Columns<Listed<FamilyRow>> family_columns(const Report&) {
  using Row = Listed<FamilyRow>;
  Columns<Row> columns;
  const auto add = [&columns](std::string header, const Unit& unit, auto of, std::string_view meaning,
                              std::string_view empty = {}) {
    columns.add(
        std::move(header), unit, [of](const Row& row) { return of(row.row); }, meaning, empty);
  };
  columns.add(
      "Time (%)", kPercent, [](const Row& row) { return percent(row.row.time.sum, row.total); },
      kShareOfListed);
  add(
      "Total Time (ns)", kTime, [](const FamilyRow& row) { return row.time.sum; },
      "Sum of the kernels' durations.");
  add(
      "Instances", kCount, [](const FamilyRow& row) { return row.time.count; }, "Executions.");
  add(
      "Avg (ns)", kMeanTime, [](const FamilyRow& row) { return row.time.mean(); }, "Mean duration.");
  add(
      "Min (ns)", kTime, [](const FamilyRow& row) { return row.time.smallest(); }, "Shortest.");
  add(
      "Max (ns)", kTime, [](const FamilyRow& row) { return row.time.max; }, "Longest.");
  add(
      "Kernel Names", kCount, [](const FamilyRow& row) { return row.names; }, "Distinct names of kernels.");
  add(
      "In Library Calls (%)", kPercent,
      [](const FamilyRow& row) { return percent(row.attributed, row.time.sum); },
      "Share of the time that is of kernels launched inside a library call.");
  add(
      "Tensor Cores (%)", kPercent,
      [](const FamilyRow& row) { return percent(row.on_tensor_cores, row.time.sum); },
      "Share of the time that is of kernels known to use tensor cores.");
  add(
      "Tensor Cores Unknown (%)", kPercent,
      [](const FamilyRow& row) { return percent(row.unknown_cores, row.time.sum); },
      "Share of the time that is of kernels whose names do not tell.");
  add(
      "FLOPs", kFlops, [](const FamilyRow& row) { return row.flops; },
      "Of the library calls of known shape whose kernels these are.");
  add(
      "TFLOP/s", kTeraflops,
      [](const FamilyRow& row) {
        return cell_if(row.flops != 0 && row.time.sum != 0,
                       static_cast<double>(row.flops) / static_cast<double>(row.time.sum) / 1e3);
      },
      "FLOPs by Total Time.", "no FLOPs are known");
  add(
      "Family", kText, [](const FamilyRow& row) { return family_name(row.family); }, "What the kernels do.");
  return columns;
}
std::vector<Listed<FamilyRow>> family_rows(const Report& report) {
  return listed(report.statistics->families(), [](const FamilyRow& row) { return row.time.sum; });
}

}  // namespace inject
