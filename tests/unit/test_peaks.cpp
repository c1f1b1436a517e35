// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/peaks.h"

#include <initializer_list>
#include <set>
#include <string_view>
#include <utility>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

struct Datasheet {
  std::string_view name;
  DeviceSpecs specs;
  double bandwidth;                                           // bytes/s
  std::initializer_list<std::pair<Arithmetic, double>> tera;  // dense, 10^12/s
};

constexpr Arithmetic kAll[] = {
    Arithmetic::kFp64, Arithmetic::kFp64Tensor,        Arithmetic::kFp32,       Arithmetic::kFp16,
    Arithmetic::kTf32, Arithmetic::kFp16Tensor,        Arithmetic::kBf16Tensor, Arithmetic::kFp8,
    Arithmetic::kInt8, Arithmetic::kFp16TensorFp16Sums};

void check(Datasheet sheet) {
  INFO(sheet.name);
  sheet.specs.variant = product_variant(sheet.specs.major, sheet.specs.minor, sheet.name);
  REQUIRE(peak_bandwidth(sheet.specs).has_value());
  CHECK(peak_bandwidth(sheet.specs).value() == Approx(sheet.bandwidth).epsilon(0.03));
  for (const auto& [arithmetic, tera] : sheet.tera) {
    INFO(arithmetic_name(arithmetic));
    const std::optional<double> peak = peak_flops(sheet.specs, arithmetic);
    if (tera == 0) {  // it has no such unit
      CHECK_FALSE(peak.has_value());
      continue;
    }
    REQUIRE(peak.has_value());
    CHECK(peak.value() / 1e12 == Approx(tera).epsilon(0.03));
  }
}

}  // namespace

