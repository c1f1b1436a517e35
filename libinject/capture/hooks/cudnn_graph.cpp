// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "libinject/base/json_reader.h"
#include "libinject/capture/hooks/tf32.h"
#include "libinject/model/graph_operations.h"

namespace inject {

namespace {

// Attention, the largest of today's graphs, has some forty of either. What lies beyond is not looked at.
constexpr std::size_t kMaxTensors = 128;
constexpr std::size_t kMaxNodes = 128;
constexpr std::size_t kMaxPorts = 1024;
constexpr std::size_t kMaxDimensions = 8;
constexpr std::size_t kNone = ~std::size_t{0};

struct Numbers {
  std::size_t count = 0;
  std::array<std::int64_t, kMaxDimensions> at{};

  /// From the end: 1 is the last.
  std::int64_t last(std::size_t n) const noexcept { return n <= count ? at[count - n] : 0; }
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
  std::int64_t axis = -1;  // of an index
  std::size_t first_port = 0;
  std::size_t ports = 0;
};

DataType data_type_of(std::string_view name) noexcept {
  struct Entry {
    std::string_view name;
    DataType type;
  };
  constexpr Entry kTypes[] = {
      {"CUDNN_DATA_FLOAT", DataType::kF32},
      {"CUDNN_DATA_DOUBLE", DataType::kF64},
      {"CUDNN_DATA_HALF", DataType::kF16},
      {"CUDNN_DATA_BFLOAT16", DataType::kBf16},
      {"CUDNN_DATA_FP8_E4M3", DataType::kF8E4M3},
      {"CUDNN_DATA_FP8_E5M2", DataType::kF8E5M2},
      {"CUDNN_DATA_FP4_E2M1", DataType::kF4},
      {"CUDNN_DATA_FP8_E8M0", DataType::kF8E8M0},
      {"CUDNN_DATA_INT8", DataType::kI8},
      {"CUDNN_DATA_INT8x4", DataType::kI8},
      {"CUDNN_DATA_INT8x32", DataType::kI8},
      {"CUDNN_DATA_UINT8", DataType::kU8},
      {"CUDNN_DATA_UINT8x4", DataType::kU8},
      {"CUDNN_DATA_INT32", DataType::kI32},
      {"CUDNN_DATA_INT64", DataType::kI64},
      {"CUDNN_DATA_BOOLEAN", DataType::kBool},
      {"CUDNN_DATA_COMPLEX_FP32", DataType::kC64},
      {"CUDNN_DATA_COMPLEX_FP64", DataType::kC128},
      // Products of fp8 that are summed up in fp32 with fewer bits.
      {"CUDNN_DATA_FAST_FLOAT_FOR_FP8", DataType::kF32},
  };
  for (const Entry& entry : kTypes)
    if (entry.name == name) return entry.type;
  return name.empty() ? DataType::kUnknown : DataType::kOther;
}

GraphOperation operation_of(std::string_view name) noexcept {
  struct Entry {
    std::string_view name;
    GraphOperation operation;
  };
  constexpr std::string_view kPrefix = "CUDNN_BACKEND_OPERATION_";
  constexpr std::string_view kSuffix = "_DESCRIPTOR";
  constexpr Entry kOperations[] = {
      {"CONVOLUTION_FORWARD", GraphOperation::kConvolution},
      {"CONVOLUTION_BACKWARD_DATA", GraphOperation::kConvolutionDataGradient},
      {"CONVOLUTION_BACKWARD_FILTER", GraphOperation::kConvolutionFilterGradient},
      {"MATMUL", GraphOperation::kMatmul},
      {"BLOCK_SCALE_MATMUL", GraphOperation::kMatmul},
      {"POINTWISE", GraphOperation::kPointwise},
      {"REDUCTION", GraphOperation::kReduction},
      {"GEN_STATS", GraphOperation::kStatistics},
      {"NORM_FORWARD", GraphOperation::kNormalization},
      {"NORM_BACKWARD", GraphOperation::kNormalizationGradient},
      {"BN_FINALIZE_STATISTICS", GraphOperation::kNormalizationFinish},
      {"BN_BWD_WEIGHTS", GraphOperation::kNormalizationFinish},
      {"RESAMPLE_FWD", GraphOperation::kPooling},
      {"RESAMPLE_BWD", GraphOperation::kPoolingGradient},
      {"CONCAT", GraphOperation::kConcat},
      {"RESHAPE", GraphOperation::kReshape},
      {"RNG", GraphOperation::kRandom},
      {"SOFTMAX", GraphOperation::kSoftmax},
      {"SDPA_FWD", GraphOperation::kAttention},
      {"SDPA_BWD", GraphOperation::kAttentionGradient},
      {"PAGED_CACHE_LOAD", GraphOperation::kPagedLoad},
      {"BLOCK_SCALE_QUANTIZE", GraphOperation::kScaling},
      {"BLOCK_SCALE_DEQUANTIZE", GraphOperation::kScaling},
      {"MOE_GROUPED_MATMUL", GraphOperation::kExperts},
  };
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  for (const Entry& entry : kOperations)
    if (entry.name == name) return entry.operation;
  return GraphOperation::kOther;
}

GraphOperation pointwise_operation(std::string_view mode) noexcept {
  constexpr std::string_view kPrefix = "CUDNN_POINTWISE_";
  if (mode.starts_with(kPrefix)) mode.remove_prefix(kPrefix.size());
  if (mode.ends_with("_BWD")) return GraphOperation::kActivationGradient;
  if (mode == "ADD") return GraphOperation::kAdd;
  if (mode == "MUL") return GraphOperation::kMultiply;
  if (mode == "RELU_FWD") return GraphOperation::kRelu;
  if (mode == "GELU_FWD" || mode == "GELU_APPROX_TANH_FWD") return GraphOperation::kGelu;
  if (mode == "SWISH_FWD") return GraphOperation::kSwish;
  if (mode == "SIGMOID_FWD") return GraphOperation::kSigmoid;
  if (mode == "TANH_FWD") return GraphOperation::kTanh;
  if (mode == "ELU_FWD") return GraphOperation::kElu;
  return GraphOperation::kPointwise;
}

ComputeType compute_type_of(DataType math, DataType operand, std::uint32_t notes) noexcept {
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

template <typename To>
To clamped(std::int64_t value) noexcept {
  return static_cast<To>(
      std::clamp<std::int64_t>(value, 0, static_cast<std::int64_t>(std::numeric_limits<To>::max())));
}

/// The product of sizes, at most what fits.
std::int64_t product(const Numbers& size, std::size_t end) noexcept {
  std::int64_t all = 1;
  for (std::size_t i = 0; i < std::min(end, size.count); ++i)
    if (__builtin_mul_overflow(all, size.at[i], &all)) return std::numeric_limits<std::int64_t>::max();
  return all;
}

class Graph {
 public:
  void read(std::string_view json) noexcept;
  CallShape shape(std::uint32_t notes) const noexcept;

 private:
  void read_graph(JsonReader& json) noexcept;
  void read_tensor(JsonReader& json) noexcept;
  void read_node(JsonReader& json) noexcept;

  const Tensor* tensor(const Node& node, std::string_view port) const noexcept;
  std::size_t index_of(std::string_view name) const noexcept;
  DataType stored_type(const Tensor& tensor) const noexcept;
  const Tensor* before_scaling(const Tensor* tensor, const Node** scaling) const noexcept;
  const Node* producer(const Tensor& tensor) const noexcept;
  bool is_index(const Tensor& tensor, std::int64_t axis) const noexcept;
  std::uint32_t causal_flags(const Tensor& rows, const Tensor& columns) const noexcept;
  std::uint32_t operations_but(std::size_t except) const noexcept;
  GraphOperation operation_of_pointwise(const Node& node) const noexcept;
  std::size_t count(GraphOperation operation) const noexcept;
  std::size_t first(GraphOperation operation, std::size_t from = 0) const noexcept;

  CallShape convolution(std::size_t at, std::uint32_t notes) const noexcept;
  CallShape normalization(std::size_t at) const noexcept;
  CallShape attention(std::size_t at, std::uint32_t notes) const noexcept;
  CallShape attention_of_parts(std::uint32_t notes) const noexcept;
  CallShape product_of(std::size_t at, std::uint32_t notes) const noexcept;
  bool leads_to_exponential(std::string_view from) const noexcept;
  std::uint32_t attention_flags(std::int64_t key_length) const noexcept;

  std::array<Tensor, kMaxTensors> tensors_{};
  std::array<Node, kMaxNodes> nodes_{};
  std::array<Port, kMaxPorts> ports_{};
  std::size_t tensor_count_ = 0;
  std::size_t node_count_ = 0;
  std::size_t port_count_ = 0;
  std::int32_t engine_ = -1;
};

void read_numbers(JsonReader& json, Numbers& numbers) noexcept {
  numbers.count = 0;
  json.array([&] {
    const std::int64_t value = json.integer();
    if (numbers.count < kMaxDimensions) numbers.at[numbers.count++] = value;
  });
}

void Graph::read(std::string_view text) noexcept {
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

void Graph::read_graph(JsonReader& json) noexcept {
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

void Graph::read_tensor(JsonReader& json) noexcept {
  Tensor& tensor = tensors_[tensor_count_++];
  json.object([&](std::string_view key) {
    const char next = json.peek();
    if (key == "name" && next == '"') tensor.name = json.string();
    if (key == "dataType" && next == '"') tensor.type = data_type_of(json.string());
    if (key == "dim" && next == '[') read_numbers(json, tensor.size);
    if (key == "stride" && next == '[') read_numbers(json, tensor.stride);
    if (next == 't' || next == 'f') {
      const bool value = json.boolean();
      if (key == "isVirtual") tensor.is_virtual = value;
      if (key == "isByValue") tensor.by_value = value;
      if (key == "isRagged") tensor.ragged = value;
    }
  });
}

void Graph::read_node(JsonReader& json) noexcept {
  Node& node = nodes_[node_count_++];
  node.first_port = port_count_;
  json.object([&](std::string_view key) {
    const char next = json.peek();
    if (next == '"') {
      const std::string_view value = json.string();
      if (key == "operation") {
        node.operation = operation_of(value);
      } else if (key == "mode" || key == "pointwiseMode") {
        node.mode = value;
      } else if (key == "fmode" || key == "phase") {
        node.phase = value;
      } else if (key == "mathPrec") {
        node.math = data_type_of(value);
      } else if (port_count_ < kMaxPorts) {
        ports_[port_count_++] = {key, value};
      }
    } else if (next == '[') {
      // Where what is put before and after differs, it is said apart.
      if (key == "pad" || key == "pad_lower") read_numbers(json, node.pad);
      if (key == "stride") read_numbers(json, node.stride);
      if (key == "dilation") read_numbers(json, node.dilation);
    } else if (key == "axis" && (next == '-' || (next >= '0' && next <= '9'))) {
      node.axis = json.integer();
    }
  });
  node.ports = port_count_ - node.first_port;
}

std::size_t Graph::index_of(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < tensor_count_; ++i)
    if (tensors_[i].name == name) return i;
  return kNone;
}

const Tensor* Graph::tensor(const Node& node, std::string_view port) const noexcept {
  for (std::size_t i = node.first_port; i < node.first_port + node.ports; ++i) {
    if (ports_[i].name != port) continue;
    const std::size_t index = index_of(ports_[i].tensor);
    return index == kNone ? nullptr : &tensors_[index];
  }
  return nullptr;
}

/// In what a tensor is stored: what fused operations hand on never is, but its like at the graph's edge.
DataType Graph::stored_type(const Tensor& tensor) const noexcept {
  if (!tensor.is_virtual) return tensor.type;
  for (std::size_t i = 0; i < tensor_count_; ++i)
    if (tensors_[i].is_given() && tensors_[i].size == tensor.size) return tensors_[i].type;
  return tensor.type;
}

/// Operands that are scaled by blocks (mxfp8, nvfp4) are stored in few bits, and reach the product as a
/// tensor of more that nothing ever stores: the one that is stored, or `tensor` itself. What scaling nodes
/// call their tensors differs; theirs of the operand's size is it. `scaling`: the node in between, else null.
const Tensor* Graph::before_scaling(const Tensor* tensor, const Node** scaling) const noexcept {
  *scaling = nullptr;
  if (tensor == nullptr || !tensor->is_virtual) return tensor;
  for (std::size_t i = 0; i < node_count_; ++i) {
    const Node& node = nodes_[i];
    if (node.operation != GraphOperation::kScaling) continue;
    const Tensor* stored = nullptr;
    bool is_its = false;
    for (std::size_t p = node.first_port; p < node.first_port + node.ports; ++p) {
      const std::size_t index = index_of(ports_[p].tensor);
      if (index == kNone) continue;
      const Tensor& other = tensors_[index];
      is_its = is_its || &other == tensor;
      if (other.is_given() && other.size == tensor->size) stored = &other;
    }
    if (!is_its || stored == nullptr) continue;
    *scaling = &node;
    return stored;
  }
  return tensor;
}

const Node* Graph::producer(const Tensor& tensor) const noexcept {
  for (std::size_t i = 0; i < node_count_; ++i) {
    if (Graph::tensor(nodes_[i], "Y") == &tensor) return &nodes_[i];
  }
  return nullptr;
}

/// Whether a tensor holds each element's place along an axis.
bool Graph::is_index(const Tensor& tensor, std::int64_t axis) const noexcept {
  const Node* node = producer(tensor);
  return node != nullptr && node->mode == "CUDNN_POINTWISE_GEN_INDEX" && node->axis == axis;
}

/// Of a mask that keeps a score where `rows` is at least `columns`. cudnn-frontend aligns its diagonal with
/// the scores' last corner by adding the number of keys to a row's index and taking that of the queries away.
std::uint32_t Graph::causal_flags(const Tensor& rows, const Tensor& columns) const noexcept {
  constexpr std::int64_t kRows = 2;
  constexpr std::int64_t kColumns = 3;
  if (!is_index(columns, kColumns)) return kAttentionCausal | kAttentionShifted;
  if (is_index(rows, kRows)) return kAttentionCausal;
  const auto operands = [this](const Node* node, std::string_view mode) -> const Tensor* {
    if (node == nullptr || node->mode != mode) return nullptr;
    const Tensor* number = tensor(*node, "B");
    return number != nullptr && number->by_value ? tensor(*node, "X") : nullptr;
  };
  const Tensor* sum = operands(producer(rows), "CUDNN_POINTWISE_SUB");
  const Tensor* row = sum == nullptr ? nullptr : operands(producer(*sum), "CUDNN_POINTWISE_ADD");
  return row != nullptr && is_index(*row, kRows) ? kAttentionCausal | kAttentionBottomRight
                                                 : kAttentionCausal | kAttentionShifted;
}

GraphOperation Graph::operation_of_pointwise(const Node& node) const noexcept {
  const GraphOperation operation = pointwise_operation(node.mode);
  if (operation != GraphOperation::kAdd) return operation;
  const Tensor* result = tensor(node, "Y");
  if (result == nullptr) return operation;
  for (const std::string_view port : {"X", "B"}) {
    const Tensor* operand = tensor(node, port);
    if (operand != nullptr && operand->is_given() &&
        product(operand->size, kMaxDimensions) < product(result->size, kMaxDimensions)) {
      return GraphOperation::kBias;
    }
  }
  return operation;
}

std::uint32_t Graph::operations_but(std::size_t except) const noexcept {
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < node_count_; ++i) {
    if (i == except) continue;
    const Node& node = nodes_[i];
    all |= operation_bit(node.operation == GraphOperation::kPointwise ? operation_of_pointwise(node)
                                                                      : node.operation);
  }
  return all;
}

std::size_t Graph::count(GraphOperation operation) const noexcept {
  std::size_t found = 0;
  for (std::size_t i = 0; i < node_count_; ++i) found += nodes_[i].operation == operation ? 1 : 0;
  return found;
}

std::size_t Graph::first(GraphOperation operation, std::size_t from) const noexcept {
  for (std::size_t i = from; i < node_count_; ++i)
    if (nodes_[i].operation == operation) return i;
  return kNone;
}

/// 1 channels first, 2 channels last, 0 where it can't be told or is neither.
std::uint8_t layout_of(const Tensor& tensor) noexcept {
  if (tensor.size.count < 3 || tensor.stride.count != tensor.size.count) return 0;
  if (tensor.size.at[1] <= 1) return 0;  // one channel lies the same either way
  if (tensor.stride.last(1) == 1) return 1;
  return tensor.stride.at[1] == 1 ? 2 : 0;
}

/// Into the last places, as fewer dimensions than three are the last ones.
template <typename To>
void place(std::array<To, 3>& into, const Numbers& from, std::size_t skipped) noexcept {
  const std::size_t count = std::min<std::size_t>(from.count - std::min(skipped, from.count), into.size());
  for (std::size_t i = 0; i < count; ++i) into[into.size() - count + i] = clamped<To>(from.at[skipped + i]);
}

CallShape Graph::convolution(std::size_t at, std::uint32_t notes) const noexcept {
  const Node& node = nodes_[at];
  const bool forward = node.operation == GraphOperation::kConvolution;
  const bool to_data = node.operation == GraphOperation::kConvolutionDataGradient;
  const Tensor* x = tensor(node, to_data ? "dX" : "X");
  const Tensor* w = tensor(node, forward || to_data ? "W" : "dW");
  const Tensor* y = tensor(node, forward ? "Y" : "dY");
  if (x == nullptr || w == nullptr || y == nullptr) return {};
  const std::size_t rank = x->size.count;
  if (rank < 3 || rank > 5 || w->size.count != rank || y->size.count != rank) return {};
  ConvolutionShape shape;
  shape.direction = forward ? 1 : to_data ? 2 : 3;
  shape.dimensions = static_cast<std::uint8_t>(rank - 2);
  shape.x = stored_type(*x);
  shape.w = stored_type(*w);
  shape.y = stored_type(*y);
  shape.compute = compute_type_of(node.math, to_data ? shape.y : shape.x, notes);
  for (const Tensor* of : {x, y, w})
    if (shape.layout == 0) shape.layout = layout_of(*of);
  shape.fused = operations_but(at);
  shape.engine = engine_;
  shape.n = clamped<std::uint32_t>(x->size.at[0]);
  shape.c = clamped<std::uint32_t>(x->size.at[1]);
  shape.k = clamped<std::uint32_t>(w->size.at[0]);
  const std::int64_t channels = w->size.at[1];  // of one group
  shape.groups = channels > 0 ? std::max<std::uint32_t>(1, shape.c / clamped<std::uint32_t>(channels)) : 1;
  place(shape.in, x->size, 2);
  place(shape.filter, w->size, 2);
  place(shape.out, y->size, 2);
  place(shape.pad, node.pad, 0);
  place(shape.stride, node.stride, 0);
  place(shape.dilation, node.dilation, 0);
  shape.notes = notes;
  return shape;
}

CallShape Graph::normalization(std::size_t at) const noexcept {
  const Node& node = nodes_[at];
  const Tensor* x = tensor(node, "X");
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
  shape.fused = operations_but(at);
  return shape;
}

std::uint32_t Graph::attention_flags(std::int64_t key_length) const noexcept {
  std::uint32_t flags = 0;
  for (std::size_t i = 0; i < tensor_count_; ++i)
    if (tensors_[i].ragged) flags |= kAttentionRagged;
  for (std::size_t i = 0; i < node_count_; ++i) {
    const Node& node = nodes_[i];
    if (node.operation == GraphOperation::kRandom) flags |= kAttentionDropout;
    if (node.operation == GraphOperation::kPagedLoad) flags |= kAttentionPaged;
    for (const std::string_view port : {"seqLenQ", "seqLenKV", "seqLenQDesc", "seqLenKVDesc"})
      if (tensor(node, port) != nullptr) flags |= kAttentionRagged;
    for (const std::string_view port : {"pageTableK", "pageTableV"})
      if (tensor(node, port) != nullptr) flags |= kAttentionPaged;
    if (node.operation != GraphOperation::kPointwise) continue;
    const Tensor* x = tensor(node, "X");
    const Tensor* b = tensor(node, "B");
    if (x == nullptr || b == nullptr) continue;
    // Masks compare the index of a row with that of a column; padding compares one with a length.
    const bool of_indices = x->is_virtual && b->is_virtual;
    if (node.mode == "CUDNN_POINTWISE_CMP_GE" && of_indices) flags |= causal_flags(*x, *b);
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

/// One operation that is all of the attention.
CallShape Graph::attention(std::size_t at, std::uint32_t notes) const noexcept {
  const Node& node = nodes_[at];
  const bool forward = node.operation == GraphOperation::kAttention;
  const Tensor* q = tensor(node, forward ? "Q" : "qDesc");
  const Tensor* k = tensor(node, forward ? "K" : "kDesc");
  const Tensor* v = tensor(node, forward ? "V" : "vDesc");
  if (q == nullptr || k == nullptr || v == nullptr) return {};
  if (q->size.count != 4 || k->size.count != 4 || v->size.count != 4) return {};
  AttentionShape shape;
  shape.direction = forward ? 1 : 2;
  shape.type = q->type;
  shape.compute =
      compute_type_of(node.math == DataType::kUnknown ? DataType::kF32 : node.math, q->type, notes);
  shape.flags = attention_flags(k->size.at[2]);
  shape.engine = engine_;
  shape.batch = clamped<std::uint32_t>(q->size.at[0]);
  shape.heads = clamped<std::uint32_t>(q->size.at[1]);
  shape.kv_heads = clamped<std::uint32_t>(k->size.at[1]);
  shape.query_length = clamped<std::uint32_t>(q->size.at[2]);
  shape.key_length = clamped<std::uint32_t>(k->size.at[2]);
  if (const Tensor* pages = tensor(node, "pageTableK"); pages != nullptr && pages->size.count == 4) {
    // As many pages of as many keys.
    std::int64_t keys = 0;
    if (__builtin_mul_overflow(pages->size.at[2], k->size.at[2], &keys)) keys = 0;
    shape.key_length = clamped<std::uint32_t>(keys);
  }
  shape.head_size = clamped<std::uint32_t>(q->size.at[3]);
  shape.value_head_size = clamped<std::uint32_t>(v->size.at[3]);
  return shape;
}

/// Whether a tensor goes through pointwise operations into an exponential: the scores that softmax takes.
bool Graph::leads_to_exponential(std::string_view from) const noexcept {
  std::array<bool, kMaxNodes> seen{};
  std::array<std::string_view, kMaxNodes + 1> open{};
  std::size_t count = 0;
  open[count++] = from;
  while (count != 0) {
    const std::string_view name = open[--count];
    for (std::size_t i = 0; i < node_count_; ++i) {
      const Node& node = nodes_[i];
      if (seen[i]) continue;
      if (node.operation == GraphOperation::kMatmul) continue;
      for (std::size_t p = node.first_port; p < node.first_port + node.ports; ++p) {
        const Port& port = ports_[p];
        if (port.name == "Y" || port.name == "outputDesc" || port.tensor != name) continue;
        if (node.operation == GraphOperation::kSoftmax || node.mode == "CUDNN_POINTWISE_EXP") return true;
        seen[i] = true;
        for (std::size_t q = node.first_port; q < node.first_port + node.ports; ++q)
          if (ports_[q].name == "Y" && count < open.size()) open[count++] = ports_[q].tensor;
        break;
      }
    }
  }
  return false;
}

/// Attention that is spelled out: Q Kᵀ, softmax, its product with V; of the gradient five products.
CallShape Graph::attention_of_parts(std::uint32_t notes) const noexcept {
  const std::size_t products = count(GraphOperation::kMatmul);
  if (products != 2 && products != 5) return {};
  std::size_t scores = kNone;
  for (std::size_t at = first(GraphOperation::kMatmul); at != kNone && scores == kNone;
       at = first(GraphOperation::kMatmul, at + 1)) {
    for (std::size_t p = nodes_[at].first_port; p < nodes_[at].first_port + nodes_[at].ports; ++p)
      if (ports_[p].name == "matC" && leads_to_exponential(ports_[p].tensor)) scores = at;
  }
  if (scores == kNone) return {};
  const Tensor* q = tensor(nodes_[scores], "matA");
  const Tensor* k = tensor(nodes_[scores], "matB");
  const Tensor* s = tensor(nodes_[scores], "matC");
  if (q == nullptr || k == nullptr || s == nullptr) return {};
  if (q->size.count != 4 || k->size.count != 4 || s->size.count != 4) return {};

  AttentionShape shape;
  shape.direction = products == 2 ? 1 : 2;
  shape.value_head_size = clamped<std::uint32_t>(q->size.at[3]);
  for (std::size_t at = first(GraphOperation::kMatmul); at != kNone;
       at = first(GraphOperation::kMatmul, at + 1)) {
    if (at == scores) continue;
    const Tensor* a = tensor(nodes_[at], "matA");
    const Tensor* b = tensor(nodes_[at], "matB");
    if (a == nullptr || b == nullptr) continue;
    // Forward the scores times V; of the gradient dO times Vᵀ, the other product of two tensors from outside.
    if (products == 2) {
      shape.value_head_size = clamped<std::uint32_t>(b->size.last(1));
    } else if (a->is_given() && b->is_given()) {
      shape.value_head_size = clamped<std::uint32_t>(a->size.last(1));
    }
  }
  shape.type = q->type;
  shape.compute = compute_type_of(nodes_[scores].math, q->type, notes);
  shape.flags = attention_flags(s->size.at[3]);
  shape.engine = engine_;
  shape.batch = clamped<std::uint32_t>(s->size.at[0]);
  shape.heads = clamped<std::uint32_t>(q->size.at[1]);
  shape.kv_heads = clamped<std::uint32_t>(k->size.at[1]);
  shape.query_length = clamped<std::uint32_t>(s->size.at[2]);
  shape.key_length = clamped<std::uint32_t>(s->size.at[3]);
  shape.head_size = clamped<std::uint32_t>(q->size.at[3]);
  return shape;
}

/// A product whose result is row-major is, column-major, that of the operands' transposes the other way
/// round.
CallShape Graph::product_of(std::size_t at, std::uint32_t notes) const noexcept {
  const Node* scaling_a = nullptr;
  const Node* scaling_b = nullptr;
  const Node* scaling_c = nullptr;
  const Tensor* a = before_scaling(tensor(nodes_[at], "matA"), &scaling_a);
  const Tensor* b = before_scaling(tensor(nodes_[at], "matB"), &scaling_b);
  const Tensor* c = before_scaling(tensor(nodes_[at], "matC"), &scaling_c);
  if (a == nullptr || b == nullptr || c == nullptr) return {};
  for (const Tensor* matrix : {a, b, c})
    if (matrix->size.count < 2 || matrix->stride.count != matrix->size.count) return {};
  const bool row_major = c->stride.last(1) == 1;
  // Whether a matrix lies transposed to how the product has it.
  const auto is_row_major = [](const Tensor& matrix) { return matrix.stride.last(1) == 1; };
  const auto leading = [](const Tensor& matrix) {
    return std::max(matrix.stride.last(1), matrix.stride.last(2));
  };
  GemmShape shape;
  const Tensor* left = row_major ? b : a;
  const Tensor* right = row_major ? a : b;
  shape.op_a = is_row_major(*left) == row_major ? 'N' : 'T';
  shape.op_b = is_row_major(*right) == row_major ? 'N' : 'T';
  shape.a = stored_type(*left);
  shape.b = stored_type(*right);
  shape.c = stored_type(*c);
  shape.d = shape.c;
  shape.compute = compute_type_of(nodes_[at].math, stored_type(*a), notes);
  if (scaling_a != nullptr || scaling_b != nullptr) shape.flags |= kGemmBlockScaled;
  const std::uint32_t fused = operations_but(at);
  constexpr std::uint32_t kBias = operation_bit(GraphOperation::kBias);
  constexpr std::uint32_t kRelu = operation_bit(GraphOperation::kRelu);
  constexpr std::uint32_t kGelu = operation_bit(GraphOperation::kGelu);
  // As cublasLtEpilogue_t has them.
  shape.epilogue = fused == kRelu             ? 2
                   : fused == kBias           ? 4
                   : fused == (kRelu | kBias) ? 6
                   : fused == kGelu           ? 32
                   : fused == (kGelu | kBias) ? 36
                                              : 0;
  shape.m = row_major ? c->size.last(1) : c->size.last(2);
  shape.n = row_major ? c->size.last(2) : c->size.last(1);
  shape.k = a->size.last(1);
  const std::int64_t batch = product(c->size, c->size.count - 2);
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0 || batch <= 0) return {};
  shape.batch = clamped<std::uint32_t>(batch);
  shape.lda = leading(*left);
  shape.ldb = leading(*right);
  shape.ldc = leading(*c);
  std::int64_t flops = 2;
  for (const std::int64_t factor : {shape.m, shape.n, shape.k, batch})
    if (__builtin_mul_overflow(flops, factor, &flops)) return {};
  shape.flops = static_cast<std::uint64_t>(flops);
  const auto add = [&shape](const Tensor& matrix, DataType type) {
    std::int64_t bits = 0;
    const auto element = static_cast<std::int64_t>(data_type_bits(type));
    if (!__builtin_mul_overflow(product(matrix.size, kMaxDimensions), element, &bits))
      shape.bytes += static_cast<std::uint64_t>(bits) / 8;
  };
  for (const Tensor* matrix : {a, b, c}) add(*matrix, stored_type(*matrix));
  // The factors of the blocks.
  for (const auto& [scaling, matrix] :
       {std::pair(scaling_a, a), std::pair(scaling_b, b), std::pair(scaling_c, c)}) {
    if (scaling == nullptr) continue;
    for (std::size_t p = scaling->first_port; p < scaling->first_port + scaling->ports; ++p) {
      const std::size_t index = index_of(ports_[p].tensor);
      if (index != kNone && tensors_[index].is_given() && &tensors_[index] != matrix)
        add(tensors_[index], tensors_[index].type);
    }
  }
  return shape;
}

CallShape Graph::shape(std::uint32_t notes) const noexcept {
  if (node_count_ == 0) return {};
  CallShape shape;
  for (const GraphOperation operation :
       {GraphOperation::kConvolution, GraphOperation::kConvolutionDataGradient,
        GraphOperation::kConvolutionFilterGradient}) {
    if (const std::size_t at = first(operation); at != kNone && shape.kind() == ShapeKind::kNone)
      shape = convolution(at, notes);
  }
  for (const GraphOperation operation : {GraphOperation::kAttention, GraphOperation::kAttentionGradient}) {
    if (const std::size_t at = first(operation); at != kNone && shape.kind() == ShapeKind::kNone)
      shape = attention(at, notes);
  }
  if (shape.kind() == ShapeKind::kNone) shape = attention_of_parts(notes);
  for (const GraphOperation operation :
       {GraphOperation::kNormalization, GraphOperation::kNormalizationGradient}) {
    if (const std::size_t at = first(operation); at != kNone && shape.kind() == ShapeKind::kNone)
      shape = normalization(at);
  }
  if (shape.kind() == ShapeKind::kNone && count(GraphOperation::kMatmul) == 1)
    shape = product_of(first(GraphOperation::kMatmul), notes);
  if (shape.kind() != ShapeKind::kNone) return shape;
  OtherGraphShape other;
  other.engine = engine_;
  other.operations = operations_but(kNone);
  return other;
}

}  // namespace

CallShape shape_of_plan(std::string_view json, std::uint32_t notes) noexcept {
  // Some 100 kB: too much for the stack of a thread that isn't ours.
  const std::unique_ptr<Graph> graph(new (std::nothrow) Graph);
  if (graph == nullptr) return {};
  graph->read(json);
  return graph->shape(notes);
}

}  // namespace inject
