// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a library call computes, read from its arguments: plain data without pointers, compared by its bytes.
// Each kind has its own struct, stored at the beginning of a CallShape; unused bytes are zero.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "libinject/model/data_type.h"

namespace inject {

enum class ShapeKind : std::uint8_t {
  kNone = 0,
  kGemm,
  kConvolution,
  kAttention,
  kNormalization,
  kRnn,
  kCollective,
  kOtherGraph,  ///< a cuDNN graph that is none of these
  kOperator,    ///< not a library call, but an operator of the program's framework
};

/// op(A) · op(B) as in cuBLAS: column-major, C of M × N. A matrix-vector product has N = 1.
struct GemmShape {
  static constexpr ShapeKind kKind = ShapeKind::kGemm;
  ShapeKind kind = kKind;
  char op_a = 'N';  ///< N, T or C; 0 where the groups of a grouped product differ
  char op_b = 'N';
  DataType a = DataType::kUnknown;
  DataType b = DataType::kUnknown;
  DataType c = DataType::kUnknown;
  DataType d = DataType::kUnknown;  ///< the output; equals `c` except in cuBLASLt
  ComputeType compute = ComputeType::kUnknown;
  std::uint32_t epilogue = 0;  ///< cublasLtEpilogue_t; 0: none
  std::uint32_t groups = 0;    ///< of a grouped product, in which a size is 0 if it differs
  std::uint8_t align_a = 0;    ///< log2 of the alignment of the matrix's address, at most 4
  std::uint8_t align_b = 0;
  std::uint8_t align_c = 0;
  std::uint8_t flags = 0;  ///< GemmFlags
  std::uint32_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;  ///< leading dimensions, in elements
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  std::uint64_t flops = 0;  ///< of the whole call; eight per multiply-add of complex numbers
  /// A and B read, C written, once each; data shared within a batch, once. In a cuDNN graph, all tensors in
  /// memory. 0: unknown.
  std::uint64_t bytes = 0;
};

enum GemmFlags : std::uint8_t {
  kGemmOtherOrder = 1,   ///< a matrix is not column-major: alignments of sizes have another meaning
  kGemmBlockScaled = 2,  ///< each block of an operand's elements has its own factor: mxfp8, nvfp4
};

struct ConvolutionShape {
  static constexpr ShapeKind kKind = ShapeKind::kConvolution;
  ShapeKind kind = kKind;
  std::uint8_t direction = 0;   ///< 1 forward, 2 data gradient, 3 filter gradient
  std::uint8_t dimensions = 0;  ///< number of spatial dimensions, 1 to 3
  DataType x = DataType::kUnknown;
  DataType w = DataType::kUnknown;
  DataType y = DataType::kUnknown;
  ComputeType compute = ComputeType::kUnknown;
  std::uint8_t layout = 0;   ///< 1 channels first (NCHW), 2 channels last (NHWC), 0 anything else
  std::uint32_t fused = 0;   ///< other operations of the same graph (model/graph_operations.h)
  std::int32_t engine = -1;  ///< cuDNN's engine, or the legacy call's algorithm
  std::uint32_t n = 0;
  std::uint32_t c = 0;
  std::uint32_t k = 0;
  std::uint32_t groups = 1;
  std::array<std::uint32_t, 3> in{};      ///< D, H, W of the input; with fewer dimensions, the last ones
  std::array<std::uint32_t, 3> filter{};  ///< T, R, S
  std::array<std::uint32_t, 3> out{};
  std::array<std::uint16_t, 3> pad{};
  std::array<std::uint16_t, 3> stride{};
  std::array<std::uint16_t, 3> dilation{};
  std::uint16_t legacy = 0;  ///< 1: `engine` is a legacy algorithm
  std::uint32_t notes = 0;   ///< EngineNotes
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;  ///< of all tensors that the call reads or writes, once each; 0: unknown
};

/// cuDNN's numerical notes on an engine's arithmetic, by their numbers.
enum EngineNotes : std::uint32_t {
  kEngineTensorCores = 1u << 0,
  kEngineDownConverts = 1u << 1,
  kEngineReducedPrecision = 1u << 2,
  kEngineFft = 1u << 3,
  kEngineNondeterministic = 1u << 4,
  kEngineWinograd = 1u << 5,
  kEngineNotesKnown = 1u << 31,  ///< the notes have been queried
};

struct AttentionShape {
  static constexpr ShapeKind kKind = ShapeKind::kAttention;
  ShapeKind kind = kKind;
  std::uint8_t direction = 0;  ///< 1 forward, 2 backward
  DataType type = DataType::kUnknown;
  ComputeType compute = ComputeType::kUnknown;
  std::uint32_t flags = 0;  ///< AttentionFlags
  std::int32_t engine = -1;
  std::uint32_t batch = 0;
  std::uint32_t heads = 0;  ///< of the queries
  std::uint32_t kv_heads = 0;
  std::uint32_t query_length = 0;
  std::uint32_t key_length = 0;
  std::uint32_t head_size = 0;  ///< of queries and keys
  std::uint32_t value_head_size = 0;
  std::uint64_t bytes = 0;  ///< as for convolutions
};

enum AttentionFlags : std::uint32_t {
  kAttentionCausal = 1,
  kAttentionBias = 2,
  kAttentionDropout = 4,
  kAttentionRagged = 8,   ///< lengths vary; those above are the longest
  kAttentionWindow = 16,  ///< only nearby keys are used
  kAttentionPaged = 32,   ///< keys and values are stored in pages
  // The position of the causal mask's diagonal, if not at the scores' first corner, where query 0 sees only
  // key 0.
  kAttentionBottomRight = 64,  ///< the last query sees the last key
  kAttentionShifted = 128,     ///< at an unknown position
  kAttentionProjected = 256,   ///< the call also multiplies by weights, whose sizes are not here
};

struct NormalizationShape {
  static constexpr ShapeKind kKind = ShapeKind::kNormalization;
  ShapeKind kind = kKind;
  std::uint8_t direction = 0;  ///< 1 forward (training), 2 backward, 3 inference
  std::uint8_t mode = 0;       ///< 1 batch, 2 instance, 3 layer, 4 RMS, 5 group
  DataType type = DataType::kUnknown;
  std::uint8_t layout = 0;
  std::uint8_t dimensions = 0;
  std::uint16_t reserved = 0;
  std::array<std::uint32_t, 5> size{};
  std::uint32_t fused = 0;
};

struct RnnShape {
  static constexpr ShapeKind kKind = ShapeKind::kRnn;
  /// In larger batches not all lengths are read: `length` is then their upper bound, and `steps` is 0.
  static constexpr std::uint32_t kMaxSequences = 2048;