// Multiprocessors, boost clock, memory clock, bus width and peaks are from the datasheets (see
// docs/peaks.md). Peaks stated with sparsity are halved here: A100, A10, RTX 4090, L40S, H100, H200, B200.
TEST_CASE("Peaks are those of the datasheets", "[analysis]") {
  using A = Arithmetic;
  check({"Tesla P100-SXM2-16GB",
         {6, 0, 56, 1480000, 715000, 4096},
         732e9,
         {{A::kFp64, 5.3},
          {A::kFp32, 10.6},
          {A::kFp16, 21.2},
          {A::kFp64Tensor, 0},
          {A::kTf32, 0},
          {A::kFp16Tensor, 0},
          {A::kBf16Tensor, 0},
          {A::kFp8, 0},
          {A::kInt8, 0}}});
  check({"Tesla V100-SXM2-16GB",
         {7, 0, 80, 1530000, 877000, 4096},
         900e9,
         {{A::kFp64, 7.8},
          {A::kFp32, 15.7},
          {A::kFp16, 31.4},
          {A::kFp16Tensor, 125},
          {A::kBf16Tensor, 0},
          {A::kTf32, 0}}});
  check({"Tesla T4",
         {7, 5, 40, 1590000, 5001000, 256},
         320e9,
         {{A::kFp32, 8.1},
          {A::kFp16, 16.2},
          {A::kFp16Tensor, 65},
          {A::kInt8, 130},
          {A::kBf16Tensor, 0},
          {A::kFp8, 0}}});
  check({"NVIDIA A100-SXM4-40GB",
         {8, 0, 108, 1410000, 1215000, 5120},
         1555e9,
         {{A::kFp64, 9.7},
          {A::kFp64Tensor, 19.5},
          {A::kFp32, 19.5},
          {A::kFp16, 78},
          {A::kTf32, 156},
          {A::kFp16Tensor, 312},
          {A::kBf16Tensor, 312},
          {A::kInt8, 624},
          {A::kFp8, 0}}});
  check({"NVIDIA A100-SXM4-80GB", {8, 0, 108, 1410000, 1593000, 5120}, 2039e9, {{A::kFp16Tensor, 312}}});
  check({"NVIDIA A10",
         {8, 6, 72, 1695000, 6251000, 384},
         600e9,
         {{A::kFp32, 31.2},
          {A::kTf32, 62.5},
          {A::kFp16Tensor, 125},
          {A::kBf16Tensor, 125},
          {A::kInt8, 250},
          {A::kFp8, 0}}});
  // With fp32 accumulation.
  check({"NVIDIA GeForce RTX 4090",
         {8, 9, 128, 2520000, 10501000, 384},
         1008e9,
         {{A::kFp64, 1.29},
          {A::kFp32, 82.6},
          {A::kFp16, 82.6},
          {A::kTf32, 82.6},
          {A::kFp16Tensor, 165.2},
          {A::kBf16Tensor, 165.2},
          {A::kFp8, 330.3},
          {A::kInt8, 660.6},
          {A::kFp16TensorFp16Sums, 330.3}}});
  check({"NVIDIA L40S",
         {8, 9, 142, 2520000, 9001000, 384},
         864e9,
         {{A::kFp32, 91.6},
          {A::kTf32, 183},
          {A::kFp16Tensor, 362.05},
          {A::kBf16Tensor, 362.05},
          {A::kFp8, 733},
          {A::kInt8, 733}}});
  check({"NVIDIA H100 80GB HBM3",
         {9, 0, 132, 1980000, 2619000, 5120},
         3350e9,
         {{A::kFp64, 33.5},
          {A::kFp64Tensor, 66.9},
          {A::kFp32, 66.9},
          {A::kFp16, 133.8},
          {A::kTf32, 494.7},
          {A::kFp16Tensor, 989.4},
          {A::kBf16Tensor, 989.4},
          {A::kFp8, 1978.9},
          {A::kInt8, 1978.9}}});
  check({"NVIDIA H100 PCIe",
         {9, 0, 114, 1755000, 1593000, 5120},
         2000e9,
         {{A::kFp64, 25.6},
          {A::kFp64Tensor, 51.2},
          {A::kFp32, 51.2},
          {A::kFp16, 102.4},
          {A::kTf32, 378},
          {A::kFp16Tensor, 756},
          {A::kBf16Tensor, 756},
          {A::kFp8, 1513},
          {A::kInt8, 1513}}});
  check({"NVIDIA H200",
         {9, 0, 132, 1980000, 3201000, 6144},
         4800e9,
         {{A::kFp64, 34},
          {A::kFp64Tensor, 67},
          {A::kFp32, 67},
          {A::kTf32, 494.5},
          {A::kFp16Tensor, 989.5},
          {A::kBf16Tensor, 989.5},
          {A::kFp8, 1979},
          {A::kInt8, 1979}}});
  check({"NVIDIA A30",
         {8, 0, 56, 1440000, 1215000, 3072},
         933e9,
         {{A::kFp64, 5.2}, {A::kTf32, 82}, {A::kFp16Tensor, 165}, {A::kInt8, 330}}});
  check({"NVIDIA A800-SXM4-80GB",
         {8, 0, 108, 1410000, 1593000, 5120},
         2039e9,
         {{A::kFp64, 9.7}, {A::kBf16Tensor, 312}}});
  check({"NVIDIA A10G",
         {8, 6, 80, 1710000, 6251000, 384},
         600e9,
         {{A::kFp32, 35.0},
          {A::kTf32, 35},
          {A::kFp16Tensor, 70},
          {A::kBf16Tensor, 70},
          {A::kInt8, 140},
          {A::kFp16TensorFp16Sums, 0}}});
  check({"NVIDIA L20",
         {8, 9, 92, 2520000, 9001000, 384},
         864e9,
         {{A::kFp32, 59.8}, {A::kTf32, 59.8}, {A::kFp16Tensor, 119.5}, {A::kFp8, 239}, {A::kInt8, 239}}});
  check({"NVIDIA L40",
         {8, 9, 142, 2490000, 9001000, 384},
         864e9,
         {{A::kFp32, 90.5},
          {A::kTf32, 90.5},
          {A::kFp16Tensor, 181.05},
          {A::kBf16Tensor, 181.05},
          {A::kFp8, 362},
          {A::kInt8, 362}}});
  check({"NVIDIA GeForce RTX 2080 Ti",
         {7, 5, 68, 1635000, 7001000, 352},
         616e9,
         {{A::kFp16Tensor, 56.9}, {A::kFp16TensorFp16Sums, 113.8}, {A::kInt8, 227.7}}});
  check({"NVIDIA GeForce GTX 1660",
         {7, 5, 22, 1785000, 4001000, 192},
         192e9,
         {{A::kFp32, 5.0}, {A::kFp16Tensor, 0}, {A::kInt8, 0}}});
  check({"NVIDIA H800",
         {9, 0, 132, 1980000, 2619000, 5120},
         3350e9,
         {{A::kFp64, 0}, {A::kFp64Tensor, 0}, {A::kFp32, 66.9}, {A::kBf16Tensor, 989.4}, {A::kFp8, 1978.9}}});
  check({"NVIDIA B200",
         {10, 0, 148, 1965000, 3996000, 8192},
         8000e9,
         {{A::kFp64, 37},
          {A::kFp64Tensor, 37},
          {A::kFp32, 75},
          {A::kTf32, 1125},
          {A::kFp16Tensor, 2250},
          {A::kBf16Tensor, 2250},
          {A::kFp8, 4500},
          {A::kInt8, 4500}}});
}

