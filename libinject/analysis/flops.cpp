// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/flops.h"

#include <initializer_list>
#include <iterator>

namespace inject {

namespace {

std::uint64_t product(std::initializer_list<std::uint64_t> factors) noexcept {
  std::uint64_t all = 1;
  for (const std::uint64_t factor : factors) {
    if (factor == 0) return 0;
    if (__builtin_mul_overflow(all, factor, &all)) all = kTooLarge;
  }
  return all;
}

std::uint64_t sum(std::initializer_list<std::uint64_t> terms) noexcept {
  std::uint64_t all = 0;
  for (const std::uint64_t term : terms)
    if (__builtin_add_overflow(all, term, &all)) all = kTooLarge;
  return all;
}

/// Number of elements over the spatial dimensions in use; the others hold 0.
template <typename Sizes>
std::uint64_t volume(const Sizes& sizes, std::uint8_t dimensions) noexcept {
  std::uint64_t all = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (i + dimensions >= sizes.size()) all = product({all, sizes[i]});
  return all;
}

std::uint64_t bytes_of(std::uint64_t elements, DataType type) noexcept {
  const std::uint64_t bits = product({elements, data_type_bits(type)});
  return bits == kTooLarge ? kTooLarge : bits / 8;
}

}  // namespace

std::uint64_t convolution_flops(const ConvolutionShape& shape) noexcept {
  if (shape.groups == 0) return 0;
  return product({2, shape.n, shape.k, volume(shape.out, shape.dimensions), shape.c / shape.groups,
                  volume(shape.filter, shape.dimensions)});
}

std::optional<std::uint64_t> attention_pairs(const AttentionShape& shape) noexcept {
  // These have 32 bits each: their products fit into 64 bits, and so do the results below.
  const std::uint64_t queries = shape.query_length;
  const std::uint64_t keys = shape.key_length;
  if ((shape.flags & kAttentionCausal) == 0) return queries * keys;
  if ((shape.flags & kAttentionShifted) != 0) return std::nullopt;
  // A staircase: each query sees one key more than the previous one.
  const auto staircase = [](std::uint64_t steps) {
    return steps % 2 == 0 ? steps / 2 * (steps + 1) : (steps + 1) / 2 * steps;
  };
  const bool bottom_right = (shape.flags & kAttentionBottomRight) != 0;
  if (queries <= keys) return staircase(queries) + (bottom_right ? queries * (keys - queries) : 0);
  // The queries beyond the staircase are either the last ones, which see every key, or the first ones, which
  // see none.
  return staircase(keys) + (bottom_right ? 0 : (queries - keys) * keys);
}

std::optional<std::uint64_t> attention_flops(const AttentionShape& shape) noexcept {
  if ((shape.flags & (kAttentionProjected | kAttentionRagged | kAttentionWindow)) != 0) return std::nullopt;
  const std::optional<std::uint64_t> pairs = attention_pairs(shape);
  if (!pairs) return std::nullopt;
  const std::uint64_t head = shape.head_size;
  const std::uint64_t value = shape.value_head_size;
  const std::uint64_t depth = shape.direction == 2 ? 3 * head + 2 * value : head + value;
  return product({2, shape.batch, shape.heads, *pairs, depth});
}

std::uint64_t rnn_gates(std::uint8_t cell) noexcept {
  constexpr std::uint64_t kGates[] = {0, 1, 1, 4, 3};  // by RnnShape::cell
  return cell < std::size(kGates) ? kGates[cell] : 0;
}

namespace {

/// Number of elements of all weights; each is multiplied once per step of a sequence. Empty if the cell is
/// unknown.
std::optional<std::uint64_t> rnn_weights(const RnnShape& shape) noexcept {
  const std::uint64_t gates = rnn_gates(shape.cell);
  if (gates == 0) return std::nullopt;
  if (shape.layers == 0) return 0;
  const std::uint64_t directions = shape.bidirectional != 0 ? 2 : 1;
  const std::uint64_t hidden = shape.hidden_size;
  const std::uint64_t output = shape.projection_size != 0 ? shape.projection_size : hidden;
  const std::uint64_t inputs =  // of all layers
      sum({shape.input_size, product({shape.layers - 1, directions, output})});
  const std::uint64_t depth = sum({inputs, product({shape.layers, output})});
  const std::uint64_t projections =
      shape.projection_size != 0 ? product({shape.layers, hidden, shape.projection_size}) : 0;
  return product({directions, sum({product({gates, hidden, depth}), projections})});
}

}  // namespace

std::optional<std::uint64_t> rnn_flops(const RnnShape& shape) noexcept {
  const std::optional<std::uint64_t> weights = rnn_weights(shape);
  if (!weights || shape.batch > RnnShape::kMaxSequences) return std::nullopt;
  return product({2, shape.steps, *weights});
}

std::uint64_t rnn_bytes(const RnnShape& shape) noexcept {
  const std::optional<std::uint64_t> weights = rnn_weights(shape);
  if (!weights || *weights == 0 || shape.batch > RnnShape::kMaxSequences) return 0;
  const std::uint64_t output = shape.projection_size != 0 ? shape.projection_size : shape.hidden_size;
  // An input that is not multiplied by weights is as wide as the state.
  const std::uint64_t input = shape.input_size != 0 ? shape.input_size : shape.hidden_size;
  const std::uint64_t width = input + (shape.bidirectional != 0 ? 2 : 1) * output;
  return bytes_of(sum({*weights, product({shape.steps, width})}), shape.type);
}

}  // namespace inject
