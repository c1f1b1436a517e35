// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/gemm_hints.h"

#include <string>
#include <vector>

#include "libinject/analysis/shape_work.h"
#include "libinject/analysis/tensor_eligibility.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr DeviceSpecs kP100{6, 0, 56, 1480000, 715000, 4096, ProductVariant::kFull};
constexpr DeviceSpecs kV100{7, 0, 80, 1530000, 877000, 4096, ProductVariant::kFull};
constexpr DeviceSpecs kA100{8, 0, 108, 1410000, 1215000, 5120, ProductVariant::kFull};
constexpr DeviceSpecs kH200{9, 0, 132, 1980000, 3201000, 6144, ProductVariant::kFull};

/// A product of packed matrices at aligned addresses.
GemmShape product(std::int64_t m, std::int64_t n, std::int64_t k, DataType type, const char* ops = "NN",
                  ComputeType compute = ComputeType::kF32) {
  GemmShape shape;
  shape.op_a = ops[0];
  shape.op_b = ops[1];
  shape.a = shape.b = shape.c = shape.d = type;
  shape.compute = compute;
  shape.align_a = shape.align_b = shape.align_c = 8;
  shape.m = m;
  shape.n = n;
  shape.k = k;
  shape.lda = shape.op_a == 'N' ? m : k;
  shape.ldb = shape.op_b == 'N' ? k : n;
  shape.ldc = m;
  shape.flops = static_cast<std::uint64_t>(2 * m * n * k);
  shape.bytes = static_cast<std::uint64_t>(m * k + k * n + m * n) * data_type_bits(type) / 8;
  return shape;
}

GemmRow row(const GemmShape& shape, std::uint64_t calls, double tflops) {
  GemmRow result;
  result.shape = shape;
  result.calls = calls;
  result.gpu_ns = static_cast<std::uint64_t>(static_cast<double>(shape.flops) * static_cast<double>(calls) /
                                             (tflops * 1000));
  return result;
}

bool has(const std::vector<Hint>& hints, HintKind kind) {
  for (const Hint& hint : hints) {
    if (hint.kind == kind) return true;
  }
  return false;
}

void check(const GemmShape& shape, const DeviceSpecs& device, Eligible eligible, const std::string& reason) {
  const TensorEligibility found = tensor_eligibility(shape, device);
  INFO(found.reason);
  CHECK(eligible_name(found.eligible) == eligible_name(eligible));
  CHECK(found.reason == reason);
}

}  // namespace

