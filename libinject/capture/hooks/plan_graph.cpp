// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/plan_graph.h"

#include <algorithm>
#include <limits>

#include "libinject/capture/hooks/cudnn_names.h"
#include "libinject/capture/hooks/cudnn_sizes.h"
#include "libinject/capture/hooks/tf32.h"
#include "libinject/model/call_shape.h"

namespace inject {

namespace {

void read_numbers(JsonReader& json, PlanGraph::Numbers& numbers) noexcept {
  numbers.count = 0;
  json.array([&] {
    const std::int64_t value = json.integer();
    if (numbers.count < PlanGraph::kMaxDimensions) numbers.at[numbers.count++] = value;
  });
}

}  // namespace

std::int64_t PlanGraph::Numbers::product(std::size_t end) const noexcept {
  std::int64_t all = 1;
  for (std::size_t i = 0; i < std::min(end, count); ++i)
    if (__builtin_mul_overflow(all, at[i], &all)) return std::numeric_limits<std::int64_t>::max();
  return all;
}

void PlanGraph::read(std::string_view text) noexcept {
  JsonReader json(text);
  json.object([&](std::string_view key) {
    if (key == "operationGraph") {
      read_graph(json);
    } else if (key == "engine" && json.peek() == '{') {
      json.object([&](std::string_view member) {
        if (member == "engineId")
          engine_ = static_cast<std::int32_t>(clamped<std::uint32_t>(json.integer()) & 0x7FFF'FFFFu);
      });
    }
  });
}

void PlanGraph::read_graph(JsonReader& json) noexcept {
  json.object([&](std::string_view key) {
    if (key == "tensors") {
      json.array([&] {
        if (tensor_count_ < kMaxTensors) read_tensor(json);
      });
    } else if (key == "nodes") {
      json.array([&] {
        if (node_count_ < kMaxNodes) read_node(json);
      });
    }
  });
}

void PlanGraph::read_tensor(JsonReader& json) noexcept {
  Tensor& tensor = tensors_[tensor_count_++];
  json.object([&](std::string_view key) {
    const char next = json.peek();
    if (key == "name" && next == '"') tensor.name = json.string();
    if (key == "dataType" && next == '"') tensor.type = cudnn_data_type(json.string());
    if (key == "dim" && next == '[') read_numbers(json, tensor.size);
    if (key == "stride" && next == '[') read_numbers(json, tensor.stride);
    if (key == "vectCount" && next >= '0' && next <= '9') tensor.of_vectors = json.integer() > 1;
    if (next == 't' || next == 'f') {
      const bool value = json.boolean();
      if (key == "isVirtual") tensor.is_virtual = value;
      if (key == "isByValue") tensor.by_value = value;
      if (key == "isRagged") tensor.ragged = value;
    }
  });
}

void PlanGraph::read_node(JsonReader& json) noexcept {
  Node& node = nodes_[node_count_++];
  const std::size_t first_port = port_count_;
  json.object([&](std::string_view key) {
    const char next = json.peek();
    if (next == '"') {
      const std::string_view value = json.string();
      if (key == "operation") {
        node.operation = cudnn_operation(value);
      } else if (key == "mode" || key == "pointwiseMode") {
        node.mode = value;
      } else if (key == "fmode" || key == "phase") {
        node.phase = value;
      } else if (key == "mathPrec") {
        node.math = cudnn_data_type(value);
      } else if (port_count_ < kMaxPorts) {
        ports_[port_count_++] = {key, value};
      }
    } else if (next == '[') {
      // pad_lower: used if the padding before differs from that after.
      if (key == "pad" || key == "pad_lower") read_numbers(json, node.pad);
      if (key == "stride") read_numbers(json, node.stride);
      if (key == "dilation") read_numbers(json, node.dilation);
    } else if (key == "axis" && (next == '-' || (next >= '0' && next <= '9'))) {
      node.axis = json.integer();
    }
  });
  node.ports = {ports_.data() + first_port, port_count_ - first_port};
}

bool PlanGraph::has_vectors() const noexcept {
  return std::any_of(tensors().begin(), tensors().end(),
                     [](const Tensor& tensor) { return tensor.of_vectors; });
}

std::size_t PlanGraph::count(GraphOperation operation) const noexcept {
  const std::span<const Node> all = nodes();
  return static_cast<std::size_t>(std::count_if(
      all.begin(), all.end(), [operation](const Node& node) { return node.operation == operation; }));
}

const PlanGraph::Node* PlanGraph::first(GraphOperation operation, const Node* after) const noexcept {
  const Node* end = nodes_.data() + node_count_;
  const Node* found = std::find_if(after == nullptr ? nodes_.data() : after + 1, end,
                                   [operation](const Node& node) { return node.operation == operation; });
  return found == end ? nullptr : found;
}

GraphOperation PlanGraph::pointwise_operation(const Node& node) const noexcept {
  const GraphOperation operation = cudnn_pointwise_operation(node.mode);
  if (operation != GraphOperation::kAdd) return operation;
  const Tensor* result = tensor(node, "Y");
  if (result == nullptr) return operation;
  for (const std::string_view port : {"X", "B"}) {
    const Tensor* operand = tensor(node, port);
    if (operand != nullptr && operand->is_given() && operand->size.product() < result->size.product())
      return GraphOperation::kBias;
  }
  return operation;
}

std::uint32_t PlanGraph::operations_except(const Node* except) const noexcept {
  std::uint32_t all = 0;
  for (const Node& node : nodes()) {
    if (&node == except) continue;
    all |= operation_bit(node.operation == GraphOperation::kPointwise ? pointwise_operation(node)
                                                                      : node.operation);
  }
  return all;
}

const PlanGraph::Tensor* PlanGraph::tensor(const Node& node, std::string_view port) const noexcept {
  for (const Port& one : node.ports)
    if (one.name == port) return find_tensor(one.tensor);
  return nullptr;
}

const PlanGraph::Tensor* PlanGraph::find_tensor(std::string_view name) const noexcept {
  for (const Tensor& tensor : tensors())
    if (tensor.name == name) return &tensor;
  return nullptr;
}

const PlanGraph::Node* PlanGraph::producer(const Tensor& tensor) const noexcept {
  for (const Node& node : nodes())
    if (PlanGraph::tensor(node, "Y") == &tensor) return &node;
  return nullptr;
}

DataType PlanGraph::stored_type(const Tensor& tensor, bool onward) const noexcept {
  // A gradient's operands are X and dY.
  const auto is_result = [](const Port& port) { return port.name == "Y" || port.name == "dX"; };
  DataType type = DataType::kUnknown;
  std::array<const Tensor*, kMaxTensors> reached{&tensor};
  std::size_t count = 1;
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor& from = *reached[i];
    if (from.is_given()) {
      if (type != DataType::kUnknown && type != from.type) return DataType::kUnknown;
      type = from.type;
      continue;
    }
    for (const Node& node : nodes()) {
      const auto has_it = [&](const Port& port) {
        return port.tensor == from.name && is_result(port) != onward;
      };
      if (node.operation != GraphOperation::kPointwise ||
          std::none_of(node.ports.begin(), node.ports.end(), has_it)) {
        continue;
      }
      for (const Port& port : node.ports) {
        const Tensor* to = is_result(port) == onward ? find_tensor(port.tensor) : nullptr;
        // Masks select; they do not hold what is multiplied.
        if (to == nullptr || to->by_value || to->type == DataType::kBool || to->size != tensor.size) continue;
        const auto end = reached.begin() + static_cast<std::ptrdiff_t>(count);
        if (std::find(reached.begin(), end, to) == end) reached[count++] = to;
      }
    }
  }
  return type;
}

std::uint64_t PlanGraph::given_bytes() const noexcept {
  if (tensor_count_ == kMaxTensors) return 0;  // some may have been left out
  TensorBytes bytes;
  for (const Tensor& tensor : tensors())
    if (tensor.is_given()) bytes.add(tensor.type, tensor.size.all(), tensor.stride.all());
  return bytes.sum();
}

ComputeType plan_compute_type(DataType math, DataType operand, std::uint32_t notes) noexcept {
  switch (math) {
    case DataType::kF32:
      // An engine that takes fp32 and runs on tensor cores rounds to TF32.
      return operand == DataType::kF32 && (notes & kEngineTensorCores) != 0 ? tf32_if_allowed()
                                                                            : ComputeType::kF32;
    case DataType::kF64:
      return ComputeType::kF64;
    case DataType::kF16:
      return ComputeType::kF16;
    case DataType::kI32:
      return ComputeType::kI32;
    case DataType::kUnknown:
      return ComputeType::kUnknown;
    default:
      return ComputeType::kOther;
  }
}

}  // namespace inject
