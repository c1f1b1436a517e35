// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/plan_attention.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "libinject/capture/hooks/cudnn_sizes.h"

namespace inject {

namespace {

using Node = PlanGraph::Node;
using Port = PlanGraph::Port;
using Tensor = PlanGraph::Tensor;

/// True if a tensor holds each element's index along an axis.
bool is_index(const PlanGraph& graph, const Tensor& tensor, std::int64_t axis) noexcept {
  const Node* node = graph.producer(tensor);
  return node != nullptr && node->mode == "CUDNN_POINTWISE_GEN_INDEX" && node->axis == axis;
}

/// Flags of a mask that keeps a score if `rows` is at least `columns`. cudnn-frontend aligns its diagonal
/// with the scores' last corner by adding the number of keys to a row's index and subtracting that of the
/// queries.
std::uint32_t causal_flags(const PlanGraph& graph, const Tensor& rows, const Tensor& columns) noexcept {
  constexpr std::int64_t kRows = 2;
  constexpr std::int64_t kColumns = 3;
  if (!is_index(graph, columns, kColumns)) return kAttentionCausal | kAttentionShifted;
  if (is_index(graph, rows, kRows)) return kAttentionCausal;
  const auto operands = [&graph](const Node* node, std::string_view mode) -> const Tensor* {
    if (node == nullptr || node->mode != mode) return nullptr;
    const Tensor* number = graph.tensor(*node, "B");
    return number != nullptr && number->by_value ? graph.tensor(*node, "X") : nullptr;
  };
  const Tensor* sum = operands(graph.producer(rows), "CUDNN_POINTWISE_SUB");
  const Tensor* row = sum == nullptr ? nullptr : operands(graph.producer(*sum), "CUDNN_POINTWISE_ADD");
  return row != nullptr && is_index(graph, *row, kRows) ? kAttentionCausal | kAttentionBottomRight
                                                        : kAttentionCausal | kAttentionShifted;
}

std::uint32_t attention_flags(const PlanGraph& graph, std::int64_t key_length) noexcept {
  std::uint32_t flags = 0;
  for (const Tensor& tensor : graph.tensors())
    if (tensor.ragged) flags |= kAttentionRagged;
  for (const Node& node : graph.nodes()) {
    if (node.operation == GraphOperation::kRandom) flags |= kAttentionDropout;
    if (node.operation == GraphOperation::kPagedLoad) flags |= kAttentionPaged;
    for (const std::string_view port : {"seqLenQ", "seqLenKV", "seqLenQDesc", "seqLenKVDesc"})
      if (graph.tensor(node, port) != nullptr) flags |= kAttentionRagged;
    for (const std::string_view port : {"pageTableK", "pageTableV"})
      if (graph.tensor(node, port) != nullptr) flags |= kAttentionPaged;
    if (node.operation != GraphOperation::kPointwise) continue;
    const Tensor* x = graph.tensor(node, "X");
    const Tensor* b = graph.tensor(node, "B");
    if (x == nullptr || b == nullptr) continue;
    // Causal masks compare the index of a row with that of a column; padding compares one with a length.
    const bool of_indices = x->is_virtual && b->is_virtual;
    if (node.mode == "CUDNN_POINTWISE_CMP_GE" && of_indices) flags |= causal_flags(graph, *x, *b);
    if (node.mode == "CUDNN_POINTWISE_CMP_GT" && of_indices) flags |= kAttentionWindow;
    if (node.mode == "CUDNN_POINTWISE_CMP_LT" && (x->is_given() || b->is_given())) flags |= kAttentionRagged;
    if (node.mode == "CUDNN_POINTWISE_ADD") {
      for (const Tensor* operand : {x, b})
        if (operand->is_given() && key_length > 1 && operand->size.last(1) == key_length)
          flags |= kAttentionBias;
    }
  }
  return flags;
}

/// How much is read is unknown if only a part of the tensors is.
std::uint64_t attention_bytes(const PlanGraph& graph, std::uint32_t flags) noexcept {
  return (flags & (kAttentionRagged | kAttentionWindow | kAttentionPaged)) != 0 ? 0 : graph.given_bytes();
}

/// True if a tensor goes through pointwise operations into an exponential: the scores that softmax takes.
bool leads_to_exponential(const PlanGraph& graph, std::string_view from) noexcept {
  const std::span<const Node> nodes = graph.nodes();
  std::array<bool, PlanGraph::kMaxNodes> seen{};
  std::array<std::string_view, PlanGraph::kMaxNodes + 1> open{};
  std::size_t count = 0;
  open[count++] = from;
  while (count != 0) {
    const std::string_view name = open[--count];
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      if (seen[i] || node.operation == GraphOperation::kMatmul) continue;
      const bool takes_it = std::any_of(node.ports.begin(), node.ports.end(), [name](const Port& port) {
        return port.name != "Y" && port.name != "outputDesc" && port.tensor == name;
      });
      if (!takes_it) continue;
      if (node.operation == GraphOperation::kSoftmax || node.mode == "CUDNN_POINTWISE_EXP") return true;
      seen[i] = true;
      for (const Port& port : node.ports)
        if (port.name == "Y" && count < open.size()) open[count++] = port.tensor;
    }
  }
  return false;
}

}  // namespace

