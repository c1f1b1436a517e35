// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/cudnn_graph.h"

#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "libinject/analysis/flops.h"
#include "libinject/analysis/shape_work.h"
#include "libinject/model/graph_operations.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

using Three = std::array<std::uint32_t, 3>;
using Small = std::array<std::uint16_t, 3>;

constexpr std::uint32_t kTensorCores = kEngineNotesKnown | kEngineTensorCores;

/// Texts that cuDNN produced for its plans.
std::string text_of(const std::string& name) {
  std::ifstream file(INJECT_SOURCE_DIR "/tests/data/cudnn/" + name + ".json");
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE(!text.str().empty());
  return text.str();
}

ConvolutionShape convolution(const std::string& name, std::uint32_t notes = kTensorCores) {
  const CallShape shape = shape_of_plan(text_of(name), notes);
  REQUIRE(shape.kind() == ShapeKind::kConvolution);
  return shape.as<ConvolutionShape>();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("cuDNN plan: convolution forward") {
  const ConvolutionShape shape = convolution("forward_fp16_strided");
  CHECK(shape.direction == 1);
  CHECK(shape.dimensions == 2);
  CHECK(shape.x == DataType::kF16);
  CHECK(shape.w == DataType::kF16);
  CHECK(shape.y == DataType::kF16);
  CHECK(shape.compute == ComputeType::kF32);
  CHECK(shape.layout == 2);
  CHECK(shape.fused == 0);
  CHECK(shape.engine == 62);
  CHECK(shape.legacy == 0);
  CHECK(shape.n == 8);
  CHECK(shape.c == 64);
  CHECK(shape.k == 128);
  CHECK(shape.groups == 1);
  CHECK(shape.in == Three{0, 56, 56});
  CHECK(shape.filter == Three{0, 3, 3});
  CHECK(shape.out == Three{0, 28, 28});
  CHECK(shape.pad == Small{0, 1, 1});
  CHECK(shape.stride == Small{0, 2, 2});
  CHECK(shape.dilation == Small{0, 1, 1});
  CHECK(shape.notes == kTensorCores);
  CHECK(convolution_flops(shape) == 2ull * 8 * 128 * 28 * 28 * 64 * 9);
}

TEST_CASE("cuDNN plan: gradients") {
  const ConvolutionShape data = convolution("data_gradient_fp16");
  CHECK(data.direction == 2);
  CHECK(data.in == Three{0, 56, 56});
  CHECK(data.out == Three{0, 56, 56});
  CHECK((data.n == 8 && data.c == 64 && data.k == 128));
  CHECK(data.engine == 67);

  const ConvolutionShape filter = convolution("filter_gradient_fp16");
  CHECK(filter.direction == 3);
  CHECK((filter.n == 8 && filter.c == 64 && filter.k == 128));
  CHECK(filter.filter == Three{0, 3, 3});
  CHECK(filter.out == Three{0, 56, 56});
  CHECK(convolution_flops(filter) == convolution_flops(data));
}

TEST_CASE("cuDNN plan: fp32 is rounded to TF32 where the engine runs on tensor cores") {
  CHECK(convolution("forward_fp32_strided").compute == ComputeType::kF32Tf32);
  CHECK(convolution("forward_fp32_strided", kEngineNotesKnown).compute == ComputeType::kF32);
  CHECK(convolution("forward_fp32_strided", 0).compute == ComputeType::kF32);
  CHECK(convolution("forward_fp32_strided").x == DataType::kF32);
}

TEST_CASE("cuDNN plan: groups") {
  const ConvolutionShape grouped = convolution("forward_fp16_grouped");
  CHECK((grouped.c == 64 && grouped.k == 64 && grouped.groups == 4));
  const ConvolutionShape depthwise =
      convolution("depthwise_fp32_channels_first", kEngineNotesKnown | 1u << 9);
  CHECK((depthwise.c == 64 && depthwise.k == 64 && depthwise.groups == 64));
  CHECK(depthwise.layout == 1);
  CHECK(depthwise.engine == 0);
  CHECK(depthwise.filter == Three{0, 5, 5});
  CHECK(convolution_flops(depthwise) == 2ull * 8 * 64 * 56 * 56 * 25);
  CHECK(convolution("depthwise_fp16").layout == 2);
}

TEST_CASE("cuDNN plan: one and three dimensions") {
  const ConvolutionShape line = convolution("line_fp16");
  CHECK(line.dimensions == 1);
  CHECK(line.in == Three{0, 0, 1000});
  CHECK(line.filter == Three{0, 0, 7});
  CHECK(line.out == Three{0, 0, 500});
  CHECK(line.pad == Small{0, 0, 3});
  CHECK(line.stride == Small{0, 0, 2});
  CHECK(line.layout == 2);
  const ConvolutionShape volume = convolution("volume_fp16");
  CHECK(volume.dimensions == 3);
  CHECK(volume.in == Three{8, 32, 32});
  CHECK(volume.filter == Three{3, 3, 3});
  CHECK(volume.out == Three{8, 16, 16});
  CHECK(volume.stride == Small{1, 2, 2});
}

TEST_CASE("cuDNN plan: dilation, padding") {
  const ConvolutionShape dilated = convolution("dilated_bf16");
  CHECK(dilated.x == DataType::kBf16);
  CHECK(dilated.filter == Three{0, 3, 5});
  CHECK(dilated.pad == Small{0, 2, 4});
  CHECK(dilated.dilation == Small{0, 2, 2});
  // Padding at the front is reported.
  CHECK(convolution("asymmetric_padding_fp16").pad == Small{0, 0, 1});
  const ConvolutionShape first = convolution("resnet_first_fp32");
  CHECK(first.layout == 1);
  CHECK(first.n == 32);
  CHECK(convolution_flops(first) == 32ull * 2 * 118'013'952);
}

TEST_CASE("cuDNN plan: what is fused with a convolution") {
  const ConvolutionShape shape = convolution("forward_fp16_bias_relu");
  CHECK(shape.fused == (operation_bit(GraphOperation::kBias) | operation_bit(GraphOperation::kRelu)));
  CHECK(shape.engine == 41);
  // The convolution itself produces fp32, which is never stored.
  CHECK(shape.y == DataType::kF16);
  CHECK(shape.out == Three{0, 56, 56});
}

TEST_CASE("cuDNN plan: what is done before a convolution, and to a gradient") {
  const ConvolutionShape forward = convolution("forward_fp16_prologue_statistics");
  CHECK(forward.direction == 1);
  CHECK(forward.x == DataType::kF16);
  CHECK((forward.n == 32 && forward.c == 64 && forward.k == 64 && forward.groups == 1));
  CHECK(forward.fused == (operation_bit(GraphOperation::kMultiply) | operation_bit(GraphOperation::kBias) |
                          operation_bit(GraphOperation::kRelu) | operation_bit(GraphOperation::kStatistics)));
  const ConvolutionShape gradient = convolution("data_gradient_fp16_relu");
  CHECK(gradient.direction == 2);
  CHECK(gradient.in == Three{0, 56, 56});
  CHECK(gradient.out == Three{0, 28, 28});
  CHECK(gradient.fused == operation_bit(GraphOperation::kActivationGradient));
}

TEST_CASE("cuDNN plan: attention, in one operation or spelled out") {
  struct Known {
    const char* name;
    std::uint32_t batch, heads, kv_heads, queries, keys, head, value, flags;
  };
  constexpr Known kKnown[] = {
      {"plain", 2, 8, 8, 512, 512, 64, 64, 0},
      {"gqa", 2, 16, 4, 300, 700, 128, 128, 0},
      {"bias", 2, 8, 8, 512, 512, 64, 64, kAttentionBias},
      {"dropout_causal", 2, 8, 8, 512, 512, 64, 64, kAttentionDropout | kAttentionCausal},
      {"padding", 2, 8, 8, 512, 512, 64, 64, kAttentionRagged},
      {"window_causal", 2, 8, 8, 1024, 1024, 64, 64, kAttentionWindow | kAttentionCausal},
      {"mla", 2, 8, 8, 1024, 1024, 192, 128, kAttentionCausal},
  };
  for (const Known& known : kKnown) {
    for (const bool forward : {true, false}) {
      const std::string name = std::string("attention_") + (forward ? "forward_" : "backward_") + known.name;
      INFO(name);
      const CallShape shape = shape_of_plan(text_of(name), kTensorCores);
      REQUIRE(shape.kind() == ShapeKind::kAttention);
      const auto attention = shape.as<AttentionShape>();
      CHECK(attention.direction == (forward ? 1 : 2));
      CHECK(attention.type == DataType::kBf16);
      CHECK(attention.compute == ComputeType::kF32);
      CHECK(attention.batch == known.batch);
      CHECK(attention.heads == known.heads);
      CHECK(attention.kv_heads == known.kv_heads);
      CHECK(attention.query_length == known.queries);
      CHECK(attention.key_length == known.keys);
      CHECK(attention.head_size == known.head);
      CHECK(attention.value_head_size == known.value);
      CHECK(attention.flags == known.flags);
      CHECK(attention.engine >= 0);
      // An upper bound is no figure.
      CHECK(work_of(shape).flops_known == ((known.flags & (kAttentionRagged | kAttentionWindow)) == 0));
    }
  }
}

namespace {

/// The scores of queries and keys with a mask; `index` are the operations between a row's index, "row", and
/// its comparison with a column's.
CallShape masked_attention(const std::string& index, const std::string& compared) {
  const auto tensor = [](const std::string& name, const std::string& size, const std::string& kind) {
    return R"({"name": ")" + name + R"(", "dataType": "CUDNN_DATA_BFLOAT16", "dim": )" + size +
           R"(, "stride": [1, 1, 1, 1], )" + kind + "}";
  };
  const std::string given = R"("isVirtual": false, "isByValue": false)";
  const std::string number = R"("isVirtual": false, "isByValue": true)";
  const std::string inner = R"("isVirtual": true, "isByValue": false)";
  std::string tensors;
  for (const std::string name :
       {"scores", "row", "column", "sum", "difference", "mask", "masked", "exponential"})
    tensors += tensor(name, "[1, 2, 4, 16]", inner) + ", ";
  tensors += tensor("keys", "[1, 1, 1, 1]", number) + ", " + tensor("queries", "[1, 1, 1, 1]", number) +
             ", " + tensor("lengths", "[1, 1, 1, 1]", given) + ", " + tensor("low", "[1, 1, 1, 1]", number) +
             ", " + tensor("q", "[1, 2, 4, 64]", given) + ", " + tensor("k", "[1, 2, 64, 16]", given) + ", " +
             tensor("v", "[1, 2, 16, 64]", given) + ", " + tensor("o", "[1, 2, 4, 64]", given);
  const auto pointwise = [](const std::string& mode, const std::string& rest) {
    return R"({"operation": "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR", "pointwiseMode": "CUDNN_POINTWISE_)" +
           mode + R"(", )" + rest + "}, ";
  };
  return shape_of_plan(
      R"({"operationGraph": {"tensors": [)" + tensors + R"(], "nodes": [)" +
          R"({"operation": "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR", "mathPrec": "CUDNN_DATA_FLOAT", )" +
          R"("matA": "q", "matB": "k", "matC": "scores"}, )" +
          pointwise("GEN_INDEX", R"("axis": 2, "X": "scores", "Y": "row")") +
          pointwise("GEN_INDEX", R"("axis": 3, "X": "scores", "Y": "column")") + index +
          pointwise("CMP_GE", R"("X": ")" + compared + R"(", "B": "column", "Y": "mask")") +
          pointwise("BINARY_SELECT", R"("X": "scores", "B": "low", "T": "mask", "Y": "masked")") +
          pointwise("EXP", R"("X": "masked", "Y": "exponential")") +
          R"({"operation": "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR", "mathPrec": "CUDNN_DATA_FLOAT", )" +
          R"("matA": "exponential", "matB": "v", "matC": "o"}]}, "engine": {"engineId": 1}})",
      kTensorCores);
}

}  // namespace

