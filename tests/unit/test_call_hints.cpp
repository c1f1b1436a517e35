// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/call_hints.h"

#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr DeviceSpecs kTeslaV100{7, 0, 80, 1530000, 877000, 4096, ProductVariant::kFull};
constexpr DeviceSpecs kHopper{9, 0, 132, 1980000, 3201000, 6144, ProductVariant::kFull};
constexpr DeviceSpecs kNoDevice{};

constexpr std::uint8_t kFirst = 1;
constexpr std::uint8_t kLast = 2;

ConvolutionShape convolution(std::uint32_t c, std::uint32_t k, DataType type, std::uint8_t layout = kLast,
                             ComputeType compute = ComputeType::kF32) {
  ConvolutionShape shape;
  shape.direction = 1;
  shape.dimensions = 2;
  shape.x = shape.w = shape.y = type;
  shape.compute = compute;
  shape.layout = layout;
  shape.n = 64;
  shape.c = c;
  shape.k = k;
  return shape;
}

RnnShape recurrent(std::uint32_t batch, std::uint32_t size, DataType type,
                   ComputeType compute = ComputeType::kF32) {
  RnnShape shape;
  shape.direction = 1;
  shape.cell = 3;
  shape.algorithm = 1;
  shape.type = type;
  shape.compute = compute;
  shape.tensor_math = 2;
  shape.layers = 2;
  shape.input_size = shape.hidden_size = size;
  shape.length = 100;
  shape.batch = batch;
  shape.steps = 100 * batch;
  return shape;
}

AttentionShape attention(std::uint32_t size, DataType type) {
  AttentionShape shape;
  shape.direction = 1;
  shape.type = type;
  shape.compute = ComputeType::kF32;
  shape.engine = 2;
  shape.head_size = shape.value_head_size = size;
  return shape;
}

template <typename Shape>
std::string answer(const Shape& shape, const DeviceSpecs& device = kHopper) {
  const TensorEligibility found = tensor_eligibility(shape, device);
  CHECK(found.reason.empty() == (found.eligible == Eligible::kYes));
  return std::string(eligible_name(found.eligible)) + (found.reason.empty() ? "" : ": " + found.reason);
}

std::string hints_of(const ConvolutionShape& shape, const MeasuredConvolution& measured,
                     const DeviceSpecs& device = kHopper) {
  return join_hints(convolution_hints(shape, measured, device));
}

}  // namespace

TEST_CASE("Whether tensor cores could do a convolution", "[analysis]") {
  CHECK(answer(convolution(64, 128, DataType::kF16)) == "yes");
  CHECK(answer(convolution(64, 128, DataType::kBf16)) == "yes");
  CHECK(answer(convolution(64, 128, DataType::kBf16), kTeslaV100) == "no: the device has none for bf16");
  CHECK(answer(convolution(3, 64, DataType::kF16)) == "misaligned: not multiples of 16 bytes: C = 3");
  CHECK(answer(convolution(12, 100, DataType::kBf16)) ==
        "misaligned: not multiples of 16 bytes: C = 12, K = 100");
  // Four fp32 elements take as many bytes as eight fp16 elements.
  CHECK(answer(convolution(12, 100, DataType::kF32, kLast, ComputeType::kF32Tf32)) == "yes");
  CHECK(answer(convolution(64, 128, DataType::kI8, kLast, ComputeType::kI32)) == "yes");
  CHECK(answer(convolution(64, 128, DataType::kF64, kLast, ComputeType::kF64)) == "unknown: fp64");
  CHECK(answer(convolution(64, 128, DataType::kF16), kNoDevice) == "unknown: device not known");
  CHECK(answer(convolution(64, 128, DataType::kUnknown)) == "unknown: type not known");

  // Each group has its own channels.
  auto grouped = convolution(64, 64, DataType::kF16);
  grouped.groups = 4;
  CHECK(answer(grouped) == "yes");
  grouped.groups = 16;
  CHECK(answer(grouped) == "misaligned: not multiples of 16 bytes: C / groups = 4, K / groups = 4");
  grouped.groups = 64;
  CHECK(answer(grouped) == "misaligned: not multiples of 16 bytes: C / groups = 1, K / groups = 1");

  auto mixed = convolution(64, 64, DataType::kI8, kLast, ComputeType::kI32);
  mixed.w = DataType::kF16;
  CHECK(answer(mixed) == "unknown: operands are of different types");

  // The inputs of the multiplication depend on the direction; the output may have another type.
  const auto in_direction = [](std::uint8_t direction, DataType x, DataType w, DataType y) {
    auto shape = convolution(64, 64, x);
    shape.direction = direction;
    shape.w = w;
    shape.y = y;
    return answer(shape);
  };
  constexpr DataType kHalf = DataType::kF16;
  constexpr DataType kSingle = DataType::kF32;
  for (const std::uint8_t direction : {std::uint8_t{1}, std::uint8_t{2}, std::uint8_t{3}}) {
    INFO(int{direction});
    CHECK(in_direction(direction, kHalf, kHalf, kHalf) == "yes");
    CHECK(in_direction(direction, kHalf, kHalf, kSingle) ==
          (direction == 1 ? "yes" : "unknown: operands are of different types"));
    CHECK(in_direction(direction, kSingle, kHalf, kHalf) ==
          (direction == 2 ? "yes" : "unknown: operands are of different types"));
    CHECK(in_direction(direction, kHalf, kSingle, kHalf) ==
          (direction == 3 ? "yes" : "unknown: operands are of different types"));
  }

  // A graph's engine that uses fp32 might have been allowed tf32; an older function's descriptor tells.
  auto fp32 = convolution(64, 64, DataType::kF32);
  CHECK(answer(fp32) == "unknown: fp32, and whether tf32 is allowed is not known");
  CHECK(answer(fp32, kTeslaV100) == "no: fp32");
  fp32.legacy = 1;
  CHECK(answer(fp32) == "no: fp32, and tf32 is not allowed");
  auto older = convolution(64, 64, DataType::kF16);
  older.legacy = 1;
  CHECK(answer(older) == "unknown: math type not known");
}

