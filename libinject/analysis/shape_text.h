// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The fields of call shapes as the tables print them. Empty if a field holds an impossible value.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/analysis/kernel_class.h"
#include "libinject/model/call_shape.h"

namespace inject {

/// "bias + relu"; `operations` has bits of GraphOperation.
std::string operations_text(std::uint64_t operations);

/// From cuDNN's notes on an engine, or the algorithm passed to an older function; kOther if they do not
/// indicate it (the kernels' names may).
ConvolutionAlgorithm convolution_algorithm_of(const ConvolutionShape& shape) noexcept;

/// "forward", "data gradient", "filter gradient".
std::string_view convolution_direction_name(std::uint8_t direction) noexcept;
/// "NCHW", "NHWC" and the like for one and three dimensions; "other".
std::string_view layout_name(std::uint8_t layout, std::uint8_t spatial_dimensions) noexcept;

/// "forward", "backward".
std::string_view attention_direction_name(std::uint8_t direction) noexcept;

/// "forward", "data gradient", "weight gradient".
std::string_view rnn_direction_name(std::uint8_t direction) noexcept;
/// "ReLU", "tanh", "LSTM", "GRU".
std::string_view rnn_cell_name(std::uint8_t cell) noexcept;
/// "standard", "persistent static", "persistent dynamic", "persistent small".
std::string_view rnn_algorithm_name(std::uint8_t algorithm) noexcept;

/// "forward", "backward", "inference".
std::string_view normalization_direction_name(std::uint8_t direction) noexcept;
/// "batch", "instance", "layer", "RMS", "group".
std::string_view normalization_mode_name(std::uint8_t mode) noexcept;

/// Sizes of the spatial dimensions in use: "56x56".
template <typename To>
std::string spatial_text(const std::array<To, 3>& sizes, std::uint8_t dimensions) {
  std::string text;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i + dimensions < sizes.size()) continue;
    if (!text.empty()) text += 'x';
    text += std::to_string(sizes[i]);
  }
  return text;
}

}  // namespace inject