TEST_CASE("cuDNN plan: where the diagonal of a causal mask lies") {
  const std::string start =
      R"({"operation": "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR", "pointwiseMode": )";
  const std::string add_keys = start + R"("CUDNN_POINTWISE_ADD", "X": "row", "B": "keys", "Y": "sum"}, )";
  const std::string add_lengths =
      start + R"("CUDNN_POINTWISE_ADD", "X": "row", "B": "lengths", "Y": "sum"}, )";
  const std::string subtract =
      start + R"("CUDNN_POINTWISE_SUB", "X": "sum", "B": "queries", "Y": "difference"}, )";
  struct Known {
    std::string index;
    std::string compared;
    std::uint32_t flags;
    std::uint64_t pairs;  // of 4 queries and 16 keys; 0: unknown
  };
  const Known known[] = {
      {"", "row", kAttentionCausal, 1 + 2 + 3 + 4},
      {add_keys + subtract, "difference", kAttentionCausal | kAttentionBottomRight, 13 + 14 + 15 + 16},
      // Shifted right by some number of keys, by as many as the sequences are long.
      {add_keys, "sum", kAttentionCausal | kAttentionShifted, 0},
      {add_lengths + subtract, "difference", kAttentionCausal | kAttentionShifted, 0},
  };
  for (const Known& mask : known) {
    INFO(mask.index);
    const CallShape shape = masked_attention(mask.index, mask.compared);
    REQUIRE(shape.kind() == ShapeKind::kAttention);
    CHECK((shape.as<AttentionShape>().flags & ~std::uint32_t{kAttentionRagged}) == mask.flags);
    const ShapeWork work = work_of(shape);
    CHECK(work.flops_known == (mask.pairs != 0));
    CHECK(work.flops == 2 * 2 * mask.pairs * (64 + 64));
  }
}