CallShape attention_shape(const PlanGraph& graph, const Node& node, std::uint32_t notes) noexcept {
  const bool forward = node.operation == GraphOperation::kAttention;
  const Tensor* q = graph.tensor(node, forward ? "Q" : "qDesc");
  const Tensor* k = graph.tensor(node, forward ? "K" : "kDesc");
  const Tensor* v = graph.tensor(node, forward ? "V" : "vDesc");
  if (q == nullptr || k == nullptr || v == nullptr) return {};
  if (q->size.count != 4 || k->size.count != 4 || v->size.count != 4) return {};
  AttentionShape shape;
  shape.direction = forward ? 1 : 2;
  shape.type = q->type;
  shape.compute =
      plan_compute_type(node.math == DataType::kUnknown ? DataType::kF32 : node.math, q->type, notes);
  shape.flags = attention_flags(graph, k->size.at[2]);
  shape.bytes = attention_bytes(graph, shape.flags);
  shape.engine = graph.engine();
  shape.batch = clamped<std::uint32_t>(q->size.at[0]);
  shape.heads = clamped<std::uint32_t>(q->size.at[1]);
  shape.kv_heads = clamped<std::uint32_t>(k->size.at[1]);
  shape.query_length = clamped<std::uint32_t>(q->size.at[2]);
  shape.key_length = clamped<std::uint32_t>(k->size.at[2]);
  if (const Tensor* pages = graph.tensor(node, "pageTableK"); pages != nullptr && pages->size.count == 4) {
    // Number of pages times keys per page.
    std::int64_t keys = 0;
    if (__builtin_mul_overflow(pages->size.at[2], k->size.at[2], &keys)) keys = 0;
    shape.key_length = clamped<std::uint32_t>(keys);
  }
  shape.head_size = clamped<std::uint32_t>(q->size.at[3]);
  shape.value_head_size = clamped<std::uint32_t>(v->size.at[3]);
  return shape;
}

CallShape composed_attention_shape(const PlanGraph& graph, std::uint32_t notes) noexcept {
  const std::size_t products = graph.count(GraphOperation::kMatmul);
  if (products != 2 && products != 5) return {};
  const Node* scores = nullptr;
  for (const Node* node = graph.first(GraphOperation::kMatmul); node != nullptr && scores == nullptr;
       node = graph.first(GraphOperation::kMatmul, node)) {
    for (const Port& port : node->ports)
      if (port.name == "matC" && leads_to_exponential(graph, port.tensor)) scores = node;
  }
  if (scores == nullptr) return {};
  const Tensor* q = graph.tensor(*scores, "matA");
  const Tensor* k = graph.tensor(*scores, "matB");
  const Tensor* s = graph.tensor(*scores, "matC");
  if (q == nullptr || k == nullptr || s == nullptr) return {};
  if (q->size.count != 4 || k->size.count != 4 || s->size.count != 4) return {};

  AttentionShape shape;
  shape.direction = products == 2 ? 1 : 2;
  shape.value_head_size = clamped<std::uint32_t>(q->size.at[3]);
  for (const Node* node = graph.first(GraphOperation::kMatmul); node != nullptr;
       node = graph.first(GraphOperation::kMatmul, node)) {
    if (node == scores) continue;
    const Tensor* a = graph.tensor(*node, "matA");
    const Tensor* b = graph.tensor(*node, "matB");
    if (a == nullptr || b == nullptr) continue;
    // Forward: the scores times V; gradient: dO times Vᵀ, the other product of two tensors from outside.
    if (products == 2) {
      shape.value_head_size = clamped<std::uint32_t>(b->size.last(1));
    } else if (a->is_given() && b->is_given()) {
      shape.value_head_size = clamped<std::uint32_t>(a->size.last(1));
    }
  }
  shape.type = q->type;
  shape.compute = plan_compute_type(scores->math, q->type, notes);
  shape.flags = attention_flags(graph, s->size.at[3]);
  shape.bytes = attention_bytes(graph, shape.flags);
  shape.engine = graph.engine();
  shape.batch = clamped<std::uint32_t>(s->size.at[0]);
  shape.heads = clamped<std::uint32_t>(q->size.at[1]);
  shape.kv_heads = clamped<std::uint32_t>(k->size.at[1]);
  shape.query_length = clamped<std::uint32_t>(s->size.at[2]);
  shape.key_length = clamped<std::uint32_t>(s->size.at[3]);
  shape.head_size = clamped<std::uint32_t>(q->size.at[3]);
  return shape;
}

}  // namespace inject
