// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The operation graph of a cuDNN execution plan, read from the plan's text, with queries on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "libinject/base/json_reader.h"
#include "libinject/model/data_type.h"
#include "libinject/model/graph_operations.h"

namespace inject {

/// Holds views into the text, which must outlive it. Some 100 kB: too large for the stack of a program
/// thread. Tensors and nodes that do not fit are left out.
class PlanGraph {
 public:
  // Attention, the largest of today's graphs, has some forty of each.
  static constexpr std::size_t kMaxTensors = 128;
  static constexpr std::size_t kMaxNodes = 128;
  static constexpr std::size_t kMaxPorts = 1024;
  static constexpr std::size_t kMaxDimensions = 8;

  struct Numbers {
    std::size_t count = 0;
    std::array<std::int64_t, kMaxDimensions> at{};

    /// Counted from the end: 1 is the last.
    std::int64_t last(std::size_t n) const noexcept { return n <= count ? at[count - n] : 0; }
    std::span<const std::int64_t> all() const noexcept { return {at.data(), count}; }
    /// The product of the first `end` numbers; saturates.
    std::int64_t product(std::size_t end = kMaxDimensions) const noexcept;
    bool operator==(const Numbers&) const = default;
  };

  struct Tensor {
    std::string_view name;
    DataType type = DataType::kUnknown;
    Numbers size;
    Numbers stride;
    bool is_virtual = false;
    bool by_value = false;
    bool ragged = false;
    bool of_vectors = false;  // an element is several numbers

    /// True if it is in memory, an input or output of the graph.
    bool is_given() const noexcept { return !is_virtual && !by_value; }
  };

  /// An operation's named tensor.
  struct Port {
    std::string_view name;
    std::string_view tensor;
  };

  struct Node {
    GraphOperation operation = GraphOperation::kOther;
    std::string_view mode;  // of pointwise operations and normalizations
    std::string_view phase;
    DataType math = DataType::kUnknown;
    Numbers pad;
    Numbers stride;
    Numbers dilation;
    std::int64_t axis = -1;  // of an index operation
    std::span<const Port> ports;
  };

  PlanGraph() = default;
  PlanGraph(const PlanGraph&) = delete;  // its nodes hold views of its ports
  PlanGraph& operator=(const PlanGraph&) = delete;

  void read(std::string_view text) noexcept;

  /// True if the sizes of some tensor count vectors (4 or 32 int8) instead of numbers in one dimension.
  bool has_vectors() const noexcept;
  std::int32_t engine() const noexcept { return engine_; }
  std::span<const Tensor> tensors() const noexcept { return {tensors_.data(), tensor_count_}; }
  std::span<const Node> nodes() const noexcept { return {nodes_.data(), node_count_}; }

  std::size_t count(GraphOperation operation) const noexcept;
  /// The first node of an operation, or the next one after `after`; null if there is none.
  const Node* first(GraphOperation operation, const Node* after = nullptr) const noexcept;
  /// One bit for each operation of all nodes except one.
  std::uint32_t operations_except(const Node* except) const noexcept;

  /// Null if the node has no such port, or the graph no such tensor.
  const Tensor* tensor(const Node& node, std::string_view port) const noexcept;
  const Tensor* find_tensor(std::string_view name) const noexcept;
  /// The node that produces a tensor; null if there is none.
  const Node* producer(const Tensor& tensor) const noexcept;
  /// The type in which an operand of an operation is stored. If pointwise operations compute it, it is not in
  /// memory itself: then that of the tensors of its size that they begin with. Unknown if these differ.
  DataType operand_type(const Tensor& operand) const noexcept { return stored_type(operand, false); }
  /// The same for a result, and the tensors in which pointwise operations on it end.
  DataType result_type(const Tensor& result) const noexcept { return stored_type(result, true); }
  /// Bytes of all tensors in memory, whatever reads or writes them, once each; 0 if unknown.
  std::uint64_t given_bytes() const noexcept;

 private:
  void read_graph(JsonReader& json) noexcept;
  void read_tensor(JsonReader& json) noexcept;
  void read_node(JsonReader& json) noexcept;
  GraphOperation pointwise_operation(const Node& node) const noexcept;
  DataType stored_type(const Tensor& tensor, bool onward) const noexcept;

  std::array<Tensor, kMaxTensors> tensors_{};
  std::array<Node, kMaxNodes> nodes_{};
  std::array<Port, kMaxPorts> ports_{};
  std::size_t tensor_count_ = 0;
  std::size_t node_count_ = 0;
  std::size_t port_count_ = 0;
  std::int32_t engine_ = -1;
};

/// The type in which an operation computes. `operand`: the type of what it multiplies; `notes`: the engine's.
ComputeType plan_compute_type(DataType math, DataType operand, std::uint32_t notes) noexcept;

}  // namespace inject