TEST_CASE("cuDNN plan: normalization") {
  const auto normalization = [](const std::string& name) {
    const CallShape shape = shape_of_plan(text_of(name), kTensorCores);
    REQUIRE(shape.kind() == ShapeKind::kNormalization);
    return shape.as<NormalizationShape>();
  };
  using Five = std::array<std::uint32_t, 5>;
  const NormalizationShape batch = normalization("batch_norm_training");
  CHECK((batch.direction == 1 && batch.mode == 1 && batch.layout == 2 && batch.dimensions == 4));
  CHECK(batch.type == DataType::kF16);
  CHECK(batch.size == Five{32, 64, 56, 56, 0});
  CHECK(batch.fused == 0);
  CHECK(normalization("batch_norm_backward").direction == 2);
  const NormalizationShape layer = normalization("layer_norm_training");
  CHECK((layer.direction == 1 && layer.mode == 3));
  CHECK(layer.size == Five{4096, 1024, 1, 1, 0});
  CHECK(layer.type == DataType::kBf16);
  CHECK(normalization("layer_norm_backward").direction == 2);
  const NormalizationShape rms = normalization("rms_norm_inference");
  CHECK((rms.direction == 3 && rms.mode == 4));
}

TEST_CASE("cuDNN plan: products, as cuBLAS would have them") {
  const auto gemm = [](const std::string& name) {
    const CallShape shape = shape_of_plan(text_of(name), kTensorCores);
    REQUIRE(shape.kind() == ShapeKind::kGemm);
    return shape.as<GemmShape>();
  };
  // Row-major 512 × 256 = (512 × 1024) · (1024 × 256), with the right operand column-major.
  const GemmShape row_major = gemm("matmul_bias_gelu_bf16");
  CHECK((row_major.m == 256 && row_major.n == 512 && row_major.k == 1024 && row_major.batch == 1));
  CHECK((row_major.op_a == 'T' && row_major.op_b == 'N'));
  CHECK((row_major.lda == 1024 && row_major.ldb == 1024 && row_major.ldc == 256));
  CHECK(row_major.epilogue == 36);  // bias and GELU
  CHECK(row_major.a == DataType::kBf16);
  CHECK(row_major.compute == ComputeType::kF32);
  CHECK(row_major.flops == 2ull * 256 * 512 * 1024);
  // Column-major result with a row-major right operand.
  const GemmShape column_major = gemm("matmul_column_major_fp16");
  CHECK(
      (column_major.m == 512 && column_major.n == 256 && column_major.k == 1024 && column_major.batch == 16));
  CHECK((column_major.op_a == 'N' && column_major.op_b == 'T'));
  CHECK((column_major.lda == 512 && column_major.ldb == 256 && column_major.ldc == 512));
  CHECK(column_major.epilogue == 0);
  CHECK(column_major.flops == 16ull * 2 * 512 * 256 * 1024);
  CHECK(column_major.bytes == 16ull * 2 * (512 * 1024 + 1024 * 256 + 512 * 256));
}

