// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/kernel_use.h"

#include "tests/unit/devices.h"
#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

constexpr std::string_view kProduct = "cutlass_80_tensorop_s16816gemm_f16_128x128_32x4_nn_align8";

DetailRow detail(std::string_view name, std::uint64_t time, std::int32_t grid, std::int32_t block = 1024,
                 std::uint32_t device = 0) {
  DetailRow row;
  row.name = name;
  row.device = device;
  row.grid = {grid, 1, 1};
  row.block = {block, 1, 1};
  row.registers_per_thread = 32;
  row.time.add(time);
  return row;
}

}  // namespace

TEST_CASE("What a launch shape makes of its device", "[stats]") {
  const std::vector<DeviceInfo> devices{h200(0), DeviceInfo{}};
  DetailRow row = detail("k", 1000, 265);
  KernelUse use = kernel_use(row, devices);
  REQUIRE(use.occupancy.has_value());
  REQUIRE(use.grid.has_value());
  CHECK(use.occupancy->blocks == 2);
  CHECK(use.grid->waves == Approx(265.0 / 264));
  CHECK(use.lost_time == 496u);

  row.grid = {5, 53, 1};
  row.block = {32, 8, 4};
  CHECK(kernel_use(row, devices).lost_time == 496u);

  row.grid = {264, 1, 1};
  CHECK(kernel_use(row, devices).lost_time == 0u);

  row.block = {2000, 1, 1};  // impossible
  use = kernel_use(row, devices);
  CHECK_FALSE(use.occupancy.has_value());
  CHECK_FALSE(use.grid.has_value());
  CHECK_FALSE(use.lost_time.has_value());

  row = detail("k", 1000, 265);
  row.grid = {-1, 0, 2147483647};  // a damaged record
  use = kernel_use(row, devices);
  CHECK(use.occupancy.has_value());
  CHECK_FALSE(use.lost_time.has_value());
  row.grid = {2147483647, 2147483647, 2147483647};
  CHECK_FALSE(kernel_use(row, devices).grid.has_value());
}

TEST_CASE("Rows of many shapes and of devices that are not listed are not judged", "[stats]") {
  DetailRow row = detail("k", 1000, 265);
  CHECK_FALSE(kernel_use(row, {}).occupancy.has_value());
  const std::vector<DeviceInfo> devices{h200(1)};
  CHECK_FALSE(kernel_use(row, devices).occupancy.has_value());
  row.device = 1;
  CHECK(kernel_use(row, devices).occupancy.has_value());
  row.other = true;
  CHECK_FALSE(kernel_use(row, devices).occupancy.has_value());
}

TEST_CASE("Kernels by the time that they lose", "[stats]") {
  const std::vector<DeviceInfo> devices{h200(0)};
  DetailRow other = detail("[other]", 10'000'000, 1);
  other.other = true;
  const std::vector<DetailRow> rows{detail("longest, and full", 5000, 264),
                                    detail("half a device", 2000, 66),
                                    detail("the same, elsewhere", 2000, 1, 32),
                                    detail("of another device", 1500, 1, 1024, 3),
                                    detail("one of 132", 1320, 1),
                                    detail("as full, and shorter", 400, 264),
                                    other};
  const std::vector<RankedKernel> ranked = kernels_by_lost_time(rows, devices);
  std::vector<std::string_view> names;
  names.reserve(ranked.size());
  for (const RankedKernel& kernel : ranked) names.push_back(kernel.detail.name);
  CHECK(names == std::vector<std::string_view>{"the same, elsewhere", "one of 132", "half a device",
                                               "longest, and full", "as full, and shorter"});
  REQUIRE(ranked.size() == 5);
  CHECK(ranked[0].use.lost_time == 1985u);  // 2000 times 131 of 132
  CHECK(ranked[1].use.lost_time == 1310u);
  CHECK(ranked[2].use.lost_time == 1000u);
  CHECK(ranked[2].use.grid->efficiency == Approx(0.5));
  CHECK(ranked[2].detail.time.sum == 2000);
  CHECK(limiter_text(ranked[0].use.occupancy->limiters) == "blocks");
  CHECK(ranked[4].use.lost_time == 0u);
  CHECK(kernels_by_lost_time(rows, {}).empty());
}

TEST_CASE("A device's means are weighted with time", "[stats]") {
  const std::vector<DeviceInfo> devices{h200(0), h200(1)};
  DetailRow other = detail("[other]", 10'000'000, 1);
  other.other = true;
  const std::vector<DetailRow> rows{
      detail("full", 3000, 264), detail("narrow, and half occupied", 1000, 66, 32),
      detail("no such block", 500, 66, 1500), detail("elsewhere", 700, 1, 1024, 1), other};
  const auto use = device_use(rows, devices, 0);
  REQUIRE(use.has_value());
  CHECK(use->sm_efficiency == Approx((3000 * 1.0 + 1000 * 0.5) / 4000));
  CHECK(use->occupancy == Approx((3000 * 1.0 + 1000 * 0.5) / 4000));
  CHECK(use->known_time == 4000);
  CHECK(use->unknown_time == 500);
  CHECK(use->lost_time == 500);
  CHECK(device_use(rows, devices, 1)->sm_efficiency == Approx(1.0 / 132));
  CHECK_FALSE(device_use(rows, devices, 2).has_value());
  CHECK_FALSE(device_use(rows, {}, 0).has_value());
}

TEST_CASE("Kernels know whether they use tensor cores, also beyond the table of families", "[stats]") {
  StatsRun run;
  run.statistics.add(run.kernel(kProduct, 300));
  run.statistics.add(run.kernel("mine", 200));
  run.statistics.add(
      run.kernel("void at::native::vectorized_elementwise_kernel<4, float>(int, float*)", 100));
  const auto rows = run.statistics.kernel_details();
  REQUIRE(rows.size() == 3);
  for (const DetailRow& row : rows) {
    INFO(row.name);
    CHECK(row.cores == tensor_cores_of(row.name).cores);
  }
  CHECK(rows[0].cores == TensorCores::kUsed);
  CHECK(rows[1].cores == TensorCores::kUnknown);
  CHECK(rows[2].cores == TensorCores::kNotUsed);

  // What was derived from them is not kept beyond the next kernel.
  CHECK(run.statistics.kernel_families().size() == 3);
  run.statistics.add(run.kernel("new", 50));
  CHECK(run.statistics.kernel_details().size() == 4);
  CHECK(run.statistics.kernel_families().size() == 4);

  StatsRun many;
  // One name in two categories fills the table one name early: the last one is looked up individually.
  KernelEvent event = many.kernel("k0", 10);
  event.launch.chain = chain_of({"cublasGemmEx"});
  many.statistics.add(event);
  for (std::uint32_t i = 0; i + 1 < Statistics::kMaxRows; ++i) {
    many.statistics.add(many.kernel("k" + std::to_string(i), 10));
  }
  many.statistics.add(many.kernel(kProduct, 1000));
  const auto details = many.statistics.kernel_details();
  REQUIRE(details.size() == Statistics::kMaxRows);
  CHECK(details[0].name == kProduct);
  CHECK(details[0].cores == TensorCores::kUsed);
}