TEST_CASE("Whether tensor cores could: the type and the device", "[analysis]") {
  const auto square = [](DataType type, ComputeType compute = ComputeType::kF32) {
    return product(1024, 1024, 1024, type, "NN", compute);
  };
  check(square(DataType::kF16), kV100, Eligible::kYes, "");
  check(square(DataType::kF16), kP100, Eligible::kNo, "the device has none for fp16");
  check(square(DataType::kBf16), kV100, Eligible::kNo, "the device has none for bf16");
  check(square(DataType::kBf16), kA100, Eligible::kYes, "");
  check(square(DataType::kF64, ComputeType::kF64), kV100, Eligible::kNo, "the device has none for fp64");
  check(square(DataType::kF64, ComputeType::kF64), kA100, Eligible::kYes, "");
  check(square(DataType::kC128, ComputeType::kF64), kA100, Eligible::kYes, "");
  check(square(DataType::kF8E4M3), kA100, Eligible::kNo, "the device has none for fp8 e4m3");
  check(square(DataType::kF8E4M3), kH200, Eligible::kYes, "");
  check(square(DataType::kI8, ComputeType::kI32), kA100, Eligible::kYes, "");
  check(square(DataType::kI8), kA100, Eligible::kNo, "int8 summed up in fp32");
  check(square(DataType::kI32), kA100, Eligible::kNo, "no tensor cores for int32");

  check(square(DataType::kF32), kA100, Eligible::kNo, "fp32, and tf32 is not allowed");
  check(square(DataType::kF32), kV100, Eligible::kNo, "fp32");
  check(square(DataType::kF32, ComputeType::kF32Tf32), kA100, Eligible::kYes, "");
  check(square(DataType::kF32, ComputeType::kF32Tf32), kV100, Eligible::kNo, "the device has none for fp32");
  check(square(DataType::kF32, ComputeType::kF32F16), kV100, Eligible::kYes, "");
  check(square(DataType::kC64, ComputeType::kF32Bf16), kA100, Eligible::kYes, "");

  GemmShape mixed = square(DataType::kF16);
  mixed.b = DataType::kF32;
  check(mixed, kA100, Eligible::kNo, "A and B are of different types");
  mixed.a = DataType::kF8E5M2;
  mixed.b = DataType::kF8E4M3;
  check(mixed, kH200, Eligible::kYes, "");

  // For these types eligibility is unknown on every device.
  check(square(DataType::kF4), kH200, Eligible::kUnknown, "fp4");
  check(square(DataType::kF6), kH200, Eligible::kUnknown, "fp6");
  check(square(DataType::kC8I), kH200, Eligible::kUnknown, "complex int8");
  check(square(DataType::kF32, ComputeType::kOther), kH200, Eligible::kUnknown, "compute type not known");
  GemmShape scaled = square(DataType::kF8E4M3);
  scaled.flags = kGemmBlockScaled;
  check(scaled, kH200, Eligible::kUnknown, "scaled by blocks");
  check(scaled, kV100, Eligible::kUnknown, "scaled by blocks");
  check(square(DataType::kF16, ComputeType::kF16), kA100, Eligible::kYes, "");
  // Turing chips exist with and without tensor cores.
  check(square(DataType::kF16), {7, 5, 40, 1590000, 5001000, 256}, Eligible::kUnknown, "device not known");
  check(square(DataType::kF16), {7, 5, 22, 1785000, 4001000, 192, ProductVariant::kNoTensorCores},
        Eligible::kNo, "the device has none for fp16");

  check(square(DataType::kUnknown), kH200, Eligible::kUnknown, "type not known");
  check(square(DataType::kF16), {}, Eligible::kUnknown, "device not known");
  check(GemmShape{}, kH200, Eligible::kUnknown, "type not known");
}

