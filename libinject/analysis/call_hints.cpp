// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/call_hints.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "libinject/analysis/shape_text.h"
#include "libinject/base/format.h"

namespace inject {

namespace {

constexpr std::uint8_t kChannelsFirst = 1;
constexpr std::uint8_t kStandardAlgorithm = 1;
constexpr std::uint8_t kWeightGradient = 3;

/// Changing the layout is worth mentioning from this share on.
constexpr double kLayoutShare = 0.1;

/// A memory-bound call has little to gain from padding that makes it read and write so much more.
constexpr double kMostMoreBytes = 1.05;

/// Number of channels that are loaded together.
std::uint32_t channels_of_load(DataType type) {
  constexpr std::uint32_t kLoadBits = 128;
  return kLoadBits / data_type_bits(type);
}

/// Whether channels can be padded without multiplying the work: to less than twice as many.
bool is_worth_padding(std::uint32_t channels, DataType type) {
  const std::uint32_t step = channels_of_load(type);
  return channels % step == 0 || channels > step / 2;
}

/// A 1 x 1 convolution reads each element of its input once, whatever it is padded to.
bool reads_more_if_padded(const ConvolutionShape& shape, DataType type) {
  const bool is_pointwise = std::ranges::all_of(shape.filter, [](std::uint32_t size) { return size <= 1; });
  const std::uint32_t step = channels_of_load(type);
  const auto padded = [step](std::uint32_t channels) { return (channels + step - 1) / step * step; };
  return is_pointwise && padded(shape.c) + padded(shape.k) > kMostMoreBytes * (shape.c + shape.k);
}

bool has_tf32(const DeviceSpecs& device) {
  return arithmetic_support(device, Arithmetic::kTf32) == ArithmeticSupport::kYes;
}

/// Equal for layers that differ only in the algorithm.
RnnShape without_algorithm(RnnShape shape) {
  shape.algorithm = 0;
  return shape;
}

}  // namespace

bool changes_layout(std::string_view name) noexcept {
  return name.find("ToNhwc") != std::string_view::npos || name.find("ToNchw") != std::string_view::npos;
}

std::vector<Hint> convolution_hints(const ConvolutionShape& shape, const MeasuredConvolution& measured,
                                    const DeviceSpecs& device) {
  std::vector<Hint> hints;
  const bool channels_first = shape.layout == kChannelsFirst;
  if (channels_first && measured.layout_share >= kLayoutShare) {
    hints.push_back({HintKind::kLayout, str_format("changing the layout takes {:.0f} % of the time: channels "
                                                   "last needs none",
                                                   100 * measured.layout_share)});
  }
  const TensorEligibility eligibility = tensor_eligibility(shape, device);
  // With channels first, they are padded when the layout is changed for tensor cores.
  const bool padded = channels_first && measured.cores == TensorCores::kUsed;
  // Worthwhile for the three colours of images, though it more than doubles them (docs/shapes.md, measured).
  const bool colours = shape.c == 3;
  const auto [type, other] = multiplied_types(shape);
  const bool only_more_bytes = measured.bound == Bound::kMemory && reads_more_if_padded(shape, type);
  if (eligibility.misaligned && shape.groups <= 1 && !padded && !only_more_bytes &&
      (colours || is_worth_padding(shape.c, type)) && is_worth_padding(shape.k, type)) {
    hints.push_back({HintKind::kMultiples, eligibility.reason});
  }
  const bool fp32 = type == DataType::kF32 && other == DataType::kF32;
  // Older functions have a math type of their own.
  const bool allowed = measured.tf32_is_used && shape.legacy == 0;
  if (fp32 && shape.compute == ComputeType::kF32 && !allowed && measured.cores == TensorCores::kNotUsed &&
      has_tf32(device) && measured.bound != Bound::kMemory && shape.groups <= 1) {
    hints.push_back({HintKind::kTf32, "fp32 on CUDA cores: tf32, if allowed, could use tensor cores"});
  }
  return hints;
}

std::vector<Hint> rnn_hints(const RnnShape& shape, TensorCores cores, const DeviceSpecs& device) {
  std::vector<Hint> hints;
  // The gradient of the weights is a product over all steps.
  const bool narrow = shape.batch < kNarrow && shape.direction != kWeightGradient;
  // Persistent kernels keep the weights on the chip from step to step.
  if (narrow && shape.batch > 0 && shape.algorithm == kStandardAlgorithm) {
    hints.push_back({HintKind::kNarrow,
                     str_format("B = {} is below {}: each step reads a layer's weights for few sequences",
                                shape.batch, kNarrow)});
  }
  const TensorEligibility eligibility = tensor_eligibility(shape, device);
  if (eligibility.misaligned) hints.push_back({HintKind::kMultiples, eligibility.reason});
  if (!narrow && shape.type == DataType::kF32 && shape.compute == ComputeType::kF32 &&
      cores == TensorCores::kNotUsed && has_tf32(device)) {
    hints.push_back({HintKind::kTf32, "fp32 on CUDA cores: tf32 would use tensor cores"});
  }
  return hints;
}

void add_algorithm_hints(std::span<RnnRow> rows) {
  std::map<CallShape::Words, const RnnRow*> fastest;
  const auto key = [](const RnnRow& row) { return CallShape(without_algorithm(row.shape)).words(); };
  for (const RnnRow& row : rows) {
    if (row.rate == 0) continue;
    const RnnRow*& best = fastest[key(row)];
    if (best == nullptr || row.rate > best->rate) best = &row;
  }
  for (RnnRow& row : rows) {
    if (row.rate == 0) continue;
    const RnnRow& best = *fastest[key(row)];
    if (best.shape.algorithm == row.shape.algorithm || best.rate <= row.rate * kFasterBy) continue;
    row.hints.push_back(
        {HintKind::kAlgorithm,
         str_format("{} is {:.0f} % faster than {} at this size", rnn_algorithm_name(best.shape.algorithm),
                    100 * (best.rate / row.rate - 1), rnn_algorithm_name(row.shape.algorithm))});
  }
}

}  // namespace inject