TEST_CASE("Whether tensor cores could do attention or a recurrent layer", "[analysis]") {
  CHECK(answer(attention(64, DataType::kBf16)) == "yes");
  CHECK(answer(attention(100, DataType::kF16)) ==
        "misaligned: not multiples of 16 bytes: D = 100, D Value = 100");
  CHECK(answer(attention(64, DataType::kF32)) == "unknown: fp32, and whether tf32 is allowed is not known");
  auto older = attention(64, DataType::kF16);
  older.engine = -1;
  CHECK(answer(older) == "unknown: engine not known");

  CHECK(answer(recurrent(64, 800, DataType::kF16)) == "yes");
  CHECK(answer(recurrent(7, 800, DataType::kF16)) == "yes");
  CHECK(answer(recurrent(64, 1000 + 4, DataType::kF16)) ==
        "misaligned: not multiples of 16 bytes: Input Size = 1004, Hidden Size = 1004");
  CHECK(answer(recurrent(64, 1004, DataType::kF32, ComputeType::kF32Tf32)) == "yes");
  CHECK(answer(recurrent(64, 800, DataType::kF32)) == "no: fp32, and tf32 is not allowed");
  auto projected = recurrent(64, 800, DataType::kBf16);
  projected.projection_size = 100;
  CHECK(answer(projected) == "misaligned: not multiples of 16 bytes: Projection Size = 100");

  auto fma = recurrent(64, 800, DataType::kF16);
  fma.tensor_math = 4;
  CHECK(answer(fma) == "no: the descriptor's math type is FMA");
  for (const std::uint8_t math : {std::uint8_t{0}, std::uint8_t{1}}) {
    auto half = recurrent(64, 800, DataType::kF16);
    half.tensor_math = math;
    CHECK(answer(half) == "unknown: the descriptor does not ask for tensor operations");
    auto single = recurrent(64, 800, DataType::kF32, ComputeType::kF32Tf32);
    single.tensor_math = math;
    CHECK(answer(single) == "yes");
  }
}