TEST_CASE("Whether tensor cores could: shape and alignment", "[analysis]") {
  check(product(4096, 1, 4096, DataType::kF16, "TN"), kH200, Eligible::kNo, "a matrix-vector product");
  check(product(1, 4096, 4096, DataType::kF16, "TN"), kH200, Eligible::kNo, "a matrix-vector product");

  // 16 bytes are 8 elements of fp16, 4 of fp32, 16 of int8.
  check(product(1000, 1001, 1000, DataType::kF16), kH200, Eligible::kYes,
        "");  // N is not contiguous in any operand
  check(product(1000, 1001, 1000, DataType::kF16, "NT"), kH200, Eligible::kMisaligned,
        "not multiples of 16 bytes: N = 1001, ldb = 1001");
  check(product(1001, 1000, 1000, DataType::kF16), kH200, Eligible::kMisaligned,
        "not multiples of 16 bytes: M = 1001, lda = 1001, ldc = 1001");
  check(product(1000, 1000, 1004, DataType::kF16, "TN"), kH200, Eligible::kMisaligned,
        "not multiples of 16 bytes: K = 1004, lda = 1004, ldb = 1004");
  check(product(1004, 1004, 1004, DataType::kF32, "TN", ComputeType::kF32Tf32), kH200, Eligible::kYes, "");
  check(product(1002, 1000, 1000, DataType::kF32, "TN", ComputeType::kF32Tf32), kH200, Eligible::kMisaligned,
        "not multiples of 16 bytes: M = 1002, ldc = 1002");
  check(product(1000, 1000, 1000, DataType::kI8, "TN", ComputeType::kI32), kH200, Eligible::kMisaligned,
        "not multiples of 16 bytes: K = 1000, M = 1000, lda = 1000, ldb = 1000, ldc = 1000");
  check(product(1001, 999, 1003, DataType::kF64, "NN", ComputeType::kF64), kH200, Eligible::kYes, "");
  // fp8 has no other kernels.
  check(product(1024, 1024, 1000, DataType::kF8E4M3, "TN"), kH200, Eligible::kNo,
        "not multiples of 16 bytes: K = 1000, lda = 1000, ldb = 1000");

  GemmShape shape = product(1024, 1024, 1024, DataType::kF16);
  shape.lda = 1026;
  check(shape, kH200, Eligible::kMisaligned, "not multiples of 16 bytes: lda = 1026");
  shape = product(1024, 1024, 1024, DataType::kF16);
  shape.align_b = 1;
  check(shape, kH200, Eligible::kMisaligned, "not multiples of 16 bytes: address of B");
  shape.align_b = 4;
  check(shape, kH200, Eligible::kYes, "");
  shape.align_b = 0;  // unknown
  check(shape, kH200, Eligible::kYes, "");
  // The result's type counts for M and ldc.
  shape = product(1004, 1024, 1024, DataType::kF16, "TN");
  check(shape, kH200, Eligible::kMisaligned, "not multiples of 16 bytes: M = 1004, ldc = 1004");
  shape.d = DataType::kF32;
  check(shape, kH200, Eligible::kYes, "");
  // A grouped product whose sizes differ.
  shape = product(0, 0, 0, DataType::kF16);
  shape.groups = 3;
  check(shape, kH200, Eligible::kUnknown, "its groups differ");
  shape = product(1024, 1024, 1024, DataType::kF16);
  shape.groups = 3;
  check(shape, kH200, Eligible::kYes, "");
  shape.ldb = 0;
  check(shape, kH200, Eligible::kUnknown, "its groups differ");
  shape.ldb = 1024;
  shape.op_a = 0;
  check(shape, kH200, Eligible::kUnknown, "its groups differ");
}

TEST_CASE("The least time of operations, also on a device that lacks a unit", "[analysis]") {
  FlopCount flops;
  flops.add(Arithmetic::kTf32, 1'000'000'000'000);
  flops.add(Arithmetic::kFp64Tensor, 1'000'000'000'000);
  CHECK(flops.total() == 2'000'000'000'000);
  const auto seconds = [&](const DeviceSpecs& device, Arithmetic first, Arithmetic second) {
    return 1e12 / *peak_flops(device, first) + 1e12 / *peak_flops(device, second);
  };
  CHECK(*flops.least_time(kH200) == Approx(seconds(kH200, Arithmetic::kTf32, Arithmetic::kFp64Tensor)));
  CHECK(*flops.least_time(kV100) == Approx(seconds(kV100, Arithmetic::kFp32, Arithmetic::kFp64)));
  // It has tensor cores, but their rate is unknown, and it is not that of the CUDA cores.
  DeviceSpecs h20 = kH200;
  h20.variant = ProductVariant::kUnknown;
  CHECK_FALSE(flops.least_time(h20).has_value());
  flops.add(std::nullopt, 1);
  CHECK_FALSE(flops.least_time(kH200).has_value());
}

