// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The tables of cuDNN's calls: conv_sum.csv, attention_sum.csv, rnn_sum.csv and norm_sum.csv
// (docs/shapes.md).
#include <initializer_list>

#include "libinject/analysis/shape_text.h"
#include "libinject/output/call_columns.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

using namespace units;

/// cuDNN's number for the engine that ran.
template <typename Shape>
Cell engine(const Shape& shape) {
  return cell_if(shape.engine >= 0, shape.engine);
}

std::string_view one_of(std::initializer_list<std::string_view> names, unsigned index) {
  return index < names.size() ? names.begin()[index] : std::string_view();
}

Columns<CallTableRow> conv_columns(const Report&) {
  Columns<CallTableRow> columns;
  add_function(columns);
  const auto shape = columns.of(shape_of<ConvolutionShape>, kNoShape);
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
      "Forward or, in the backward pass, what is computed: the gradient of the data or of the filter.");
  shape.add("N", kCount, &ConvolutionShape::n, "Images in the batch.");
  shape.add("C", kCount, &ConvolutionShape::c, "Channels of the input.");
  size("D", &ConvolutionShape::in, 0, "Depth of the input.");
  size("H", &ConvolutionShape::in, 1, "Height of the input.");
  size("W", &ConvolutionShape::in, 2, "Width of the input.");
  shape.add("K", kCount, &ConvolutionShape::k, "Channels of the output.");
  size("T", &ConvolutionShape::filter, 0, "Depth of the filter.");
  size("R", &ConvolutionShape::filter, 1, "Height of the filter.");
  size("S", &ConvolutionShape::filter, 2, "Width of the filter.");
  spatial("Stride", &ConvolutionShape::stride, "In each dimension.");
  spatial("Padding", &ConvolutionShape::pad, "In each dimension.");
  spatial("Dilation", &ConvolutionShape::dilation, "In each dimension.");
  shape.add("Groups", kCount, &ConvolutionShape::groups, "Number of channel groups.");
  shape.add(
      "Layout", kText,
      [](const ConvolutionShape& convolution) {
        return layout_name(convolution.layout, convolution.dimensions);
      },
      "Memory layout of the input.");
  shape.add("Type X", kText, data_type(&ConvolutionShape::x), "Element type of the input.");
  shape.add("Type W", kText, data_type(&ConvolutionShape::w), "Element type of the filter.");
  shape.add("Type Y", kText, data_type(&ConvolutionShape::y), "Element type of the output.");
  shape.add("Compute Type", kText, compute_type<ConvolutionShape>, kComputeType);
  shape.add(
      "Fused", kText, [](const ConvolutionShape& convolution) { return operations_text(convolution.fused); },
      "Operations fused into the call: bias, activation, ….", "nothing is fused");
  shape.add("Engine", kNumber, engine<ConvolutionShape>, "cuDNN's engine number.",
            "rows in brackets; not known");
  columns.add(
      "Algorithm", kText,
      [](const CallTableRow& row) {
        if (row.call == nullptr) return Cell();
        const CallShapeRow& call = *row.call->call;
        ConvolutionAlgorithm algorithm = convolution_algorithm_of(call.shape.as<ConvolutionShape>());
        if (algorithm == ConvolutionAlgorithm::kOther) {
          for (const auto& [name, share] : call.kernels)
            algorithm = combined_algorithm(algorithm, convolution_algorithm_of(name));
        }
        return cell_if(algorithm != ConvolutionAlgorithm::kOther, algorithm_name(algorithm));
      },
      "From the call's arguments, otherwise from the kernels' names.", "neither identifies it");
  add_call_columns(columns);
  add_rate_columns(columns);
  add_eligible(columns);
  add_hint(columns);
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> conv_rows(const Report& report) {
  return with_total(
      call_rows(report, ShapeKind::kConvolution, report.statistics->unshaped_work(&is_convolution)));
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
          "`library call`; `kernel name`: kernels without a known call, recognised by name; `[other]`: calls "
          "beyond 10,000 shapes.")
      .add(
          "API", kText, [](const CallTableRow& row) { return row.call == nullptr ? Cell() : Cell(row.name); },
          "The function whose arguments were read.", "not known");
  const auto shape = columns.of(shape_of<AttentionShape>, kNoShape);
  const auto flag = [&shape](std::string header, AttentionFlags bit, std::string_view meaning) {
    shape.add(
        std::move(header), kFlag,
        [bit](const AttentionShape& attention) { return (attention.flags & bit) != 0 ? 1 : 0; }, meaning);
  };
  shape.add(
      "Direction", kText,
      [](const AttentionShape& attention) { return attention_direction_name(attention.direction); },
      "Forward or backward.");
  shape.add("B", kCount, &AttentionShape::batch, "Sequences in the batch.");
  shape.add("H", kCount, &AttentionShape::heads, "Query heads.");
  shape.add("KV Heads", kCount, &AttentionShape::kv_heads, "Key and value heads.");
  shape.add("S Query", kCount, &AttentionShape::query_length, "Queries per sequence.");
  shape.add("S Key", kCount, &AttentionShape::key_length, "Keys per sequence.");
  shape.add("D", kCount, &AttentionShape::head_size, "Elements per query and per key.");
  shape.add("D Value", kCount, &AttentionShape::value_head_size, "Elements per value.");
  flag("Causal", kAttentionCausal, "1: a query does not see later keys.");
  flag("Bias", kAttentionBias, "1: something is added to the scores.");
  flag("Dropout", kAttentionDropout, "1: dropout is part of the call.");
  flag("Varying Lengths", kAttentionRagged,
       "1: sequences differ in length; S Query and S Key are the longest.");
  shape.add("Type", kText, data_type(&AttentionShape::type), "Element type of queries, keys and values.");
  shape.add("Compute Type", kText, compute_type<AttentionShape>, kComputeType);
  shape.add("Engine", kNumber, engine<AttentionShape>, "cuDNN's engine number.",
            "rows in brackets; not known");
  add_call_columns(columns);
  add_rate_columns(columns);
  add_eligible(columns);
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> attention_rows(const Report& report) {
  std::vector<CallTableRow> rows = call_rows(report, ShapeKind::kAttention);
  // Attention kernels outside calls of known shape: only their names are known.
  for (const auto& [name, time] : report.statistics->unshaped_kernels(Family::kAttention)) {
    CallTableRow& row = rows.emplace_back(kernel_row({}, time));
    row.cores = tensor_cores_of(name).cores;
    row.kernel_names = name;
  }
  return with_total(std::move(rows));
}

