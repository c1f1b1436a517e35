// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The operations of library calls, a multiply-add being two, and the fewest bytes that they have to move.
// Counted as if computed directly, whatever the algorithm.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "libinject/model/call_shape.h"

namespace inject {

/// Used for a count that does not fit into 64 bits, here and in a GemmShape.
inline constexpr std::uint64_t kTooLarge = std::numeric_limits<std::uint64_t>::max();

/// 2 · N · K · out · C / groups · filter, forward and for either gradient. Products with padding are
/// included.
std::uint64_t convolution_flops(const ConvolutionShape& shape) noexcept;

/// Number of pairs of a query and a key whose score is kept by a causal mask of this kind, or of all pairs
/// without a mask. Empty if that depends on the position of the mask's diagonal, which is unknown.
std::optional<std::uint64_t> attention_pairs(const AttentionShape& shape) noexcept;
/// Over the pairs that the mask keeps: two products forward (queries and keys, scores and values), five
/// backward, since the scores are recomputed. Empty if the mask does not tell which pairs are computed: where
/// lengths vary, or only nearby keys are used.
std::optional<std::uint64_t> attention_flops(const AttentionShape& shape) noexcept;

/// Matrices per cell for its input, and as many for its state. 0 for unknown cells.
std::uint64_t rnn_gates(std::uint8_t cell) noexcept;
/// Products of gates with input and state over all steps, layers and directions, and of projections; the same
/// for either gradient. Empty if the cell or the number of steps is unknown.
std::optional<std::uint64_t> rnn_flops(const RnnShape& shape) noexcept;
/// Weights without biases, input of the first layer, output of the last one, once each; backward their
/// gradients instead, or in addition. Data passed between layers, or kept for the backward pass, is not
/// included. 0 if unknown.
std::uint64_t rnn_bytes(const RnnShape& shape) noexcept;

}  // namespace inject