TEST_CASE("The peak that a product is held against", "[analysis]") {
  const auto of = [](DataType type, ComputeType compute, TensorCores cores,
                     const DeviceSpecs& device = kH200) {
    return arithmetic_of(work_of(product(512, 512, 512, type, "NN", compute)), cores, device);
  };
  using T = TensorCores;
  using D = DataType;
  using C = ComputeType;
  CHECK(of(D::kF16, C::kF32, T::kUsed) == Arithmetic::kFp16Tensor);
  CHECK(of(D::kF16, C::kF32, T::kUnknown) == Arithmetic::kFp16Tensor);
  CHECK(of(D::kF16, C::kF32, T::kNotUsed) == Arithmetic::kFp32);
  CHECK(of(D::kF16, C::kF16, T::kNotUsed) == Arithmetic::kFp16);
  CHECK(of(D::kF16, C::kF16, T::kUnknown, kP100) == Arithmetic::kFp16);
  CHECK(of(D::kBf16, C::kF32, T::kUsed) == Arithmetic::kBf16Tensor);
  CHECK(of(D::kBf16, C::kF32, T::kNotUsed) == Arithmetic::kFp32);
  CHECK(of(D::kF32, C::kF32, T::kNotUsed) == Arithmetic::kFp32);
  CHECK(of(D::kF32, C::kF32, T::kUnknown) == Arithmetic::kFp32);
  CHECK(of(D::kF32, C::kF32, T::kUsed) == Arithmetic::kTf32);  // by the handle's math mode
  CHECK(of(D::kF32, C::kF32Tf32, T::kUnknown) == Arithmetic::kTf32);
  CHECK(of(D::kF32, C::kF32Tf32, T::kNotUsed) == Arithmetic::kFp32);
  CHECK(of(D::kC64, C::kF32Tf32, T::kUsed) == Arithmetic::kTf32);
  CHECK(of(D::kF64, C::kF64, T::kUsed) == Arithmetic::kFp64Tensor);
  CHECK(of(D::kF64, C::kF64, T::kNotUsed) == Arithmetic::kFp64);
  CHECK(of(D::kF64, C::kF64, T::kUnknown, kV100) == Arithmetic::kFp64);
  CHECK(of(D::kF8E4M3, C::kF32, T::kUsed) == Arithmetic::kFp8);
  CHECK(of(D::kI8, C::kI32, T::kUsed) == Arithmetic::kInt8);
  CHECK_FALSE(of(D::kI8, C::kI32, T::kNotUsed).has_value());
  CHECK_FALSE(of(D::kI8, C::kF32, T::kUnknown).has_value());
  CHECK(of(D::kF16, C::kF16, T::kUsed) == Arithmetic::kFp16TensorFp16Sums);
  // Emulated by products of other types.
  for (const T cores : {T::kUsed, T::kNotUsed, T::kUnknown}) {
    CHECK_FALSE(of(D::kF32, C::kOther, cores).has_value());
    CHECK_FALSE(of(D::kF64, C::kOther, cores).has_value());
    CHECK_FALSE(of(D::kF4, C::kF32, cores).has_value());
    GemmShape scaled = product(512, 512, 512, D::kF8E4M3);
    scaled.flags = kGemmBlockScaled;
    CHECK_FALSE(arithmetic_of(work_of(scaled), cores, kH200).has_value());
    CHECK_FALSE(best_arithmetic(work_of(scaled)).has_value());
  }
  CHECK_FALSE(best_arithmetic(D::kF32, C::kOther).has_value());
  DeviceSpecs h20 = kH200;
  h20.variant = ProductVariant::kUnknown;
  CHECK(of(D::kBf16, C::kF32, T::kUnknown, h20) == Arithmetic::kBf16Tensor);
  CHECK_FALSE(of(D::kBf16, C::kF32, T::kUnknown, {7, 7}).has_value());
  CHECK_FALSE(of(D::kUnknown, C::kF32, T::kUsed).has_value());
}

TEST_CASE("The roofline", "[analysis]") {
  const Roofline compute = roofline(4000, 10, 100.0, 1.0);
  CHECK(compute.intensity == Approx(400));
  CHECK(compute.bound == Bound::kCompute);
  CHECK(compute.attainable == Approx(100));
  const Roofline memory = roofline(400, 10, 100.0, 1.0);
  CHECK(memory.bound == Bound::kMemory);
  CHECK(memory.attainable == Approx(40));
  CHECK(bound_name(compute.bound) == "compute");
  CHECK(bound_name(memory.bound) == "memory");
  CHECK(bound_name(Bound::kUnknown).empty());

  CHECK(roofline(400, 10, std::nullopt, 1.0).bound == Bound::kUnknown);
  CHECK(roofline(400, 10, std::nullopt, 1.0).intensity == Approx(40));
  CHECK(roofline(400, 10, 100.0, std::nullopt).attainable == 0);
  CHECK(roofline(0, 10, 100.0, 1.0).intensity == 0);
  CHECK(roofline(400, 0, 100.0, 1.0).intensity == 0);

  // At fp16 an H200's ridge point is at about 200 FLOPs per byte: 8192 cubed is right of it, N = 64 left of
  // it.
  const auto bound = [](std::int64_t n) {
    const GemmShape shape = product(8192, n, 8192, DataType::kF16);
    return roofline(static_cast<double>(shape.flops), static_cast<double>(shape.bytes),
                    peak_flops(kH200, Arithmetic::kFp16Tensor), peak_bandwidth(kH200))
        .bound;
  };
  CHECK(bound(8192) == Bound::kCompute);
  CHECK(bound(64) == Bound::kMemory);
}

