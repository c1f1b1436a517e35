// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/shape_text.h"

#include <span>

#include "libinject/model/graph_operations.h"

namespace inject {

namespace {

std::string_view name_in(std::span<const std::string_view> names, std::size_t index) noexcept {
  return index < names.size() ? names[index] : std::string_view();
}

void append(std::string& text, std::string_view name) {
  if (!text.empty()) text += " + ";
  text += name;
}

}  // namespace

std::string operations_text(std::uint64_t operations) {
  std::string text;
  for (unsigned i = 0; i < kGraphOperations; ++i)
    if ((operations >> i & 1u) != 0) append(text, graph_operation_name(static_cast<GraphOperation>(i)));
  return text;
}

ConvolutionAlgorithm convolution_algorithm_of(const ConvolutionShape& shape) noexcept {
  using enum ConvolutionAlgorithm;
  if (shape.legacy == 0) {
    if ((shape.notes & kEngineWinograd) != 0) return kWinograd;
    return (shape.notes & kEngineFft) != 0 ? kFft : kOther;
  }
  // cudnnConvolutionFwdAlgo_t, …BwdDataAlgo_t, …BwdFilterAlgo_t; gradient algorithms without a name are
  // products whose matrices are never formed.
  constexpr ConvolutionAlgorithm kForward[] = {kImplicitGemm, kImplicitGemm, kGemm,     kDirect,
                                               kFft,          kFft,          kWinograd, kWinograd};
  constexpr ConvolutionAlgorithm kData[] = {kImplicitGemm, kImplicitGemm, kFft, kFft, kWinograd, kWinograd};
  constexpr ConvolutionAlgorithm kFilter[] = {kImplicitGemm, kImplicitGemm, kFft, kImplicitGemm,
                                              kWinograd,     kWinograd,     kFft};
  const std::span<const ConvolutionAlgorithm> algorithms =
      shape.direction == 1   ? std::span<const ConvolutionAlgorithm>(kForward)
      : shape.direction == 2 ? std::span<const ConvolutionAlgorithm>(kData)
                             : std::span<const ConvolutionAlgorithm>(kFilter);
  const auto index = static_cast<std::size_t>(shape.engine);
  return shape.engine >= 0 && index < algorithms.size() ? algorithms[index] : kOther;
}

std::string_view convolution_direction_name(std::uint8_t direction) noexcept {
  constexpr std::string_view kNames[] = {"", "forward", "data gradient", "filter gradient"};
  return name_in(kNames, direction);
}

std::string_view layout_name(std::uint8_t layout, std::uint8_t spatial_dimensions) noexcept {
  constexpr std::string_view kFirst[] = {"NC", "NCW", "NCHW", "NCDHW"};
  constexpr std::string_view kLast[] = {"NC", "NWC", "NHWC", "NDHWC"};
  if (layout == 1) return name_in(kFirst, spatial_dimensions);
  if (layout == 2) return name_in(kLast, spatial_dimensions);
  return "other";
}

std::string_view attention_direction_name(std::uint8_t direction) noexcept {
  constexpr std::string_view kNames[] = {"", "forward", "backward"};
  return name_in(kNames, direction);
}

std::string_view rnn_direction_name(std::uint8_t direction) noexcept {
  constexpr std::string_view kNames[] = {"", "forward", "data gradient", "weight gradient"};
  return name_in(kNames, direction);
}

std::string_view rnn_cell_name(std::uint8_t cell) noexcept {
  constexpr std::string_view kNames[] = {"", "ReLU", "tanh", "LSTM", "GRU"};
  return name_in(kNames, cell);
}

std::string_view rnn_algorithm_name(std::uint8_t algorithm) noexcept {
  constexpr std::string_view kNames[] = {"", "standard", "persistent static", "persistent dynamic",
                                         "persistent small"};
  return name_in(kNames, algorithm);
}

std::string_view normalization_direction_name(std::uint8_t direction) noexcept {
  constexpr std::string_view kNames[] = {"", "forward", "backward", "inference"};
  return name_in(kNames, direction);
}

std::string_view normalization_mode_name(std::uint8_t mode) noexcept {
  constexpr std::string_view kNames[] = {"", "batch", "instance", "layer", "RMS", "group"};
  return name_in(kNames, mode);
}

}  // namespace inject
