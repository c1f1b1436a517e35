// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/rnn_products.h"

#include <limits>
#include <optional>

#include "libinject/analysis/flops.h"

namespace inject {

namespace {

constexpr std::uint64_t kMaxProducts = std::numeric_limits<std::uint32_t>::max();  // of a GemmShape

// RnnShape::direction.
constexpr std::uint8_t kData = 2;
constexpr std::uint8_t kWeights = 3;

/// A matrix of weights, row-major, and what it is multiplied by: `columns` vectors in each of `count`
/// products.
struct Weights {
  std::uint64_t rows = 0;
  std::uint64_t width = 0;
  std::uint64_t columns = 0;  ///< 0: varies
  std::uint64_t count = 0;
};

/// Row-major matrices, as in docs/gemm.md: y = w · x is TN, the gradient of x NN, that of w NT.
RnnProduct oriented(const Weights& weights, std::uint8_t direction) {
  switch (direction) {
    case kData:
      return {'N', 'N', weights.width, weights.columns, weights.rows, weights.count, 0};
    case kWeights:
      return {'N', 'T', weights.width, weights.rows, weights.columns, weights.count, 0};
    default:
      return {'T', 'N', weights.rows, weights.columns, weights.width, weights.count, 0};
  }
}

bool same_size(const RnnProduct& a, const RnnProduct& b) {
  return a.m == b.m && a.n == b.n && a.k == b.k;
}

}  // namespace

// From cuDNN's documentation of cudnnRNNForward, cudnnRNNMode_t and cudnnGetRNNWeightParams: the gates'
// matrices have `hidden` rows each; those of the first layer's input are as wide as the input, those of
// further layers as the output of all directions; those of the state are as wide as the state, which a
// projection shortens by a matrix of its own. CUDNN_SKIP_INPUT leaves out the first layer's input matrices.
//
// Whatever does not depend on the previous step is one product over all steps: the input's, and all weight
// gradients. cuDNN 9 on an H100 ran the same number of kernels, forward and for the gradient of the data.
std::vector<RnnProduct> rnn_products(const RnnShape& shape) {
  std::vector<RnnProduct> products;
  const std::optional<std::uint64_t> flops = rnn_flops(shape);
  if (!flops || *flops == 0 || *flops == kTooLarge || shape.direction < 1 || shape.direction > kWeights ||
      shape.length > shape.steps) {
    return products;
  }
  // Nothing below can overflow: it is a factor or a term of `flops`, or less than one.
  const std::uint64_t directions = shape.bidirectional != 0 ? 2 : 1;
  const std::uint64_t rows = rnn_gates(shape.cell) * std::uint64_t{shape.hidden_size};
  const std::uint64_t output = shape.projection_size != 0 ? shape.projection_size : shape.hidden_size;
  const std::uint64_t layers = shape.layers;
  // `sets`: pairs of a layer and a direction, each with `each` products that cover all steps together.
  const auto add = [&](std::uint64_t height, std::uint64_t width, std::uint64_t sets, std::uint64_t columns,
                       std::uint64_t each) {
    if (width == 0) return;
    RnnProduct product = oriented({height, width, columns, sets * each}, shape.direction);
    product.flops = 2 * height * width * shape.steps * sets;
    for (RnnProduct& known : products) {
      if (!same_size(known, product)) continue;
      known.count += product.count;
      known.flops += product.flops;
      return;
    }
    products.push_back(product);
  };
  const auto add_at_once = [&](std::uint64_t height, std::uint64_t width, std::uint64_t sets) {
    add(height, width, sets, shape.steps, 1);
  };
  const auto add_by_step = [&](std::uint64_t height, std::uint64_t width) {
    const bool equal = shape.steps == std::uint64_t{shape.batch} * shape.length;
    if (shape.direction == kWeights) return add_at_once(height, width, layers * directions);
    add(height, width, layers * directions, equal ? shape.batch : 0, shape.length);
  };
  add_at_once(rows, shape.input_size, directions);
  if (layers > 1) add_at_once(rows, directions * output, (layers - 1) * directions);
  add_by_step(rows, output);
  if (shape.projection_size != 0) add_by_step(shape.projection_size, shape.hidden_size);
  std::uint64_t count = 0;
  for (const RnnProduct& product : products) count += product.count;
  if (count > kMaxProducts) products.clear();
  return products;
}

}  // namespace inject
