// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/occupancy.h"

#include <algorithm>
#include <random>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

// In the struct's order: capability; multiprocessors; warp size; threads per block and per multiprocessor;
// blocks; registers per block and per multiprocessor; shared memory per block, opted in, per multiprocessor,
// reserved.
constexpr DeviceLimits kH200{9, 0, 132, 32, 1024, 2048, 32, 65536, 65536, 49152, 232448, 233472, 1024};
constexpr DeviceLimits kP100{6, 0, 56, 32, 1024, 2048, 32, 65536, 65536, 49152, 49152, 65536, 0};
constexpr DeviceLimits kV100{7, 0, 80, 32, 1024, 2048, 32, 65536, 65536, 49152, 98304, 98304, 0};
constexpr DeviceLimits kT4{7, 5, 40, 32, 1024, 1024, 16, 65536, 65536, 49152, 65536, 65536, 0};
constexpr DeviceLimits kA100{8, 0, 108, 32, 1024, 2048, 32, 65536, 65536, 49152, 166912, 167936, 1024};
constexpr DeviceLimits kRtx3090{8, 6, 82, 32, 1024, 1536, 16, 65536, 65536, 49152, 101376, 102400, 1024};

constexpr std::uint64_t kKiB = 1024;

void check(const DeviceLimits& device, const LaunchResources& launch, int blocks, double share,
           const std::string& limiters) {
  INFO(launch.block_threads << " threads, " << launch.registers_per_thread << " registers, "
                            << launch.static_shared_bytes << " + " << launch.dynamic_shared_bytes
                            << " bytes");
  const auto occupancy = occupancy_of(device, launch);
  REQUIRE(occupancy.has_value());
  CHECK(occupancy->blocks == blocks);
  CHECK(occupancy->share == Approx(share));
  CHECK(occupancy->warps * 32 == Approx(share * device.threads_per_multiprocessor));
  CHECK(limiter_text(occupancy->limiters) == limiters);
}

}  // namespace

TEST_CASE("Occupancy on compute capability 9.0", "[analysis]") {
  check(kH200, {1024, 32}, 2, 1, "registers+block size");
  check(kH200, {1024, 16}, 2, 1, "block size");
  check(kH200, {1024, 33}, 1, 0.5, "registers");  // 40, because of the allocation granularity
  check(kH200, {256, 255}, 1, 0.125, "registers");
  check(kH200, {256, 64}, 4, 0.5, "registers");
  check(kH200, {256, 0}, 8, 1, "block size");
  check(kH200, {32, 16}, 32, 0.5, "blocks");
  check(kH200, {1, 16}, 32, 0.5, "blocks");
  check(kH200, {33, 16}, 32, 1, "block size+blocks");
  check(kH200, {64, 32}, 32, 1, "registers+block size+blocks");
  check(kH200, {768, 16}, 2, 0.75, "block size");
}

TEST_CASE("Shared memory bounds occupancy, opted in for or not", "[analysis]") {
  // Each block takes another 1 KiB.
  check(kH200, {128, 32, 0, 100 * kKiB}, 2, 0.125, "shared memory");
  check(kH200, {128, 32, 0, 48 * kKiB}, 4, 0.25, "shared memory");
  check(kH200, {128, 32, 48 * kKiB, 0}, 4, 0.25, "shared memory");
  check(kH200, {128, 32, 0, 113 * kKiB}, 2, 0.125, "shared memory");
  check(kH200, {128, 32, 1, 113 * kKiB}, 1, 0.0625, "shared memory");
  check(kH200, {128, 32, 27 * kKiB, 200 * kKiB}, 1, 0.0625, "shared memory");
  check(kH200, {128, 128, 0, 56 * kKiB}, 4, 0.25, "registers+shared memory");
  CHECK_FALSE(occupancy_of(kH200, {128, 32, 0, 227 * kKiB + 1}).has_value());
}

