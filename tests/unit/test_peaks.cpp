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

constexpr Arithmetic kAll[] = {Arithmetic::kFp64,       Arithmetic::kFp64Tensor, Arithmetic::kFp32,
                               Arithmetic::kFp16,       Arithmetic::kTf32,       Arithmetic::kFp16Tensor,
                               Arithmetic::kBf16Tensor, Arithmetic::kFp8,        Arithmetic::kInt8};

void check(const Datasheet& sheet) {
  INFO(sheet.name);
  REQUIRE(peak_bandwidth(sheet.specs).has_value());
  CHECK(peak_bandwidth(sheet.specs).value() == Approx(sheet.bandwidth).epsilon(0.03));
  for (const auto& [arithmetic, tera] : sheet.tera) {
    INFO(arithmetic_name(arithmetic));
    const std::optional<double> peak = peak_flops(sheet.specs, arithmetic);
    if (tera == 0) {  // no such unit
      CHECK_FALSE(peak.has_value());
      continue;
    }
    REQUIRE(peak.has_value());
    CHECK(peak.value() / 1e12 == Approx(tera).epsilon(0.03));
  }
}

}  // namespace

// Multiprocessors, boost clock, memory clock and bus, and the figures, are the datasheets' (see
// docs/peaks.md). Where those are stated with sparsity, half of it stands here: A100, A10, RTX 4090, L40S,
// H100, H200, B200.
TEST_CASE("Peaks are those of the datasheets", "[analysis]") {
  using A = Arithmetic;
  check({"P100 SXM2",
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
  check({"V100 SXM2",
         {7, 0, 80, 1530000, 877000, 4096},
         900e9,
         {{A::kFp64, 7.8},
          {A::kFp32, 15.7},
          {A::kFp16, 31.4},
          {A::kFp16Tensor, 125},
          {A::kBf16Tensor, 0},
          {A::kTf32, 0}}});
  check({"T4",
         {7, 5, 40, 1590000, 5001000, 256},
         320e9,
         {{A::kFp32, 8.1},
          {A::kFp16, 16.2},
          {A::kFp16Tensor, 65},
          {A::kInt8, 130},
          {A::kBf16Tensor, 0},
          {A::kFp8, 0}}});
  check({"A100 SXM 40 GB",
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
  check({"A100 SXM 80 GB", {8, 0, 108, 1410000, 1593000, 5120}, 2039e9, {{A::kFp16Tensor, 312}}});
  check({"A10",
         {8, 6, 72, 1695000, 6251000, 384},
         600e9,
         {{A::kFp32, 31.2},
          {A::kTf32, 62.5},
          {A::kFp16Tensor, 125},
          {A::kBf16Tensor, 125},
          {A::kInt8, 250},
          {A::kFp8, 0}}});
  // Sums in fp32.
  check({"GeForce RTX 4090",
         {8, 9, 128, 2520000, 10501000, 384, true},
         1008e9,
         {{A::kFp64, 1.29},
          {A::kFp32, 82.6},
          {A::kFp16, 82.6},
          {A::kTf32, 82.6},
          {A::kFp16Tensor, 165.2},
          {A::kBf16Tensor, 165.2},
          {A::kFp8, 330.3},
          {A::kInt8, 660.6}}});
  check({"L40S",
         {8, 9, 142, 2520000, 9001000, 384},
         864e9,
         {{A::kFp32, 91.6},
          {A::kTf32, 183},
          {A::kFp16Tensor, 362.05},
          {A::kBf16Tensor, 362.05},
          {A::kFp8, 733},
          {A::kInt8, 733}}});
  check({"H100 SXM",
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
  check({"H100 PCIe",
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
  check({"H200",
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
  check({"B200",
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
  const DeviceSpecs h100{9, 0, 132, 1980000, 2619000, 5120};
  for (const Arithmetic arithmetic : kAll) {
    INFO(arithmetic_name(arithmetic));
    CHECK(peak_flops(h100, arithmetic).has_value());
    CHECK_FALSE(peak_flops({9, 1, 132, 1980000, 2619000, 5120}, arithmetic).has_value());
    CHECK_FALSE(peak_flops({3, 5, 15, 745000, 3004000, 384}, arithmetic).has_value());
    CHECK_FALSE(peak_flops({9, 0, 0, 1980000, 2619000, 5120}, arithmetic).has_value());
    CHECK_FALSE(peak_flops({9, 0, 132, 0, 2619000, 5120}, arithmetic).has_value());
    CHECK_FALSE(peak_flops({}, arithmetic).has_value());
  }
  CHECK_FALSE(peak_bandwidth({9, 0, 132, 1980000, 0, 5120}).has_value());
  CHECK_FALSE(peak_bandwidth({9, 0, 132, 1980000, 2619000, 0}).has_value());
}

TEST_CASE("Cards that sum up in fp32 at half the rate", "[analysis]") {
  CHECK(sums_at_half_rate("NVIDIA GeForce RTX 4090"));
  CHECK(sums_at_half_rate("NVIDIA L40"));
  CHECK_FALSE(sums_at_half_rate("NVIDIA L40S"));
  CHECK_FALSE(sums_at_half_rate("NVIDIA RTX 6000 Ada Generation"));
  CHECK_FALSE(sums_at_half_rate("Tesla T4"));
  CHECK_FALSE(sums_at_half_rate(""));
  // The L40's datasheet: 90.5 at fp32, 90.5 at tf32, 181.05 at fp16, 362 at fp8, dense.
  const DeviceSpecs l40{8, 9, 142, 2490000, 9001000, 384, true};
  CHECK(peak_flops(l40, Arithmetic::kFp32).value() / 1e12 == Approx(90.5).epsilon(0.03));
  CHECK(peak_flops(l40, Arithmetic::kTf32).value() / 1e12 == Approx(90.5).epsilon(0.03));
  CHECK(peak_flops(l40, Arithmetic::kFp16Tensor).value() / 1e12 == Approx(181.05).epsilon(0.03));
  CHECK(peak_flops(l40, Arithmetic::kFp8).value() / 1e12 == Approx(362).epsilon(0.03));
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