TEST_CASE("Hints for convolutions", "[analysis]") {
  const MeasuredConvolution fast{TensorCores::kUsed, Bound::kCompute, 0, false};
  CHECK(hints_of(convolution(64, 64, DataType::kF16), fast).empty());

  // The layout hint, given only with channels first.
  const MeasuredConvolution moved{TensorCores::kUsed, Bound::kCompute, 0.454, false};
  const MeasuredConvolution moved_little{TensorCores::kUsed, Bound::kCompute, 0.09, false};
  CHECK(hints_of(convolution(64, 64, DataType::kF16, kFirst), moved) ==
        "changing the layout takes 45 % of the time: channels last needs none");
  CHECK(hints_of(convolution(64, 64, DataType::kF16, kFirst), moved_little).empty());
  CHECK(hints_of(convolution(64, 64, DataType::kF16, kLast), moved).empty());

  // Channel counts that can be padded without multiplying the work.
  for (const std::uint32_t channels : {3u, 5u, 7u, 9u, 60u, 1001u}) {
    INFO(channels);
    CHECK(hints_of(convolution(channels, 64, DataType::kF16), fast) ==
          "not multiples of 16 bytes: C = " + std::to_string(channels));
  }
  for (const std::uint32_t channels : {1u, 2u, 4u, 8u, 64u}) {
    INFO(channels);
    CHECK(hints_of(convolution(channels, 64, DataType::kF16), fast).empty());
    CHECK(hints_of(convolution(64, channels, DataType::kF16), fast).empty());
  }
  CHECK(hints_of(convolution(64, 3, DataType::kF16), fast).empty());  // a result is not an image's input
  CHECK(hints_of(convolution(3, 64, DataType::kF16, kFirst), fast).empty());  // the library pads them
  CHECK(hints_of(convolution(3, 64, DataType::kF16, kFirst), {TensorCores::kNotUsed, {}, 0, false}) ==
        "not multiples of 16 bytes: C = 3");
  auto grouped = convolution(60, 60, DataType::kF16);
  grouped.groups = 5;
  CHECK(hints_of(grouped, fast).empty());
  const MeasuredConvolution by_memory{TensorCores::kUsed, Bound::kMemory, 0, false};
  auto pointwise = convolution(36, 36, DataType::kF16);
  pointwise.filter = {0, 1, 1};
  CHECK(hints_of(pointwise, by_memory).empty());
  CHECK_FALSE(hints_of(pointwise, fast).empty());
  auto nearly = convolution(255, 64, DataType::kF16);
  nearly.filter = {0, 1, 1};
  CHECK_FALSE(hints_of(nearly, by_memory).empty());
  auto wide = pointwise;
  wide.filter = {0, 1, 3};
  CHECK_FALSE(hints_of(wide, by_memory).empty());

  // The tf32 hint, unless the process uses it already.
  const MeasuredConvolution slow{TensorCores::kNotUsed, Bound::kCompute, 0, false};
  const auto fp32 = convolution(64, 64, DataType::kF32);
  CHECK(hints_of(fp32, slow) == "fp32 on CUDA cores: tf32, if allowed, could use tensor cores");
  CHECK(hints_of(fp32, slow, kTeslaV100).empty());
  CHECK(hints_of(fp32, {TensorCores::kNotUsed, Bound::kCompute, 0, true}).empty());
  auto older = fp32;
  older.legacy = 1;
  CHECK_FALSE(hints_of(older, {TensorCores::kNotUsed, Bound::kCompute, 0, true}).empty());
  CHECK(hints_of(fp32, {TensorCores::kNotUsed, Bound::kMemory, 0, false}).empty());
  CHECK(hints_of(fp32, {TensorCores::kUnknown, Bound::kCompute, 0, false}).empty());
}

TEST_CASE("Kernels that change the layout", "[analysis]") {
  CHECK(changes_layout("void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false>(…)"));
  CHECK(changes_layout("void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float>(…)"));
  CHECK_FALSE(changes_layout("void cudnn::ops::nhwcAddPaddingKernel<__half, __half, float, true>(…)"));
  CHECK_FALSE(
      changes_layout("sm80_xmma_fprop_implicit_gemm_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x128x32"));
  CHECK_FALSE(changes_layout("transpose_readWrite_alignment_kernel"));
}

TEST_CASE("Hints for recurrent layers", "[analysis]") {
  const auto of = [](const RnnShape& shape, TensorCores cores = TensorCores::kUsed) {
    return join_hints(rnn_hints(shape, cores, kHopper));
  };
  CHECK(of(recurrent(32, 800, DataType::kF16)).empty());
  CHECK(of(recurrent(31, 800, DataType::kF16)) ==
        "B = 31 is below 32: each step reads a layer's weights for few sequences");
  auto persistent = recurrent(31, 800, DataType::kF16);
  persistent.algorithm = 2;
  CHECK(of(persistent).empty());
  CHECK(of(recurrent(0, 800, DataType::kF16)).empty());
  auto gradient = recurrent(8, 800, DataType::kF32);
  gradient.direction = 3;
  CHECK(of(gradient, TensorCores::kNotUsed) == "fp32 on CUDA cores: tf32 would use tensor cores");
  CHECK(of(recurrent(64, 801, DataType::kF16)) ==
        "not multiples of 16 bytes: Input Size = 801, Hidden Size = 801");
  CHECK(of(recurrent(64, 800, DataType::kF32), TensorCores::kNotUsed) ==
        "fp32 on CUDA cores: tf32 would use tensor cores");
  CHECK(of(recurrent(64, 800, DataType::kF32), TensorCores::kUsed).empty());
  CHECK(of(recurrent(64, 800, DataType::kF32, ComputeType::kF32Tf32), TensorCores::kNotUsed).empty());
}

TEST_CASE("Another algorithm of a recurrent layer is faster", "[analysis]") {
  const auto row = [](std::uint8_t algorithm, double rate, std::uint32_t batch = 64) {
    RnnShape shape = recurrent(batch, 800, DataType::kF16);
    shape.algorithm = algorithm;
    return RnnRow{shape, rate, {}};
  };
  std::vector<RnnRow> rows{row(1, 10e12), row(2, 14e12), row(4, 13.5e12), row(3, 0), row(1, 5e12, 128)};
  add_algorithm_hints(rows);
  CHECK(join_hints(rows[0].hints) == "persistent static is 40 % faster than standard at this size");
  for (std::size_t i = 1; i < rows.size(); ++i) CHECK(rows[i].hints.empty());
  add_algorithm_hints({});
}