TEST_CASE("Hints from one product", "[analysis]") {
  const auto of = [](const GemmShape& shape, TensorCores cores = TensorCores::kUsed,
                     const DeviceSpecs& device = kH200) { return gemm_hints(shape, cores, device); };
  CHECK(of(product(4096, 4096, 4096, DataType::kBf16)).empty());
  CHECK(of(product(4096, 32, 4096, DataType::kBf16)).empty());

  const std::vector<Hint> narrow = of(product(4096, 31, 4096, DataType::kBf16));
  REQUIRE(narrow.size() == 1);
  CHECK(narrow[0].kind == HintKind::kNarrow);
  CHECK(narrow[0].text == "N = 31 is below 32: A is read for few products each");
  CHECK(of(product(16, 4096, 4096, DataType::kBf16))[0].text ==
        "M = 16 is below 32: B is read for few products each");

  const std::vector<Hint> odd = of(product(4095, 4096, 4096, DataType::kBf16));
  REQUIRE(odd.size() == 1);
  CHECK(odd[0].kind == HintKind::kMultiples);
  CHECK(odd[0].text == "not multiples of 16 bytes: M = 4095, lda = 4095, ldc = 4095");
  CHECK(has(of(product(4096, 4096, 4100, DataType::kF8E4M3, "TN")), HintKind::kMultiples));
  // Not for types that tensor cores don't support.
  CHECK_FALSE(
      has(of(product(4095, 4095, 4095, DataType::kF32), TensorCores::kNotUsed), HintKind::kMultiples));
  CHECK_FALSE(has(of(product(4096, 1, 4095, DataType::kF16)), HintKind::kMultiples));

  CHECK(has(of(product(4096, 4096, 4096, DataType::kF32), TensorCores::kNotUsed), HintKind::kTf32));
  CHECK_FALSE(has(of(product(4096, 4096, 4096, DataType::kF32), TensorCores::kUsed), HintKind::kTf32));
  CHECK_FALSE(has(of(product(4096, 4096, 4096, DataType::kF32), TensorCores::kUnknown), HintKind::kTf32));
  CHECK_FALSE(
      has(of(product(4096, 4096, 4096, DataType::kF32), TensorCores::kNotUsed, kV100), HintKind::kTf32));
  CHECK_FALSE(
      has(of(product(4096, 4096, 4096, DataType::kF64, "NN", ComputeType::kF64), TensorCores::kNotUsed),
          HintKind::kTf32));
  // Memory-bound: with N = 8, 4 FLOPs per byte.
  CHECK_FALSE(has(of(product(4096, 8, 4096, DataType::kF32), TensorCores::kNotUsed), HintKind::kTf32));

  CHECK(of(product(0, 0, 0, DataType::kF16)).empty());
  CHECK(join_hints({}).empty());
  CHECK(join_hints({{HintKind::kNarrow, "a"}, {HintKind::kTf32, "b"}}) == "a; b");
}