TEST_CASE("Occupancy on other devices", "[analysis]") {
  check(kP100, {128, 32, 0, 32 * kKiB}, 2, 0.125, "shared memory");
  check(kV100, {128, 32, 0, 48 * kKiB}, 2, 0.125, "shared memory");
  check(kV100, {128, 32, 0, 96 * kKiB}, 1, 0.0625, "shared memory");
  check(kT4, {1024, 32}, 1, 1, "block size");
  check(kT4, {32, 32}, 16, 0.5, "blocks");
  check(kA100, {128, 32, 0, 48 * kKiB}, 3, 0.1875, "shared memory");
  check(kRtx3090, {1024, 32}, 1, 2.0 / 3, "block size");
}

TEST_CASE("What is not known of a device, or can't have been launched, has no occupancy", "[analysis]") {
  REQUIRE(occupancy_of(kH200, {256, 32}).has_value());
  CHECK_FALSE(occupancy_of({}, {256, 32}).has_value());
  for (const LaunchResources& launch :
       {LaunchResources{0, 32}, LaunchResources{1025, 32}, LaunchResources{~std::uint64_t{0}, 32},
        LaunchResources{256, 257}, LaunchResources{256, ~std::uint32_t{0}}, LaunchResources{512, 255},
        LaunchResources{256, 32, ~std::uint64_t{0}}, LaunchResources{256, 32, 0, ~std::uint64_t{0}},
        LaunchResources{256, 32, 0xffffffff, 0xffffffff}}) {
    CHECK_FALSE(occupancy_of(kH200, launch).has_value());
  }
  int DeviceLimits::*const attributes[] = {
      &DeviceLimits::compute_major,
      &DeviceLimits::multiprocessors,
      &DeviceLimits::warp_size,
      &DeviceLimits::threads_per_block,
      &DeviceLimits::threads_per_multiprocessor,
      &DeviceLimits::blocks_per_multiprocessor,
      &DeviceLimits::registers_per_block,
      &DeviceLimits::registers_per_multiprocessor,
      &DeviceLimits::shared_per_block,
      &DeviceLimits::shared_per_block_optin,
      &DeviceLimits::shared_per_multiprocessor,
      &DeviceLimits::reserved_shared_per_block,
  };
  for (const auto attribute : attributes) {
    for (const int value : {0, -1}) {
      DeviceLimits device = kH200;
      device.*attribute = value;
      CHECK_FALSE(occupancy_of(device, {256, 32}).has_value());
    }
  }
  // Capabilities that the calculator does not know, including some that it could confuse with others.
  for (const auto& [major, minor] : {std::pair{99, 0}, {12, 99}, {4, 0}, {10, 99}, {8, 6}, {8, 9}}) {
    DeviceLimits device = kH200;
    device.compute_major = major;
    device.compute_minor = minor;
    CHECK_FALSE(occupancy_of(device, {256, 32}).has_value());
  }
  DeviceLimits device = kH200;
  device.shared_per_multiprocessor = 200 * 1024;
  CHECK_FALSE(occupancy_of(device, {256, 32}).has_value());
}