Columns<CallTableRow> rnn_columns(const Report&) {
  Columns<CallTableRow> columns;
  add_function(columns);
  const auto shape = columns.of(shape_of<RnnShape>, kNoShape);
  shape.add(
      "Direction", kText, [](const RnnShape& rnn) { return rnn_direction_name(rnn.direction); },
      "Forward or, in the backward pass, what is computed.");
  shape.add(
      "Cell", kText, [](const RnnShape& rnn) { return rnn_cell_name(rnn.cell); }, "`LSTM`, `GRU`, ….");
  shape.add("Layers", kCount, &RnnShape::layers, "Number of layers in the call.");
  shape.add(
      "Directions", kCount, [](const RnnShape& rnn) { return rnn.bidirectional != 0 ? 2 : 1; },
      "2 if bidirectional.");
  shape.add("Input Size", kCount, &RnnShape::input_size, "Elements per input.");
  shape.add("Hidden Size", kCount, &RnnShape::hidden_size, "Elements of the state.");
  shape.add("Projection Size", kCount, &RnnShape::projection_size, "Elements of the projected state.");
  const auto counted = [&shape](std::string header, auto member, std::string_view meaning) {
    shape.add(
        std::move(header), kCount,
        [member](const RnnShape& rnn) { return cell_if(rnn.batch <= RnnShape::kMaxSequences, rnn.*member); },
        meaning, "rows in brackets: no single shape is known; batches of more than 2,048 sequences");
  };
  counted("T", &RnnShape::length, "Time steps of the longest sequence.");
  shape.add("B", kCount, &RnnShape::batch, "Sequences in the batch.");
  counted("Steps", &RnnShape::steps, "Time steps of all sequences together.");
  shape.add("Type", kText, data_type(&RnnShape::type), "Element type.");
  shape.add("Compute Type", kText, compute_type<RnnShape>, kComputeType);
  shape.add(
      "Algorithm", kText, [](const RnnShape& rnn) { return rnn_algorithm_name(rnn.algorithm); },
      "As given in the descriptor.");
  shape.add(
      "Math", kText,
      [](const RnnShape& rnn) {
        return one_of({"", "default", "tensor operations", "tensor operations, conversion allowed", "FMA"},
                      rnn.tensor_math);
      },
      "As given in the descriptor.", "not known");
  add_call_columns(columns);
  add_rate_columns(columns);
  add_eligible(columns);
  add_hint(columns);
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> rnn_rows(const Report& report) {
  return with_total(call_rows(report, ShapeKind::kRnn, report.statistics->unshaped_work([](Family family) {
    return family == Family::kRnnCell;
  })));
}

Columns<CallTableRow> norm_columns(const Report&) {
  Columns<CallTableRow> columns;
  add_function(columns);
  const auto shape = columns.of(shape_of<NormalizationShape>, kNoShape);
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
      "Dimensions of the input.");
  shape.add(
      "Layout", kText,
      [](const NormalizationShape& norm) {
        return layout_name(norm.layout,
                           static_cast<std::uint8_t>(norm.dimensions < 2 ? 0 : norm.dimensions - 2));
      },
      "Memory layout of the input.");
  shape.add("Type", kText, data_type(&NormalizationShape::type), "Element type of the input.");
  shape.add(
      "Fused", kText, [](const NormalizationShape& norm) { return operations_text(norm.fused); },
      "Operations fused into the call.", "nothing is fused");
  add_call_columns(columns);
  add_kernel_names(columns);
  return columns;
}
std::vector<CallTableRow> norm_rows(const Report& report) {
  return with_total(call_rows(report, ShapeKind::kNormalization));
}

}  // namespace

TableFile convolution_table() {
  return make_table<conv_columns, conv_rows>("conv_sum.csv", "Convolutions of one shape (shapes.md).");
}
TableFile attention_table() {
  return make_table<attention_columns, attention_rows>("attention_sum.csv",
                                                       "Attention of one shape (shapes.md).");
}
TableFile rnn_table() {
  return make_table<rnn_columns, rnn_rows>("rnn_sum.csv", "Recurrent layers of one shape (shapes.md).");
}
TableFile normalization_table() {
  return make_table<norm_columns, norm_rows>("norm_sum.csv", "Normalizations of one shape (shapes.md).");
}

}  // namespace inject
