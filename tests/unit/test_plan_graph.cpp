// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/plan_graph.h"

#include <limits>
#include <memory>
#include <string>

#include "libinject/capture/hooks/cudnn_names.h"
#include "libinject/capture/hooks/cudnn_sizes.h"
#include "libinject/model/call_shape.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

std::unique_ptr<PlanGraph> graph_of(std::string_view text) {
  auto graph = std::make_unique<PlanGraph>();
  graph->read(text);
  return graph;
}

// A product, and the sum of its result and a bias.
constexpr std::string_view kProduct = R"({"engine": {"engineId": 7}, "operationGraph": {"tensors": [
    {"name": "a", "dataType": "CUDNN_DATA_HALF", "dim": [1, 4, 8], "stride": [32, 8, 1], "isVirtual": false},
    {"name": "c", "dataType": "CUDNN_DATA_FLOAT", "dim": [1, 4, 2], "isVirtual": true},
    {"name": "bias", "dataType": "CUDNN_DATA_FLOAT", "dim": [1, 1, 2]},
    {"name": "out", "dataType": "CUDNN_DATA_BFLOAT16", "dim": [1, 4, 2]}],
  "nodes": [
    {"operation": "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR", "mathPrec": "CUDNN_DATA_FLOAT",
     "matA": "a", "matC": "c"},
    {"operation": "POINTWISE", "mode": "CUDNN_POINTWISE_ADD", "X": "c", "B": "bias", "Y": "out", "axis": -2}]}})";

}  // namespace

TEST_CASE("a plan's text becomes tensors and nodes") {
  const auto graph = graph_of(kProduct);
  CHECK(graph->engine() == 7);
  REQUIRE(graph->tensors().size() == 4);
  REQUIRE(graph->nodes().size() == 2);
  const PlanGraph::Tensor& a = graph->tensors()[0];
  CHECK(a.type == DataType::kF16);
  CHECK((a.size.count == 3 && a.size.last(1) == 8 && a.size.last(3) == 1 && a.size.last(4) == 0));
  CHECK(a.size.product() == 32);
  CHECK(a.size.product(2) == 4);
  CHECK((a.is_given() && !graph->tensors()[1].is_given()));

  const PlanGraph::Node& product = graph->nodes()[0];
  const PlanGraph::Node& sum = graph->nodes()[1];
  CHECK(product.operation == GraphOperation::kMatmul);
  CHECK(product.math == DataType::kF32);
  CHECK((product.ports.size() == 2 && sum.ports.size() == 3));
  CHECK(sum.axis == -2);
  CHECK(graph->tensor(product, "matA") == &a);
  CHECK(graph->tensor(product, "matB") == nullptr);
  CHECK(graph->producer(graph->tensors()[3]) == &sum);
  CHECK(graph->producer(a) == nullptr);
  // An intermediate result has the type of the tensor that it goes to.
  CHECK(graph->result_type(graph->tensors()[1]) == DataType::kBf16);

  CHECK(graph->count(GraphOperation::kMatmul) == 1);
  CHECK(graph->first(GraphOperation::kPointwise) == &sum);
  CHECK(graph->first(GraphOperation::kMatmul, &product) == nullptr);
  CHECK(graph->operations_except(&product) == operation_bit(GraphOperation::kBias));
  CHECK(graph->operations_except(nullptr) ==
        (operation_bit(GraphOperation::kBias) | operation_bit(GraphOperation::kMatmul)));
}

TEST_CASE("a result's type is that of the tensor that it goes to, an operand's that of where it comes from") {
  const auto tensor = [](const std::string& name, const std::string& type, bool inner) {
    return R"({"name": ")" + name + R"(", "dataType": "CUDNN_DATA_)" + type +
           R"(", "dim": [1, 64, 64], "isVirtual": )" + (inner ? "true}" : "false}");
  };
  const auto pointwise = [](const std::string& ports) {
    return R"(, {"operation": "POINTWISE", "mode": "CUDNN_POINTWISE_ADD", )" + ports + "}";
  };
  // The operands, in fp8 and int8, have the result's size; int8 is converted, and a residual is added.
  const auto types = [&](const std::string& more_tensors, const std::string& more_nodes) {
    const std::string text =
        R"({"operationGraph": {"tensors": [)" + tensor("a", "FP8_E4M3", false) + ", " +
        tensor("stored", "INT8", false) + ", " + tensor("b", "HALF", true) + ", " +
        tensor("c", "FLOAT", true) + ", " + tensor("scaled", "FLOAT", true) + ", " +
        tensor("residual", "FLOAT", false) + ", " + tensor("mask", "BOOLEAN", false) + more_tensors +
        R"(], "nodes": [{"operation": "MATMUL", "matA": "a", "matB": "b", "matC": "c"})" +
        pointwise(R"("X": "stored", "Y": "b")") + pointwise(R"("X": "c", "B": "mask", "Y": "scaled")") +
        more_nodes + "]}}";
    const auto graph = graph_of(text);
    const auto at = [&](std::string_view name) -> const PlanGraph::Tensor& {
      return *graph->find_tensor(name);
    };
    CHECK(graph->operand_type(at("a")) == DataType::kF8E4M3);
    CHECK(graph->operand_type(at("b")) == DataType::kI8);
    return graph->result_type(at("c"));
  };
  CHECK(types("", "") == DataType::kUnknown);  // never stored
  const std::string out = ", " + tensor("out", "BFLOAT16", false);
  const std::string add = pointwise(R"("X": "scaled", "B": "residual", "Y": "out")");
  CHECK(types(out, add) == DataType::kBf16);
  CHECK(types(out, add + pointwise(R"("X": "scaled", "Y": "mask")")) == DataType::kBf16);
  CHECK(types(out, pointwise(R"("dY": "scaled", "X": "residual", "dX": "out")")) == DataType::kBf16);
  CHECK(types(out + ", " + tensor("copy", "HALF", false), add + pointwise(R"("X": "c", "Y": "copy")")) ==
        DataType::kUnknown);
  // A circle ends.
  CHECK(types("", pointwise(R"("X": "scaled", "Y": "c")")) == DataType::kUnknown);
}