TEST_CASE("Hints from the comparison of products", "[analysis]") {
  SECTION("Transpositions") {
    std::vector<GemmRow> rows = {row(product(1760, 64, 1760, DataType::kF32, "NN"), 10, 9.0),
                                 row(product(1760, 64, 1760, DataType::kF32, "TN"), 10, 6.0),
                                 row(product(1760, 64, 1760, DataType::kF32, "NT"), 10, 8.2),
                                 row(product(1760, 128, 1760, DataType::kF32, "TN"), 11, 2.0)};
    add_row_hints(rows, kP100, 0);
    CHECK_FALSE(has(rows[0].hints, HintKind::kTransposition));
    REQUIRE(rows[1].hints.size() == 1);
    CHECK(rows[1].hints[0].kind == HintKind::kTransposition);
    CHECK(rows[1].hints[0].text == "NN is 50 % faster than TN at this size");
    CHECK(rows[2].hints.empty());  // less than 10 %
    CHECK(rows[3].hints.empty());  // a different size
  }
  SECTION("Rows of one transposition differ by more than that") {
    std::vector<GemmRow> rows = {row(product(1760, 64, 1760, DataType::kF32), 10, 9.0),
                                 row(product(1760, 64, 1760, DataType::kF32), 10, 3.0)};
    rows[1].shape.lda = 2048;
    add_row_hints(rows, kP100, 0);
    CHECK_FALSE(has(rows[1].hints, HintKind::kTransposition));
  }
  SECTION("Types are not compared with each other, and rows without time not at all") {
    std::vector<GemmRow> rows = {row(product(4096, 4096, 4096, DataType::kF32, "NN"), 1, 50),
                                 row(product(4096, 4096, 4096, DataType::kF16, "TN"), 1, 500),
                                 row(product(4096, 4096, 4096, DataType::kF32, "TN"), 0, 1)};
    add_row_hints(rows, kH200, 0);
    for (const GemmRow& r : rows) CHECK(r.hints.empty());
  }
  SECTION("The products of time steps") {
    std::vector<GemmRow> rows = {row(product(7040, 16, 1760, DataType::kF32), 1000, 1),
                                 row(product(7040, 64, 1760, DataType::kF32), 630, 1),
                                 row(product(16, 7040, 1760, DataType::kF32), 630, 1)};
    add_row_hints(rows, kP100, 10);
    REQUIRE(rows[0].hints.size() == 1);
    CHECK(rows[0].hints[0].kind == HintKind::kCombine);
    CHECK(rows[0].hints[0].text ==
          "100 such products an iteration: those that have A in common and do not wait for each other could "
          "be one");
    CHECK(rows[1].hints.empty());  // N is not narrow
    CHECK(rows[2].hints.empty());  // 63 per iteration
    add_row_hints(rows, kP100, 0);
    CHECK(rows[0].hints.size() == 1);
  }
  SECTION("Products that have an operand in common") {
    // Query, key and value of grouped-query attention: one input, three weights.
    std::vector<GemmRow> rows = {row(product(1024, 256, 1024, DataType::kBf16, "TN"), 12, 1),
                                 row(product(256, 256, 1024, DataType::kBf16, "TN"), 12, 1),
                                 row(product(512, 256, 1024, DataType::kBf16, "TN"), 12, 1),
                                 row(product(384, 256, 1024, DataType::kBf16, "TN"), 11, 1),
                                 row(product(256, 2560, 1024, DataType::kBf16, "TN"), 12, 1),
                                 row(product(8192, 8192, 1024, DataType::kBf16, "TN"), 12, 1)};
    add_row_hints(rows, kH200, 1);
    for (const std::size_t i : {0u, 1u, 2u}) {
      REQUIRE(rows[i].hints.size() == 1);
      CHECK(rows[i].hints[0].text ==
            "3 small products have an equal B (1024 x 256): if it is the same matrix they could be one");
    }
    CHECK(rows[3].hints.empty());  // called less often
    // A product that shares A with the second, in a smaller group.
    REQUIRE(rows[4].hints.size() == 1);
    CHECK(rows[4].hints[0].text ==
          "2 small products have an equal A (256 x 1024): if it is the same matrix they could be one");
    CHECK(rows[5].hints.empty());  // fills the device by itself
  }
  SECTION("Nothing at all") {
    std::vector<GemmRow> rows;
    add_row_hints(rows, kH200, 1);
    CHECK(rows.empty());
  }
}
