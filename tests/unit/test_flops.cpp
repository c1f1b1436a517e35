// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/flops.h"

#include "libinject/analysis/shape_work.h"

#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

struct Layer {
  std::uint32_t in;  // edge length
  std::uint32_t c;
  std::uint32_t k;
  std::uint32_t filter;
  std::uint16_t stride = 1;
  std::uint16_t pad = 0;
  std::uint32_t groups = 1;
};

ConvolutionShape shape_of(const Layer& layer, std::uint32_t n) {
  ConvolutionShape shape;
  shape.direction = 1;
  shape.dimensions = 2;
  shape.x = shape.w = shape.y = DataType::kF16;
  shape.n = n;
  shape.c = layer.c;
  shape.k = layer.k;
  shape.groups = layer.groups;
  const std::uint32_t out = (layer.in + 2u * layer.pad - layer.filter) / layer.stride + 1;
  shape.in = {0, layer.in, layer.in};
  shape.filter = {0, layer.filter, layer.filter};
  shape.out = {0, out, out};
  shape.pad = {0, layer.pad, layer.pad};
  shape.stride = {0, layer.stride, layer.stride};
  shape.dilation = {0, 1, 1};
  return shape;
}

// The convolutions of ResNet-50 (with the stride in a block's 3 × 3, as in torchvision).
std::vector<Layer> resnet50() {
  std::vector<Layer> layers{{224, 3, 64, 7, 2, 3}};
  std::uint32_t in = 56;
  std::uint32_t c = 64;
  std::uint32_t width = 64;
  for (const unsigned blocks : {3u, 4u, 6u, 3u}) {
    for (unsigned block = 0; block < blocks; ++block) {
      const std::uint16_t stride = block == 0 && width != 64 ? 2 : 1;
      layers.push_back({in, c, width, 1});
      layers.push_back({in, width, width, 3, stride, 1});
      if (block == 0) layers.push_back({in, c, 4 * width, 1, stride});
      in /= stride;
      layers.push_back({in, width, 4 * width, 1});
      c = 4 * width;
    }
    width *= 2;
  }
  return layers;
}

}  // namespace

TEST_CASE("Convolution: two operations for each product") {
  // ResNet's first: 64 filters of 7 × 7 × 3 at 112 × 112 positions.
  const ConvolutionShape first = shape_of({224, 3, 64, 7, 2, 3}, 1);
  CHECK(convolution_flops(first) == 2ull * 118'013'952);
  CHECK(convolution_flops(shape_of({224, 3, 64, 7, 2, 3}, 256)) == 256ull * 2 * 118'013'952);

  // The gradients of input and filter take as many.
  for (const std::uint8_t direction : {std::uint8_t{2}, std::uint8_t{3}}) {
    ConvolutionShape gradient = first;
    gradient.direction = direction;
    CHECK(convolution_flops(gradient) == convolution_flops(first));
  }

  const ConvolutionShape depthwise = shape_of({56, 64, 64, 3, 1, 1, 64}, 8);
  CHECK(convolution_flops(depthwise) == 2ull * 8 * 64 * 56 * 56 * 9);
  CHECK(convolution_flops(shape_of({56, 64, 128, 3, 1, 1, 4}, 1)) == 2ull * 128 * 56 * 56 * 16 * 9);
}

TEST_CASE("Convolution: one and three dimensions") {
  ConvolutionShape line;
  line.dimensions = 1;
  line.n = 8;
  line.c = 32;
  line.k = 48;
  line.in = {0, 0, 1000};
  line.filter = {0, 0, 7};
  line.out = {0, 0, 500};
  CHECK(convolution_flops(line) == 2ull * 8 * 48 * 500 * 32 * 7);

  ConvolutionShape volume;
  volume.dimensions = 3;
  volume.n = 2;
  volume.c = 16;
  volume.k = 24;
  volume.in = {8, 32, 32};
  volume.filter = {3, 3, 3};
  volume.out = {8, 32, 32};
  CHECK(convolution_flops(volume) == 2ull * 2 * 24 * 8 * 32 * 32 * 16 * 27);
}