TEST_CASE("Peaks exist only where they are known", "[analysis]") {
  const DeviceSpecs h100{9, 0, 132, 1980000, 2619000, 5120, ProductVariant::kFull};
  for (const Arithmetic arithmetic : kAll) {
    INFO(arithmetic_name(arithmetic));
    CHECK(peak_flops(h100, arithmetic).has_value());
    CHECK_FALSE(
        peak_flops({9, 1, 132, 1980000, 2619000, 5120, ProductVariant::kFull}, arithmetic).has_value());
    CHECK_FALSE(peak_flops({3, 5, 15, 745000, 3004000, 384, ProductVariant::kFull}, arithmetic).has_value());
    CHECK_FALSE(peak_flops({9, 0, 0, 1980000, 2619000, 5120, ProductVariant::kFull}, arithmetic).has_value());
    CHECK_FALSE(peak_flops({9, 0, 132, 0, 2619000, 5120, ProductVariant::kFull}, arithmetic).has_value());
    CHECK_FALSE(peak_flops({}, arithmetic).has_value());
  }
  CHECK_FALSE(peak_bandwidth({9, 0, 132, 1980000, 0, 5120}).has_value());
  CHECK_FALSE(peak_bandwidth({9, 0, 132, 1980000, 2619000, 0}).has_value());
}

