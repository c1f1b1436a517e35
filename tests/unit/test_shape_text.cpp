// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/shape_text.h"

#include "libinject/model/graph_operations.h"
#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("Shapes in words: operations") {
  CHECK(operations_text(0).empty());
  CHECK(operations_text(operation_bit(GraphOperation::kBias) | operation_bit(GraphOperation::kRelu)) ==
        "bias + relu");
  CHECK(operations_text(operation_bit(GraphOperation::kOther)) == "other");
  CHECK(operations_text(std::uint64_t{1} << 40).empty());
}

TEST_CASE("Shapes in words: a convolution's algorithm") {
  ConvolutionShape plan;
  plan.direction = 1;
  plan.engine = 6;
  CHECK(convolution_algorithm_of(plan) == ConvolutionAlgorithm::kOther);
  plan.notes = kEngineNotesKnown | kEngineTensorCores;
  CHECK(convolution_algorithm_of(plan) == ConvolutionAlgorithm::kOther);
  plan.notes = kEngineNotesKnown | kEngineWinograd;
  CHECK(convolution_algorithm_of(plan) == ConvolutionAlgorithm::kWinograd);
  plan.notes = kEngineNotesKnown | kEngineFft;
  CHECK(convolution_algorithm_of(plan) == ConvolutionAlgorithm::kFft);

  ConvolutionShape call;
  call.legacy = 1;
  const auto algorithm = [&](std::uint8_t direction, std::int32_t engine) {
    call.direction = direction;
    call.engine = engine;
    return convolution_algorithm_of(call);
  };
  CHECK(algorithm(1, 1) == ConvolutionAlgorithm::kImplicitGemm);
  CHECK(algorithm(1, 2) == ConvolutionAlgorithm::kGemm);
  CHECK(algorithm(1, 3) == ConvolutionAlgorithm::kDirect);
  CHECK(algorithm(1, 4) == ConvolutionAlgorithm::kFft);
  CHECK(algorithm(1, 7) == ConvolutionAlgorithm::kWinograd);
  CHECK(algorithm(2, 1) == ConvolutionAlgorithm::kImplicitGemm);
  CHECK(algorithm(2, 3) == ConvolutionAlgorithm::kFft);
  CHECK(algorithm(2, 4) == ConvolutionAlgorithm::kWinograd);
  CHECK(algorithm(3, 3) == ConvolutionAlgorithm::kImplicitGemm);
  CHECK(algorithm(3, 6) == ConvolutionAlgorithm::kFft);
  CHECK(algorithm(3, 7) == ConvolutionAlgorithm::kOther);
  CHECK(algorithm(1, -1) == ConvolutionAlgorithm::kOther);
}

TEST_CASE("Shapes in words: names, and numbers that have none") {
  CHECK(convolution_direction_name(3) == "filter gradient");
  CHECK(convolution_direction_name(4).empty());
  CHECK(layout_name(1, 2) == "NCHW");
  CHECK(layout_name(2, 3) == "NDHWC");
  CHECK(layout_name(0, 2) == "other");
  CHECK(layout_name(2, 9).empty());
  CHECK(attention_direction_name(2) == "backward");
  CHECK(rnn_direction_name(3) == "weight gradient");
  CHECK(rnn_cell_name(3) == "LSTM");
  CHECK(rnn_cell_name(9).empty());
  CHECK(rnn_algorithm_name(2) == "persistent static");
  CHECK(normalization_direction_name(3) == "inference");
  CHECK(normalization_mode_name(4) == "RMS");
  CHECK(spatial_text(std::array<std::uint32_t, 3>{0, 56, 48}, 2) == "56x48");
  CHECK(spatial_text(std::array<std::uint16_t, 3>{1, 2, 3}, 3) == "1x2x3");
  CHECK(spatial_text(std::array<std::uint16_t, 3>{1, 2, 3}, 1) == "3");
}