TEST_CASE("Convolution: what can't be") {
  ConvolutionShape shape;
  CHECK(convolution_flops(shape) == 0);
  shape.groups = 0;
  CHECK(convolution_flops(shape) == 0);
  shape = shape_of({224, 3, 64, 7, 2, 3}, 1);
  shape.n = shape.k = shape.c = shape.out[1] = shape.out[2] = 0xFFFF'FFFF;
  CHECK(convolution_flops(shape) == ~0ull);
}

TEST_CASE("ResNet-50: 4.1 billion products forward, twice that backward") {
  std::uint64_t forward = 0;
  std::uint64_t to_data = 0;
  const std::vector<Layer> layers = resnet50();
  CHECK(layers.size() == 53);
  for (const Layer& layer : layers) {
    forward += convolution_flops(shape_of(layer, 1));
    // The gradient of the images is not needed.
    if (layer.c != 3) to_data += convolution_flops(shape_of(layer, 1));
  }
  CHECK(forward == 2ull * 4'087'136'256);
  CHECK(forward - to_data == 2ull * 118'013'952);
}

TEST_CASE("Attention: two products forward, five backward") {
  AttentionShape shape;
  shape.direction = 1;
  shape.type = DataType::kBf16;
  shape.batch = 2;
  shape.heads = 8;
  shape.kv_heads = 8;
  shape.query_length = 512;
  shape.key_length = 512;
  shape.head_size = 64;
  shape.value_head_size = 64;
  const std::uint64_t forward = 4ull * 2 * 8 * 512 * 512 * 64;
  CHECK(attention_flops(shape) == forward);
  shape.flags = kAttentionCausal;
  CHECK(attention_flops(shape) == forward / 512 / 512 * (512 * 513 / 2));
  shape.flags = kAttentionDropout;
  CHECK(attention_flops(shape) == forward);
  shape.direction = 2;
  CHECK(attention_flops(shape) == forward / 2 * 5);
  // The sizes of the projections are unknown.
  shape.flags |= kAttentionProjected;
  CHECK_FALSE(attention_flops(shape));

  // Heads that share keys and values; values of a different size.
  AttentionShape shared;
  shared.direction = 1;
  shared.type = DataType::kF16;
  shared.batch = 1;
  shared.heads = 16;
  shared.kv_heads = 4;
  shared.query_length = 300;
  shared.key_length = 700;
  shared.head_size = 192;
  shared.value_head_size = 128;
  CHECK(attention_flops(shared) == 2ull * 16 * 300 * 700 * (192 + 128));
  shared.direction = 2;
  CHECK(attention_flops(shared) == 2ull * 16 * 300 * 700 * (3 * 192 + 2 * 128));
}

TEST_CASE("Attention: a causal mask leaves the pairs below its diagonal") {
  struct Lengths {
    std::uint32_t queries, keys;
  };
  // One query and many keys: decoding.
  for (const auto& [queries, keys] : {Lengths{1, 4096}, Lengths{5, 5}, Lengths{3, 8}, Lengths{8, 3},
                                      Lengths{64, 1}, Lengths{128, 131}, Lengths{0, 7}, Lengths{7, 0}}) {
    AttentionShape shape;
    shape.direction = 1;
    shape.batch = 2;
    shape.heads = 3;
    shape.query_length = queries;
    shape.key_length = keys;
    shape.head_size = 64;
    shape.value_head_size = 32;
    std::uint64_t top_left = 0;
    std::uint64_t bottom_right = 0;
    for (std::int64_t query = 0; query < queries; ++query) {
      for (std::int64_t key = 0; key < keys; ++key) {
        top_left += key <= query ? 1 : 0;
        bottom_right += key <= query + keys - queries ? 1 : 0;
      }
    }
    INFO(queries << " queries, " << keys << " keys");
    CHECK(attention_flops(shape) == std::uint64_t{2} * 2 * 3 * queries * keys * (64 + 32));
    shape.flags = kAttentionCausal;
    CHECK(attention_pairs(shape) == top_left);
    CHECK(attention_flops(shape) == 2 * 2 * 3 * top_left * (64 + 32));
    shape.flags = kAttentionCausal | kAttentionBottomRight;
    CHECK(attention_pairs(shape) == bottom_right);
    CHECK(attention_flops(shape) == 2 * 2 * 3 * bottom_right * (64 + 32));
    shape.flags = kAttentionCausal | kAttentionShifted;
    CHECK_FALSE(attention_flops(shape).has_value());
    CHECK(work_of(shape).flops == 0);
    CHECK_FALSE(work_of(shape).flops_known);
  }
}

TEST_CASE("RNN: gates times input and state, at every step") {
  RnnShape shape;
  shape.direction = 1;
  shape.cell = 2;
  shape.layers = 1;
  shape.input_size = 128;
  shape.hidden_size = 256;
  shape.length = 20;
  shape.batch = 4;
  shape.steps = 47;  // 20 + 15 + 9 + 3
  CHECK(rnn_flops(shape) == 2ull * 47 * 256 * (128 + 256));
  shape.cell = 3;
  CHECK(rnn_flops(shape) == 2ull * 47 * 4 * 256 * (128 + 256));
  shape.cell = 4;
  CHECK(rnn_flops(shape) == 2ull * 47 * 3 * 256 * (128 + 256));
  for (const std::uint8_t direction : {std::uint8_t{2}, std::uint8_t{3}}) {
    shape.direction = direction;
    CHECK(rnn_flops(shape) == 2ull * 47 * 3 * 256 * (128 + 256));
  }

  // The second layer of a bidirectional network takes both directions' output as its input.
  RnnShape deep;
  deep.cell = 3;
  deep.bidirectional = 1;
  deep.layers = 2;
  deep.input_size = 256;
  deep.hidden_size = 512;
  deep.steps = 3200;
  CHECK(rnn_flops(deep) == 2ull * 3200 * 2 * 4 * 512 * ((256 + 512) + (1024 + 512)));

  // A projection shortens state and output, and is a product of its own.
  RnnShape projected = deep;
  projected.bidirectional = 0;
  projected.projection_size = 128;
  CHECK(rnn_flops(projected) == 2ull * 3200 * (4 * 512 * ((256 + 128) + (128 + 128)) + 2 * 512 * 128));
  projected.layers = 0;
  CHECK(rnn_flops(projected) == 0);
}

TEST_CASE("RNN: weights, input and output are moved once") {
  RnnShape shape;
  shape.direction = 1;
  shape.cell = 3;
  shape.layers = 2;
  shape.bidirectional = 1;
  shape.input_size = 256;
  shape.hidden_size = 512;
  shape.steps = 3200;
  shape.type = DataType::kF16;
  const std::uint64_t weights = 2ull * 4 * 512 * ((256 + 512) + (1024 + 512));
  for (const std::uint8_t direction : {std::uint8_t{1}, std::uint8_t{2}, std::uint8_t{3}}) {
    shape.direction = direction;
    CHECK(rnn_bytes(shape) == 2 * (weights + 3200 * (256 + 2 * 512)));
    CHECK(work_of(shape).bytes == rnn_bytes(shape));
  }
  // The input of 512 is read, but not multiplied.
  shape.input_size = 0;
  CHECK(rnn_bytes(shape) == 2 * (weights - 2ull * 4 * 512 * 256 + 3200 * (512 + 2 * 512)));
  shape.projection_size = 128;
  CHECK(rnn_bytes(shape) ==
        2 * (2ull * (4 * 512 * (128 + (256 + 128)) + 2 * 512 * 128) + 3200 * (512 + 2 * 128)));
  shape.batch = RnnShape::kMaxSequences + 1;
  CHECK(rnn_bytes(shape) == 0);
  shape.batch = 1;
  shape.cell = 0;
  CHECK(rnn_bytes(shape) == 0);
  shape.cell = 3;
  shape.layers = shape.hidden_size = 0xFFFF'FFFF;
  CHECK_FALSE(work_of(shape).flops_known);
  CHECK(work_of(shape).bytes == 0);
}
