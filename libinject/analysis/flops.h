// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What library calls compute, in multiply-adds as two operations each, and the bytes that they have to move
// at least. Counted as if directly computed, whatever algorithm does it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "libinject/model/call_shape.h"

namespace inject {

/// What can't be held in 64 bits, here and in a GemmShape. It is no count.
inline constexpr std::uint64_t kTooLarge = std::numeric_limits<std::uint64_t>::max();

/// 2 · N · K · out · C / groups · filter: forward, and for either gradient as many. Products with padding
/// count.
std::uint64_t convolution_flops(const ConvolutionShape& shape) noexcept;
/// Input, filter and output once each.
std::uint64_t convolution_bytes(const ConvolutionShape& shape) noexcept;

/// Pairs of a query and a key whose score a causal mask of this kind keeps; all of them without one. Nothing
/// if that depends on where the mask's diagonal lies, which is not known.
std::optional<std::uint64_t> attention_pairs(const AttentionShape& shape) noexcept;
/// Forward two products, of queries and keys and of scores and values; backward five, as the scores are
/// computed again; of the pairs that the mask keeps. Of sequences whose lengths vary the longest count.
std::optional<std::uint64_t> attention_flops(const AttentionShape& shape) noexcept;
/// Queries, keys, values and output once each; backward their gradients as well.
std::uint64_t attention_bytes(const AttentionShape& shape) noexcept;

/// Products of gates with input and state over all steps, layers and directions, and of projections; for
/// either gradient as many.
std::uint64_t rnn_flops(const RnnShape& shape) noexcept;

}  // namespace inject