  ShapeKind kind = kKind;
  std::uint8_t direction = 0;  ///< 1 forward, 2 data gradient, 3 weight gradient
  std::uint8_t cell = 0;       ///< 1 ReLU, 2 tanh, 3 LSTM, 4 GRU
  std::uint8_t bidirectional = 0;
  std::uint8_t algorithm = 0;  ///< 1 standard, 2 persistent static, 3 persistent dynamic, 4 persistent small
  DataType type = DataType::kUnknown;
  ComputeType compute = ComputeType::kUnknown;
  std::uint8_t tensor_math = 0;  ///< 1 default, 2 tensor operations, 3 with conversion, 4 FMA only
  std::uint32_t layers = 0;
  std::uint32_t input_size = 0;
  std::uint32_t hidden_size = 0;
  std::uint32_t projection_size = 0;
  std::uint32_t length = 0;  ///< longest sequence
  std::uint32_t batch = 0;
  std::uint64_t steps = 0;  ///< sum of all sequences' lengths
};

enum class Collective : std::uint8_t {
  kUnknown = 0,
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kSend,
  kRecv,
  kSendRecv,  ///< a group of sends and receives
  kAllToAll,  ///< also a group with one send to and one receive from every rank, all of one size
  kMixed,     ///< a group of different operations
  kGather,
  kScatter,
};

/// How a call's work relates to a group, that is, the calls between ncclGroupStart and ncclGroupEnd.
enum class GroupRole : std::uint8_t {
  kNone = 0,   ///< submitted by the call itself
  kMember,     ///< submitted later, at the end of the group
  kEqual,      ///< the end of a group of calls that all have this shape (except for role and operations)
  kDifferent,  ///< the end of a group of different calls: `count` and `bytes` are their sums
};

struct CollectiveShape {
  static constexpr ShapeKind kKind = ShapeKind::kCollective;
  static constexpr std::uint8_t kSeveral = 255;  ///< types or reductions in a group