TEST_CASE("Resident blocks are as many as every limit allows, and no more", "[analysis]") {
  std::mt19937 random(7);
  const auto pick = [&random](std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(0, most)(random);
  };
  const auto round_up = [](std::uint64_t value, std::uint64_t step) {
    return (value + step - 1) / step * step;
  };
  int known = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool small = pick(1) == 0;
    const LaunchResources launch{pick(small ? 128 : 1100), pick(small ? 40 : 260), pick(49'152),
                                 pick(small ? 4096 : 240'000)};
    const auto occupancy = occupancy_of(kH200, launch);
    // As in the programming guide: registers are allocated to the warps of each quarter, in units of 256.
    const std::uint64_t warps = (launch.block_threads + 31) / 32;
    const std::uint64_t warp_registers = round_up(launch.registers_per_thread * 32, 256);
    const std::uint64_t shared =
        round_up(launch.static_shared_bytes + launch.dynamic_shared_bytes + 1024, 128);
    std::uint64_t blocks = 0;
    if (warps > 0 && launch.block_threads <= 1024 && round_up(warps, 4) * warp_registers <= 65536 &&
        launch.registers_per_thread <= 256 && shared <= 233'472) {
      blocks = std::min<std::uint64_t>({32, 64 / warps, 233'472 / shared});
      if (warp_registers > 0) blocks = std::min(blocks, 16384 / warp_registers * 4 / warps);
    }
    INFO(launch.block_threads << " threads, " << launch.registers_per_thread << " registers, "
                              << launch.static_shared_bytes << " + " << launch.dynamic_shared_bytes
                              << " bytes");
    REQUIRE(occupancy.has_value() == (blocks > 0));
    if (!occupancy) continue;
    ++known;
    REQUIRE(static_cast<std::uint64_t>(occupancy->blocks) == blocks);
    REQUIRE(static_cast<std::uint64_t>(occupancy->warps) == blocks * warps);
    REQUIRE(occupancy->share <= 1);
    REQUIRE(occupancy->limiters != 0);
    // More of any resource never makes room.
    for (LaunchResources more :
         {LaunchResources{launch.block_threads + pick(200), launch.registers_per_thread,
                          launch.static_shared_bytes, launch.dynamic_shared_bytes},
          LaunchResources{launch.block_threads, launch.registers_per_thread + pick(20),
                          launch.static_shared_bytes, launch.dynamic_shared_bytes},
          LaunchResources{launch.block_threads, launch.registers_per_thread,
                          launch.static_shared_bytes + pick(5000), launch.dynamic_shared_bytes},
          LaunchResources{launch.block_threads, launch.registers_per_thread, launch.static_shared_bytes,
                          launch.dynamic_shared_bytes + pick(5000)}}) {
      const auto then = occupancy_of(kH200, more);
      REQUIRE((!then || then->blocks <= occupancy->blocks));
    }
  }
  CHECK(known > 10'000);
}

TEST_CASE("Limiters as text", "[analysis]") {
  CHECK(limiter_text(0).empty());
  CHECK(limiter_text(kLimitedBySharedMemory) == "shared memory");
  CHECK(limiter_text(kLimitedByBlocks | kLimitedByRegisters) == "registers+blocks");
}

TEST_CASE("Waves of a grid", "[analysis]") {
  const auto check_use = [](std::uint64_t grid, double waves, double efficiency) {
    INFO(grid);
    const auto use = grid_use(grid, 2, 132);  // a wave is 264 blocks
    REQUIRE(use.has_value());
    CHECK(use->waves == Approx(waves));
    CHECK(use->efficiency == Approx(efficiency));
  };
  check_use(1, 1.0 / 264, 1.0 / 132);
  check_use(131, 131.0 / 264, 131.0 / 132);
  check_use(132, 0.5, 1);
  check_use(263, 263.0 / 264, 1);
  check_use(264, 1, 1);
  check_use(265, 265.0 / 264, (1 + 1.0 / 132) / 2);
  check_use(2 * 264 + 66, 2.25, 2.5 / 3);
  check_use(264'000, 1000, 1);
  check_use(264'001, 1000 + 1.0 / 264, (1000 + 1.0 / 132) / 1001);
  // 2^31 - 1 by 65535 by 65535 is the largest grid.
  CHECK(grid_use(2'147'483'647ull * 65'535 * 65'535 / 2, 1, 132)->efficiency == Approx(1));
  CHECK_FALSE(grid_use(0, 2, 132).has_value());
  CHECK_FALSE(grid_use(10, 0, 132).has_value());
  CHECK_FALSE(grid_use(10, 2, 0).has_value());
}

TEST_CASE("A device is never busier than it is wide, and full waves keep it busy", "[analysis]") {
  for (std::uint64_t grid = 1; grid < 2000; ++grid) {
    for (const int resident : {1, 2, 3, 32}) {
      const auto use = grid_use(grid, resident, 17);
      REQUIRE(use.has_value());
      REQUIRE(use->efficiency > 0);
      REQUIRE(use->efficiency <= 1);
      // Blocks that fill no wave are spread over all multiprocessors before any gets a second one.
      const std::uint64_t rest = grid % (17 * static_cast<std::uint64_t>(resident));
      REQUIRE((use->efficiency == 1) == (rest == 0 || rest >= 17));
    }
  }
}