TEST_CASE("cuDNN plan: operands that are scaled by blocks have the type in which they are stored") {
  const auto tensor = [](const std::string& name, const std::string& type, const std::string& rest) {
    return R"({"name": ")" + name + R"(", "dataType": "CUDNN_DATA_)" + type + R"(", "dim": )" + rest + "}";
  };
  const std::string given = R"(, "isVirtual": false, "isByValue": false)";
  const std::string inner = R"(, "isVirtual": true, "isByValue": false)";
  const std::string a = R"([1, 128, 512], "stride": [65536, 512, 1])";
  const std::string b = R"([1, 512, 256], "stride": [131072, 1, 512])";
  const std::string c = R"([1, 128, 256], "stride": [32768, 256, 1])";
  const std::string tensors =
      tensor("a", "FP8_E4M3", a + given) + ", " + tensor("b", "FP8_E5M2", b + given) + ", " +
      tensor("scale_a", "FP8_E8M0", R"([1, 128, 16], "stride": [2048, 16, 1])" + given) + ", " +
      tensor("scale_b", "FP8_E8M0", R"([1, 16, 256], "stride": [4096, 1, 16])" + given) + ", " +
      tensor("wide_a", "FLOAT", a + inner) + ", " + tensor("wide_b", "FLOAT", b + inner) + ", " +
      tensor("c", "BFLOAT16", c + given);
  const auto dequantize = [](const std::string& of) {
    return R"({"operation": "CUDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR", "X": ")" + of +
           R"(", "scale": "scale_)" + of + R"(", "Y": "wide_)" + of + R"("}, )";
  };
  const CallShape shape = shape_of_plan(
      R"({"operationGraph": {"tensors": [)" + tensors + R"(], "nodes": [)" + dequantize("a") +
          dequantize("b") +
          R"({"operation": "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR", "mathPrec": "CUDNN_DATA_FLOAT", )" +
          R"("matA": "wide_a", "matB": "wide_b", "matC": "c"}]}, "engine": {"engineId": 1}})",
      kTensorCores);
  REQUIRE(shape.kind() == ShapeKind::kGemm);
  const auto gemm = shape.as<GemmShape>();
  // Row-major, so the operands are swapped.
  CHECK(gemm.a == DataType::kF8E5M2);
  CHECK(gemm.b == DataType::kF8E4M3);
  CHECK(gemm.d == DataType::kBf16);
  CHECK(gemm.compute == ComputeType::kF32);
  CHECK((gemm.flags & kGemmBlockScaled) != 0);
  CHECK((gemm.m == 256 && gemm.n == 128 && gemm.k == 512));
  CHECK(gemm.bytes == 128 * 512 + 512 * 256 + (128 + 256) * 16 + 2 * 128 * 256);
}