TEST_CASE("a plan's graph has room for so many tensors and nodes") {
  std::string text = R"({"operationGraph": {"tensors": [{"name": "t0", "dim": [1, 2, 3, 4, 5, 6, 7, 8, 9]})";
  for (std::size_t i = 1; i < PlanGraph::kMaxTensors + 10; ++i) text += R"(, {"name": "t"})";
  text += R"(], "nodes": [{"operation": "RNG"})";
  for (std::size_t i = 1; i < PlanGraph::kMaxNodes + 10; ++i) text += R"(, {"X": "t0", "Y": "t", "B": "t"})";
  text += "]}}";
  const auto graph = graph_of(text);  // its names point into the text
  CHECK(graph->tensors().size() == PlanGraph::kMaxTensors);
  CHECK(graph->nodes().size() == PlanGraph::kMaxNodes);
  CHECK(graph->tensors()[0].size.count == PlanGraph::kMaxDimensions);
  CHECK(graph->tensor(graph->nodes()[PlanGraph::kMaxNodes - 1], "X") == graph->tensors().data());
}

TEST_CASE("a plan's names") {
  CHECK(cudnn_data_type("CUDNN_DATA_FP8_E4M3") == DataType::kF8E4M3);
  CHECK(cudnn_data_type("CUDNN_DATA_OF_TOMORROW") == DataType::kOther);
  CHECK(cudnn_data_type("") == DataType::kUnknown);
  CHECK(cudnn_operation("CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR") == GraphOperation::kAttention);
  CHECK(cudnn_operation("SDPA_FWD") == GraphOperation::kAttention);
  CHECK(cudnn_operation("") == GraphOperation::kOther);
  CHECK(cudnn_pointwise_operation("CUDNN_POINTWISE_RELU_FWD") == GraphOperation::kRelu);
  CHECK(cudnn_pointwise_operation("CUDNN_POINTWISE_RELU_BWD") == GraphOperation::kActivationGradient);
  CHECK(cudnn_pointwise_operation("CUDNN_POINTWISE_EXP") == GraphOperation::kPointwise);
}

TEST_CASE("what an operation of a plan computes in") {
  CHECK(plan_compute_type(DataType::kF32, DataType::kF16, kEngineTensorCores) == ComputeType::kF32);
  CHECK(plan_compute_type(DataType::kF32, DataType::kF32, kEngineTensorCores) == ComputeType::kF32Tf32);
  CHECK(plan_compute_type(DataType::kF32, DataType::kF32, kEngineNotesKnown) == ComputeType::kF32);
  CHECK(plan_compute_type(DataType::kUnknown, DataType::kF32, 0) == ComputeType::kUnknown);
}

TEST_CASE("cuDNN's sizes as shapes have them") {
  CHECK(clamped<std::uint16_t>(-1) == 0);
  CHECK(clamped<std::uint16_t>(70'000) == 65'535);
  CHECK(clamped<std::uint32_t>(std::numeric_limits<std::int64_t>::max()) == 0xFFFF'FFFFu);

  using Sizes = std::span<const int>;
  const int size[] = {8, 16, 4, 4};
  const int channels_first[] = {256, 16, 4, 1};
  const int channels_last[] = {256, 1, 64, 16};
  const int one_channel[] = {8, 1, 4, 4};
  CHECK(tensor_layout(Sizes(size), Sizes(channels_first)) == 1);
  CHECK(tensor_layout(Sizes(size), Sizes(channels_last)) == 2);
  CHECK(tensor_layout(Sizes(one_channel), Sizes(channels_last)) == 0);
  CHECK(tensor_layout(Sizes(size).first(2), Sizes(channels_first).first(2)) == 0);

  std::array<std::uint16_t, 3> dimensions{};
  set_last_dimensions(dimensions, Sizes(size).subspan(2));
  CHECK(dimensions == std::array<std::uint16_t, 3>{0, 4, 4});
  set_last_dimensions(dimensions, Sizes(size));
  CHECK(dimensions == std::array<std::uint16_t, 3>{8, 16, 4});
}
