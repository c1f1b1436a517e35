// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/cudnn_graph.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>

#include "libinject/capture/hooks/cudnn_sizes.h"
#include "libinject/capture/hooks/plan_attention.h"
#include "libinject/capture/hooks/plan_graph.h"

namespace inject {

namespace {

using Node = PlanGraph::Node;
using Port = PlanGraph::Port;
using Tensor = PlanGraph::Tensor;

std::uint8_t layout_of(const Tensor& tensor) noexcept {
  return tensor_layout(tensor.size.all(), tensor.stride.all());
}

CallShape convolution_shape(const PlanGraph& graph, const Node& node, std::uint32_t notes) noexcept {
  const bool forward = node.operation == GraphOperation::kConvolution;
  const bool to_data = node.operation == GraphOperation::kConvolutionDataGradient;
  const Tensor* x = graph.tensor(node, to_data ? "dX" : "X");
  const Tensor* w = graph.tensor(node, forward || to_data ? "W" : "dW");
  const Tensor* y = graph.tensor(node, forward ? "Y" : "dY");
  if (x == nullptr || w == nullptr || y == nullptr) return {};
  const std::size_t rank = x->size.count;
  if (rank < 3 || rank > 5 || w->size.count != rank || y->size.count != rank) return {};
  ConvolutionShape shape;
  shape.direction = forward ? 1 : to_data ? 2 : 3;
  shape.dimensions = static_cast<std::uint8_t>(rank - 2);
  shape.x = to_data ? graph.result_type(*x) : graph.operand_type(*x);
  shape.w = forward || to_data ? graph.operand_type(*w) : graph.result_type(*w);
  shape.y = forward ? graph.result_type(*y) : graph.operand_type(*y);
  shape.compute = plan_compute_type(node.math, to_data ? shape.y : shape.x, notes);
  for (const Tensor* of : {x, y, w})
    if (shape.layout == 0) shape.layout = layout_of(*of);
  shape.fused = graph.operations_except(&node);
  shape.engine = graph.engine();
  shape.n = clamped<std::uint32_t>(x->size.at[0]);
  shape.c = clamped<std::uint32_t>(x->size.at[1]);
  shape.k = clamped<std::uint32_t>(w->size.at[0]);
  const std::int64_t channels = w->size.at[1];  // per group
  shape.groups = channels > 0 ? std::max<std::uint32_t>(1, shape.c / clamped<std::uint32_t>(channels)) : 1;
  set_last_dimensions(shape.in, x->size.all().subspan(2));
  set_last_dimensions(shape.filter, w->size.all().subspan(2));
  set_last_dimensions(shape.out, y->size.all().subspan(2));
  set_last_dimensions(shape.pad, node.pad.all());
  set_last_dimensions(shape.stride, node.stride.all());
  set_last_dimensions(shape.dilation, node.dilation.all());
  shape.notes = notes;
  shape.bytes = graph.given_bytes();
  return shape;
}

CallShape normalization_shape(const PlanGraph& graph, const Node& node) noexcept {
  const Tensor* x = graph.tensor(node, "X");
  if (x == nullptr) return {};
  NormalizationShape shape;
  shape.direction = node.operation == GraphOperation::kNormalizationGradient ? 2
                    : node.phase.ends_with("INFERENCE")                      ? 3
                                                                             : 1;
  struct Mode {
    std::string_view name;
    std::uint8_t mode;
  };
  constexpr Mode kModes[] = {{"CUDNN_BATCH_NORM", 1}, {"CUDNN_INSTANCE_NORM", 2},
                             {"CUDNN_LAYER_NORM", 3}, {"CUDNN_RMS_NORM", 4},
                             {"CUDNN_GROUP_NORM", 5}, {"CUDNN_ADA_LAYER_NORM", 3}};
  for (const Mode& mode : kModes)
    if (mode.name == node.mode) shape.mode = mode.mode;
  shape.type = x->type;
  shape.layout = layout_of(*x);
  shape.dimensions = static_cast<std::uint8_t>(std::min(x->size.count, shape.size.size()));
  for (std::size_t i = 0; i < shape.dimensions; ++i) shape.size[i] = clamped<std::uint32_t>(x->size.at[i]);
  shape.fused = graph.operations_except(&node);
  return shape;
}

/// Operands with block scaling (mxfp8, nvfp4) are stored in few bits, and enter the product as a wider tensor
/// that is never stored.
struct Operand {
  const Tensor* tensor = nullptr;  ///< the one that is stored
  bool scaled = false;
};

/// Scaling nodes name their tensors differently: the one with the operand's size is what they scale.
Operand stored_operand(const PlanGraph& graph, const Tensor* tensor) noexcept {
  if (tensor == nullptr || !tensor->is_virtual) return {tensor, false};
  for (const Node& node : graph.nodes()) {
    if (node.operation != GraphOperation::kScaling) continue;
    const Tensor* stored = nullptr;
    bool is_its = false;
    for (const Port& port : node.ports) {
      const Tensor* other = graph.find_tensor(port.tensor);
      if (other == nullptr) continue;
      is_its = is_its || other == tensor;
      if (other->is_given() && other->size == tensor->size) stored = other;
    }
    if (is_its && stored != nullptr) return {stored, true};
  }
  return {tensor, false};
}

/// A product with a row-major result is, in column-major terms, that of the operands' transposes in reverse
/// order.
CallShape product_shape(const PlanGraph& graph, const Node& node, std::uint32_t notes) noexcept {
  const auto [a, scaled_a] = stored_operand(graph, graph.tensor(node, "matA"));
  const auto [b, scaled_b] = stored_operand(graph, graph.tensor(node, "matB"));
  const Tensor* c = stored_operand(graph, graph.tensor(node, "matC")).tensor;
  if (a == nullptr || b == nullptr || c == nullptr) return {};
  for (const Tensor* matrix : {a, b, c})
    if (matrix->size.count < 2 || matrix->stride.count != matrix->size.count) return {};
  const bool row_major = c->stride.last(1) == 1;
  // Whether a matrix is stored transposed with respect to the product.
  const auto is_row_major = [](const Tensor& matrix) { return matrix.stride.last(1) == 1; };
  const auto leading = [](const Tensor& matrix) {
    return std::max(matrix.stride.last(1), matrix.stride.last(2));
  };
  GemmShape shape;
  const Tensor* left = row_major ? b : a;
  const Tensor* right = row_major ? a : b;
  shape.op_a = is_row_major(*left) == row_major ? 'N' : 'T';
  shape.op_b = is_row_major(*right) == row_major ? 'N' : 'T';
  shape.a = graph.operand_type(*left);
  shape.b = graph.operand_type(*right);
  shape.c = graph.result_type(*c);
  shape.d = shape.c;
  shape.compute = plan_compute_type(node.math, graph.operand_type(*a), notes);
  if (scaled_a || scaled_b) shape.flags |= kGemmBlockScaled;
  const std::uint32_t fused = graph.operations_except(&node);
  constexpr std::uint32_t kBias = operation_bit(GraphOperation::kBias);
  constexpr std::uint32_t kRelu = operation_bit(GraphOperation::kRelu);
  constexpr std::uint32_t kGelu = operation_bit(GraphOperation::kGelu);
  // Values of cublasLtEpilogue_t.
  shape.epilogue = fused == kRelu             ? 2
                   : fused == kBias           ? 4
                   : fused == (kRelu | kBias) ? 6
                   : fused == kGelu           ? 32
                   : fused == (kGelu | kBias) ? 36
                                              : 0;
  shape.m = row_major ? c->size.last(1) : c->size.last(2);
  shape.n = row_major ? c->size.last(2) : c->size.last(1);
  shape.k = a->size.last(1);
  const std::int64_t batch = c->size.product(c->size.count - 2);
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0 || batch <= 0) return {};
  shape.batch = clamped<std::uint32_t>(batch);
  shape.lda = leading(*left);
  shape.ldb = leading(*right);
  shape.ldc = leading(*c);
  std::int64_t flops = 2;
  for (const std::int64_t factor : {shape.m, shape.n, shape.k, batch})
    if (__builtin_mul_overflow(flops, factor, &flops)) return {};
  shape.flops = static_cast<std::uint64_t>(flops);
  shape.bytes = graph.given_bytes();
  return shape;
}

CallShape node_shape(const PlanGraph& graph, const Node& node, std::uint32_t notes) noexcept {
  switch (node.operation) {
    case GraphOperation::kAttention:
    case GraphOperation::kAttentionGradient:
      return attention_shape(graph, node, notes);
    case GraphOperation::kNormalization:
    case GraphOperation::kNormalizationGradient:
      return normalization_shape(graph, node);
    case GraphOperation::kMatmul:
      return product_shape(graph, node, notes);
    default:
      return convolution_shape(graph, node, notes);
  }
}

/// The shape of the first of these operations that has one.
CallShape first_shape(const PlanGraph& graph, std::initializer_list<GraphOperation> operations,
                      std::uint32_t notes) noexcept {
  for (const GraphOperation operation : operations) {
    const Node* node = graph.first(operation);
    const CallShape shape = node == nullptr ? CallShape() : node_shape(graph, *node, notes);
    if (shape.kind() != ShapeKind::kNone) return shape;
  }
  return {};
}

CallShape shape_of(const PlanGraph& graph, std::uint32_t notes) noexcept {
  using enum GraphOperation;
  // Whether the dimension along a vector counts numbers or vectors is not documented.
  if (graph.nodes().empty() || graph.has_vectors()) return {};
  CallShape shape = first_shape(
      graph,
      {kConvolution, kConvolutionDataGradient, kConvolutionFilterGradient, kAttention, kAttentionGradient},
      notes);
  if (shape.kind() == ShapeKind::kNone) shape = composed_attention_shape(graph, notes);
  if (shape.kind() == ShapeKind::kNone)
    shape = first_shape(graph, {kNormalization, kNormalizationGradient}, notes);
  if (shape.kind() == ShapeKind::kNone && graph.count(kMatmul) == 1)
    shape = first_shape(graph, {kMatmul}, notes);
  if (shape.kind() != ShapeKind::kNone) return shape;
  OtherGraphShape other;
  other.engine = graph.engine();
  other.operations = graph.operations_except(nullptr);
  return other;
}

}  // namespace

CallShape shape_of_plan(std::string_view json, std::uint32_t notes) noexcept {
  const std::unique_ptr<PlanGraph> graph(new (std::nothrow) PlanGraph);
  if (graph == nullptr) return {};
  graph->read(json);
  return shape_of(*graph, notes);
}

}  // namespace inject