TEST_CASE("cuDNN plan: bytes are those of all tensors in memory") {
  const auto bytes = [](const std::string& text) { return work_of(shape_of_plan(text, kTensorCores)).bytes; };
  struct Known {
    const char* name;
    std::uint64_t bytes;
  };
  constexpr std::uint64_t kMatrix = 2ull * 2 * 8 * 512 * 64;  // Q, K, V, O and their gradients
  constexpr std::uint64_t kStatistics = 4ull * 2 * 8 * 512;
  constexpr std::uint64_t kAddedToScores = 2ull * 2 * 8 * 512 * 512;
  constexpr std::uint64_t kMaps = 2ull * 8 * 64 * 56 * 56;
  constexpr std::uint64_t kFilter = 2ull * 128 * 64 * 3 * 3;
  constexpr Known kKnown[] = {
      {"attention_forward_plain", 4 * kMatrix + kStatistics},
      {"attention_forward_bias", 4 * kMatrix + kStatistics + kAddedToScores},
      // Queries' gradients are added up in fp32, with a factor per query.
      {"attention_backward_bias", 8 * kMatrix + 2 * kStatistics + 2 * kMatrix + kAddedToScores},
      {"attention_forward_padding", 0},  // how much of it is padding is unknown
      {"attention_forward_window_causal", 0},
      {"forward_fp16_strided", kMaps + kFilter + kMaps / 2},
      {"forward_fp16_bias_relu", kMaps + kFilter + 2 * 128 + 2 * kMaps},
      {"data_gradient_fp16_relu", kMaps / 2 + kFilter + 2 * kMaps},  // the ReLU's input
      {"matmul_bias_gelu_bf16", 2 * (512 * 1024 + 1024 * 256 + 256 + 512 * 256)},
  };
  for (const Known& known : kKnown) {
    INFO(known.name);
    CHECK(bytes(text_of(known.name)) == known.bytes);
  }
  const std::string strided = text_of("forward_fp16_strided");
  CHECK(bytes(replaced(strided, "CUDNN_DATA_HALF", "CUDNN_DATA_OF_TOMORROW")) == 0);
  // One image for all.
  CHECK(bytes(replaced(strided, "\"stride\":[200704,", "\"stride\":[0,")) == kMaps / 8 + kFilter + kMaps / 2);
}

