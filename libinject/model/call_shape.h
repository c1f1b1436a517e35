// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a library call computes, read off its arguments: plain data without pointers, compared by its bytes.
// Each kind has a struct of its own, which lies in a CallShape from its first byte on; unused bytes are zero.
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
  kOperator,    ///< of no library's call: an operator of the program's framework
};

/// op(A) · op(B) as cuBLAS has it: column-major, C of M × N. A matrix-vector product has N = 1.
struct GemmShape {
  static constexpr ShapeKind kKind = ShapeKind::kGemm;
  ShapeKind kind = kKind;
  char op_a = 'N';  ///< N, T or C
  char op_b = 'N';
  DataType a = DataType::kUnknown;
  DataType b = DataType::kUnknown;
  DataType c = DataType::kUnknown;
  DataType d = DataType::kUnknown;  ///< what is written; equals `c` but in cuBLASLt
  ComputeType compute = ComputeType::kUnknown;
  std::uint32_t epilogue = 0;  ///< cublasLtEpilogue_t; 0: none
  std::uint32_t groups = 0;    ///< of a grouped product: M, N, K are 0 where they differ
  std::uint8_t align_a = 0;    ///< log2 of what the matrix's address is a multiple of, 4 at most
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
  std::uint64_t flops = 0;  ///< all of the call's; of complex numbers eight a multiply-add
  std::uint64_t bytes = 0;  ///< A and B read, C written, once each; what a batch has in common, once
};

enum GemmFlags : std::uint8_t {
  kGemmOtherOrder = 1,   ///< a matrix is not column-major: alignments of sizes mean something else
  kGemmBlockScaled = 2,  ///< each block of an operand's elements has a factor of its own: mxfp8, nvfp4
};

struct ConvolutionShape {
  static constexpr ShapeKind kKind = ShapeKind::kConvolution;
  ShapeKind kind = kKind;
  std::uint8_t direction = 0;   ///< 1 forward, 2 data gradient, 3 filter gradient
  std::uint8_t dimensions = 0;  ///< spatial ones, 1 to 3
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
  std::array<std::uint32_t, 3> in{};      ///< D, H, W of the input; of fewer dimensions the last ones
  std::array<std::uint32_t, 3> filter{};  ///< T, R, S
  std::array<std::uint32_t, 3> out{};
  std::array<std::uint16_t, 3> pad{};
  std::array<std::uint16_t, 3> stride{};
  std::array<std::uint16_t, 3> dilation{};
  std::uint16_t legacy = 0;  ///< 1: `engine` is a legacy algorithm
  std::uint32_t notes = 0;   ///< EngineNotes
};

/// What cuDNN says of an engine's arithmetic: its numerical notes, by their numbers.
enum EngineNotes : std::uint32_t {
  kEngineTensorCores = 1u << 0,
  kEngineDownConverts = 1u << 1,
  kEngineReducedPrecision = 1u << 2,
  kEngineFft = 1u << 3,
  kEngineNondeterministic = 1u << 4,
  kEngineWinograd = 1u << 5,
  kEngineNotesKnown = 1u << 31,  ///< it has been asked
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
};

enum AttentionFlags : std::uint32_t {
  kAttentionCausal = 1,
  kAttentionBias = 2,
  kAttentionDropout = 4,
  kAttentionRagged = 8,   ///< lengths vary: those above are the longest
  kAttentionWindow = 16,  ///< only keys that are near count
  kAttentionPaged = 32,   ///< keys and values lie in pages
  // Where the causal mask's diagonal lies, if not at the scores' first corner, where query 0 sees key 0
  // alone.
  kAttentionBottomRight = 64,  ///< the last query sees the last key
  kAttentionShifted = 128,     ///< it is not known where
  kAttentionProjected = 256,   ///< the call multiplies by weights as well, whose sizes are not here
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
  /// Of larger batches not all lengths are read: `length` is the most that they can have, `steps` is 0.
  static constexpr std::uint32_t kMaxSequences = 2048;

  ShapeKind kind = kKind;
  std::uint8_t direction = 0;  ///< 1 forward, 2 data gradient, 3 weight gradient
  std::uint8_t cell = 0;       ///< 1 ReLU, 2 tanh, 3 LSTM, 4 GRU
  std::uint8_t bidirectional = 0;
  std::uint8_t algorithm = 0;  ///< 1 standard, 2 persistent static, 3 persistent dynamic, 4 persistent small
  DataType type = DataType::kUnknown;
  ComputeType compute = ComputeType::kUnknown;
  std::uint8_t tensor_math = 0;  ///< 1 default, 2 tensor operations, 3 with conversion, 4 FMA alone
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
  kAllToAll,  ///< also a group of as many of each as there are ranks, all of one size
  kMixed,     ///< a group of different operations
  kGather,
  kScatter,
};

/// What a call's work has to do with a group, the calls between ncclGroupStart and ncclGroupEnd.
enum class GroupRole : std::uint8_t {
  kNone = 0,   ///< submitted by the call itself
  kMember,     ///< submitted later, by the end of the group
  kEqual,      ///< the end of a group of calls that have this very shape (but for role and operations)
  kDifferent,  ///< the end of a group of others: `count` and `bytes` are their sums
};

struct CollectiveShape {
  static constexpr ShapeKind kKind = ShapeKind::kCollective;
  static constexpr std::uint8_t kSeveral = 255;  ///< types or reductions in a group

  ShapeKind kind = kKind;
  Collective operation = Collective::kUnknown;
  std::uint8_t type = 0;         ///< ncclDataType_t
  std::uint8_t reduction = 0;    ///< ncclRedOp_t + 1, 0 for none; all that are not the library's own are one
  std::uint32_t ranks = 0;       ///< 0: not known, or several in a group
  std::uint64_t count = 0;       ///< elements, as the call has them
  std::uint64_t bytes = 0;       ///< as nccl-tests count them: of the larger of what is sent and received
  std::int32_t peer = -1;        ///< or root
  std::uint32_t operations = 0;  ///< calls in the group that is submitted
  GroupRole role = GroupRole::kNone;
  std::uint8_t reserved[7] = {};
  std::uint64_t communicator = 0;  ///< CommunicatorId; 0: not known, or several in a group

  bool operator==(const CollectiveShape&) const = default;
};

/// A cuDNN graph of other operations: which of them, by bits of its own.
struct OtherGraphShape {
  static constexpr ShapeKind kKind = ShapeKind::kOtherGraph;
  ShapeKind kind = kKind;
  std::uint8_t reserved[3] = {};
  std::int32_t engine = -1;
  std::uint64_t operations = 0;
};

/// What an operator computes, while launches are named: it is all that is kept of its sizes.
struct OperatorShape {
  static constexpr ShapeKind kKind = ShapeKind::kOperator;
  ShapeKind kind = kKind;
  DataType type = DataType::kUnknown;  ///< of what is multiplied
  std::uint8_t reserved[6] = {};
  std::uint64_t flops = 0;

  bool operator==(const OperatorShape&) const = default;
};

/// Any of them.
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
    // Compared by bytes: there must be none that nobody has written.
    static_assert(std::has_unique_object_representations_v<Shape>);
    __builtin_memcpy(&words_, &shape, sizeof shape);
  }

  ShapeKind kind() const noexcept {
    ShapeKind kind;
    __builtin_memcpy(&kind, &words_, sizeof kind);
    return kind;
  }
  /// As the kind that it is of.
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