  ShapeKind kind = kKind;
  Collective operation = Collective::kUnknown;
  std::uint8_t type = 0;         ///< ncclDataType_t
  std::uint8_t reduction = 0;    ///< ncclRedOp_t + 1, 0 for none; all custom ones have one value
  std::uint32_t ranks = 0;       ///< 0: unknown, or several in a group
  std::uint64_t count = 0;       ///< elements, as passed to the call
  std::uint64_t bytes = 0;       ///< as in collective_bytes(): the larger of what is sent and received
  std::int32_t peer = -1;        ///< or root
  std::uint32_t operations = 0;  ///< number of calls in the submitted group
  GroupRole role = GroupRole::kNone;
  std::uint8_t reserved[7] = {};
  std::uint64_t communicator = 0;  ///< CommunicatorId; 0: unknown, or several in a group

  bool operator==(const CollectiveShape&) const = default;
};

/// A cuDNN graph of other operations; `operations` has a bit for each.
struct OtherGraphShape {
  static constexpr ShapeKind kKind = ShapeKind::kOtherGraph;
  ShapeKind kind = kKind;
  std::uint8_t reserved[3] = {};
  std::int32_t engine = -1;
  std::uint64_t operations = 0;
};

/// What an operator computes, while launches are named; its sizes are not kept.
struct OperatorShape {
  static constexpr ShapeKind kKind = ShapeKind::kOperator;
  ShapeKind kind = kKind;
  DataType type = DataType::kUnknown;  ///< of the multiplied elements
  std::uint8_t reserved[6] = {};
  std::uint64_t flops = 0;

  bool operator==(const OperatorShape&) const = default;
};

/// Any of these shapes.
class alignas(8) CallShape {
 public:
  static constexpr std::size_t kSize = 128;
  using Words = std::array<std::uint64_t, kSize / 8>;

  CallShape() = default;
  template <typename Shape>
  // NOLINTNEXTLINE(misc-explicit-constructor): one is the other
  requires(Shape::kKind != ShapeKind::kNone) CallShape(const Shape& shape)
  noexcept {
    static_assert(sizeof(Shape) <= kSize && std::is_trivially_copyable_v<Shape>);
    // Compared by bytes, so there must be no uninitialised ones.
    static_assert(std::has_unique_object_representations_v<Shape>);
    __builtin_memcpy(&words_, &shape, sizeof shape);
  }

  ShapeKind kind() const noexcept {
    ShapeKind kind;
    __builtin_memcpy(&kind, &words_, sizeof kind);
    return kind;
  }
  /// Converts to the shape's own kind.
  template <typename Shape>
  Shape as() const noexcept {
    Shape shape;
    __builtin_memcpy(static_cast<void*>(&shape), &words_, sizeof shape);
    return shape;
  }
  const Words& words() const noexcept { return words_; }
  bool operator==(const CallShape&) const = default;

 private:
  Words words_{};
};
static_assert(sizeof(CallShape) == CallShape::kSize && std::is_trivially_copyable_v<CallShape>);

}  // namespace inject