TEST_CASE("cuDNN plan: other graphs say which operations they have") {
  const std::string text = replaced(text_of("forward_fp16_bias_relu"), "CONVOLUTION_FORWARD", "RESAMPLE_FWD");
  const CallShape shape = shape_of_plan(text, 0);
  REQUIRE(shape.kind() == ShapeKind::kOtherGraph);
  const auto other = shape.as<OtherGraphShape>();
  CHECK(other.engine == 41);
  CHECK(other.operations == (operation_bit(GraphOperation::kPooling) | operation_bit(GraphOperation::kBias) |
                             operation_bit(GraphOperation::kRelu)));
  const std::string unknown =
      replaced(text_of("forward_fp16_strided"), "CONVOLUTION_FORWARD", "SOMETHING_NEW");
  CHECK(shape_of_plan(unknown, 0).as<OtherGraphShape>().operations == operation_bit(GraphOperation::kOther));
}

TEST_CASE("cuDNN plan: sizes that may count vectors are no shape") {
  const std::string strided = text_of("forward_fp16_strided");
  for (const char* count : {"4", "32"}) {
    const std::string vectors = std::string("\"vectCount\":") + count;
    CHECK(shape_of_plan(replaced(strided, "\"vectCount\":1", vectors), 0).kind() == ShapeKind::kNone);
  }
  CHECK(shape_of_plan(strided, 0).kind() == ShapeKind::kConvolution);
}

TEST_CASE("cuDNN plan: text that tells nothing") {
  for (const char* text : {"", "null", "[]", "{}", "{\"operationGraph\":{}}", "{\"operationGraph\":[]}",
                           "{\"operationGraph\":{\"nodes\":[],\"tensors\":[]}}", "{\"nodes\":[{}]}"}) {
    INFO(text);
    CHECK(shape_of_plan(text, 0).kind() == ShapeKind::kNone);
  }
  // A convolution whose tensors are missing is treated as an unknown graph.
  CHECK(shape_of_plan(replaced(text_of("forward_fp16_strided"), "\"X\":\"2\"", "\"X\":\"9\""), 0).kind() ==
        ShapeKind::kOtherGraph);
}

TEST_CASE("cuDNN plan: any text gives some shape") {
  std::mt19937 random(11);
  const std::string goods[] = {text_of("forward_fp16_bias_relu"),
                               text_of("attention_backward_dropout_causal"), text_of("matmul_bias_gelu_bf16"),
                               text_of("layer_norm_training")};
  for (int run = 0; run < 4'000; ++run) {
    const std::string& good = goods[static_cast<std::size_t>(run) % std::size(goods)];
    std::string text = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
    for (auto i = random() % 20; i > 0; --i) {
      if (text.empty()) break;
      text[random() % text.size()] = "{}[]\",:\\0123456789-"[random() % 19];
    }
    const CallShape shape = shape_of_plan(text, static_cast<std::uint32_t>(random()));
    if (shape.kind() == ShapeKind::kConvolution) {
      const auto convolution = shape.as<ConvolutionShape>();
      REQUIRE(convolution.groups >= 1);
      convolution_flops(convolution);
    }
  }
  std::string many = "{\"operationGraph\":{\"tensors\":[";
  for (int i = 0; i < 5'000; ++i)
    many += (i == 0 ? "" : ",") + std::string("{\"name\":\"") + std::to_string(i) +
            "\",\"dim\":[1,2,3,4,5,6,7,8,9,10]}";
  many += "],\"nodes\":[";
  for (int i = 0; i < 5'000; ++i)
    many += (i == 0 ? "" : ",") +
            std::string("{\"operation\":\"CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR\",\"matA\":\"1\",") +
            "\"matB\":\"2\",\"matC\":\"3\",\"a\":\"1\",\"b\":\"1\",\"c\":\"1\",\"d\":\"1\",\"e\":\"1\",\"f\":"
            "\"1\"}";
  many += "]}}";
  CHECK(shape_of_plan(many, 0).kind() == ShapeKind::kOtherGraph);
}