TEST_CASE("Products of one compute capability are told apart by their names", "[analysis]") {
  CHECK(product_variant(9, 0, "NVIDIA H200") == ProductVariant::kFull);
  CHECK(product_variant(9, 0, "NVIDIA GH200 480GB") == ProductVariant::kFull);
  CHECK(product_variant(8, 9, "NVIDIA L40S") == ProductVariant::kFull);
  CHECK(product_variant(8, 9, "NVIDIA L40") == ProductVariant::kHalf);
  CHECK(product_variant(8, 6, "NVIDIA A10") == ProductVariant::kFull);
  CHECK(product_variant(8, 6, "NVIDIA A10G") == ProductVariant::kHalf);
  CHECK(product_variant(8, 6, "NVIDIA GeForce RTX 3080 Laptop GPU") == ProductVariant::kHalfFp32Sums);
  CHECK(product_variant(12, 0, "NVIDIA GeForce RTX 5090") == ProductVariant::kHalfFp32Sums);
  CHECK(product_variant(7, 5, "NVIDIA GeForce GTX 1660 Ti") == ProductVariant::kNoTensorCores);
  CHECK(product_variant(9, 0, "NVIDIA H800 PCIe") == ProductVariant::kReducedFp64);
  CHECK(product_variant(8, 0, "NVIDIA CMP 170HX") == ProductVariant::kReduced);
  // Not in the list, or with a different capability than their namesakes.
  for (const char* name :
       {"NVIDIA H20", "NVIDIA H20-3e", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA H2000", "H", ""})
    CHECK(product_variant(9, 0, name) == ProductVariant::kUnknown);
  CHECK(product_variant(8, 0, "NVIDIA PG506-230") == ProductVariant::kUnknown);
  CHECK(product_variant(8, 6, "NVIDIA RTX A4000") == ProductVariant::kUnknown);
  CHECK(product_variant(8, 6, "NVIDIA A100-SXM4-40GB") == ProductVariant::kUnknown);
  CHECK(product_variant(10, 0, "NVIDIA GB200") == ProductVariant::kUnknown);
  CHECK(product_variant(8, 7, "Orin") == ProductVariant::kUnknown);
}

TEST_CASE("Of a product that is not known fp32 has a peak, and tensor cores have none", "[analysis]") {
  // 78 multiprocessors: an H20, with 148 TFLOP/s in bf16 where Hopper's table would give 584.
  const DeviceSpecs h20{9, 0, 78, 1980000, 2619000, 6144, product_variant(9, 0, "NVIDIA H20")};
  for (const Arithmetic arithmetic : kAll) {
    INFO(arithmetic_name(arithmetic));
    CHECK(peak_flops(h20, arithmetic).has_value() ==
          (arithmetic == Arithmetic::kFp32 || arithmetic == Arithmetic::kFp16));
  }
  CHECK(arithmetic_support(h20, Arithmetic::kBf16Tensor) == ArithmeticSupport::kYes);
  const DeviceSpecs turing{7, 5, 40, 1590000, 5001000, 256};
  CHECK(arithmetic_support(turing, Arithmetic::kFp16Tensor) == ArithmeticSupport::kUnknown);
  CHECK(arithmetic_support(turing, Arithmetic::kBf16Tensor) == ArithmeticSupport::kNo);
  CHECK(arithmetic_support({7, 5, 22, 1785000, 0, 0, ProductVariant::kNoTensorCores},
                           Arithmetic::kFp16Tensor) == ArithmeticSupport::kNo);
  CHECK(arithmetic_support({8, 7, 16, 1300000, 0, 0}, Arithmetic::kFp16Tensor) ==
        ArithmeticSupport::kUnknown);
}

TEST_CASE("A share of a peak is possible up to the error of the peak and of the time", "[analysis]") {
  CHECK(*possible_share(0.5, 1000).value == 0.5);
  CHECK(*possible_share(1.03, 1e9).value == 1.03);
  CHECK_FALSE(possible_share(1.031, 1e9).value.has_value());
  CHECK(possible_share(1.031, 1e9).impossible);
  // Two timer steps of 32 ns are 3.2 % of 2 us.
  CHECK(possible_share(1.06, 2000).value.has_value());
  CHECK(possible_share(1.07, 2000).impossible);
  CHECK_FALSE(possible_share(0.5, 0).value.has_value());
  CHECK_FALSE(possible_share(0.5, 0).impossible);
}

TEST_CASE("Arithmetic of kernels and its names", "[analysis]") {
  std::set<std::string_view> names;
  for (const Arithmetic arithmetic : kAll) names.insert(arithmetic_name(arithmetic));
  CHECK(names.size() == kArithmetics);

  const auto of = [](std::string_view kernel) { return arithmetic_of(tensor_cores_of(kernel)); };
  CHECK(of("nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_TNT") == Arithmetic::kFp16Tensor);
  CHECK(of("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT") == Arithmetic::kBf16Tensor);
  CHECK(of("nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_TNT") == Arithmetic::kFp8);
  CHECK(of("nvjet_sss_tf32_128x256_TNT") == Arithmetic::kTf32);
  CHECK(of("volta_sgemm_128x64_nn") == Arithmetic::kFp32);
  CHECK(of("volta_hgemm_128x64_nn") == Arithmetic::kFp16);
  CHECK(of("volta_dgemm_64x64_nn") == Arithmetic::kFp64);
  CHECK(of("void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>()") ==
        Arithmetic::kFp64Tensor);
  CHECK(of("ampere_int32_i16832gemm_int8_128x128_ldg16_stages_64x3_tn") == Arithmetic::kInt8);
  CHECK_FALSE(of("volta_igemm_int8_128x128_ldg4_nt").has_value());  // dp4a
  CHECK_FALSE(of("matmul_kernel").has_value());
  CHECK_FALSE(of("triton_poi_fused_relu_0").has_value());
  CHECK_FALSE(arithmetic_of({TensorCores::kUsed, Operand::kFp32}).has_value());
  CHECK_FALSE(arithmetic_of({TensorCores::kUsed, Operand::kFp4}).has_value());
  CHECK_FALSE(arithmetic_of({TensorCores::kUnknown, Operand::kFp16}).has_value());
}
