// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/driver_functions.h"

#include <array>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

/// Parameters of eight bytes each, as in CUPTI's callbacks.
using Parameters = std::array<std::uint64_t, 6>;

DriverFunction named(const char* name) {
  return DriverFunction::named(name);
}

std::uint64_t address(const void* object) {
  return reinterpret_cast<std::uint64_t>(object);
}

}  // namespace

TEST_CASE("driver calls are told apart by their names") {
  CHECK(classify_driver_call("cuLaunchKernel") == DriverCall::kLaunch);
  CHECK(classify_driver_call("cuLaunchKernelEx_ptsz") == DriverCall::kLaunch);
  CHECK(classify_driver_call("cuLaunchCooperativeKernel") == DriverCall::kLaunch);
  CHECK(classify_driver_call("cuLaunchHostFunc") == DriverCall::kOther);
  CHECK(classify_driver_call("cuGraphLaunch") == DriverCall::kGraphLaunch);
  CHECK(classify_driver_call("cuMemcpyHtoDAsync_v2") == DriverCall::kCopy);
  CHECK(classify_driver_call("cuMemsetD8Async") == DriverCall::kMemset);
  CHECK(classify_driver_call("cuMemAlloc_v2") == DriverCall::kOther);
  CHECK(classify_driver_call(nullptr) == DriverCall::kOther);
}

TEST_CASE("calls that may create a context are known by their names") {
  for (const char* name :
       {"cuDevicePrimaryCtxRetain", "cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v4", "cuGreenCtxCreate"})
    CHECK(named(name).creates_context);
  for (const char* name :
       {"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxGetState", "cuCtxSetCurrent", "cuLaunchKernel"})
    CHECK_FALSE(named(name).creates_context);
}

TEST_CASE("a launch's stream is where the launch has it") {
  auto* const stream = reinterpret_cast<CUstream>(0x5000);
  cuLaunchKernel_params kernel{};
  kernel.hStream = stream;
  CHECK(named("cuLaunchKernel_ptsz").stream(&kernel) == 0x5000);
  cuLaunchCooperativeKernel_params cooperative{};
  cooperative.hStream = stream;
  CHECK(named("cuLaunchCooperativeKernel").stream(&cooperative) == 0x5000);
  CUlaunchConfig config{};
  config.hStream = stream;
  cuLaunchKernelEx_params with_config{};
  with_config.config = &config;
  CHECK(named("cuLaunchKernelEx").stream(&with_config) == 0x5000);
  with_config.config = nullptr;
  CHECK(named("cuLaunchKernelEx").stream(&with_config) == 0);
  cuGraphLaunch_params graph{};
  graph.hStream = stream;
  CHECK(named("cuGraphLaunch").stream(&graph) == 0x5000);
  CHECK(named("cuLaunchKernel").stream(nullptr) == 0);
  // Its second parameter is a count, so there is no single stream.
  CHECK(named("cuLaunchCooperativeKernelMultiDevice").stream(&kernel) == 0);
}

TEST_CASE("a copy or memset of zero bytes submits nothing") {
  const Parameters none{1, 2, 0, 4, 5, 6};
  const Parameters some{1, 2, 3, 0, 0, 0};
  for (const char* name : {"cuMemcpy", "cuMemcpyHtoD_v2", "cuMemcpyDtoHAsync_v2_ptsz", "cuMemsetD32_v2",
                           "cuMemsetD8Async", "cuMemcpyAsync"}) {
    INFO(name);
    CHECK(named(name).submits_nothing(&none));
    CHECK_FALSE(named(name).submits_nothing(&some));
    CHECK_FALSE(named(name).submits_nothing(nullptr));
    CHECK(named(name).third_size(&some) == 3);
  }
  for (const char* name : {"cuMemcpyPeer", "cuMemcpy2D_v2", "cuLaunchKernel"})
    CHECK_FALSE(named(name).submits_nothing(&none));
}

TEST_CASE("copies and memsets with several sizes are empty if one of them is 0") {
  const Parameters fourth{1, 2, 3, 0, 5, 6};
  const Parameters fifth{1, 2, 3, 4, 0, 6};
  CHECK(named("cuMemcpyHtoA_v2").is_empty(&fourth));
  CHECK_FALSE(named("cuMemcpyHtoA_v2").is_empty(&fifth));
  CHECK(named("cuMemcpyPeerAsync").is_empty(&fifth));
  CHECK_FALSE(named("cuMemcpyPeerAsync").is_empty(&fourth));
  for (const Parameters& parameters : {fourth, fifth}) CHECK(named("cuMemsetD2D16_v2").is_empty(&parameters));
  CHECK_FALSE(named("cuMemsetD2D16_v2").is_empty(nullptr));

  CUDA_MEMCPY2D area{};
  area.WidthInBytes = 8;
  area.Height = 8;
  const Parameters plane{address(&area)};
  CHECK_FALSE(named("cuMemcpy2DAsync_v2").is_empty(&plane));
  area.Height = 0;
  CHECK(named("cuMemcpy2DAsync_v2").is_empty(&plane));
  // The first version's parameters had 32 bits.
  CHECK_FALSE(named("cuMemcpy2DAsync").is_empty(&plane));

  CUDA_MEMCPY3D volume{};
  volume.WidthInBytes = volume.Height = volume.Depth = 8;
  const Parameters block{address(&volume)};
  CHECK_FALSE(named("cuMemcpy3D_v2").is_empty(&block));
  volume.Depth = 0;
  CHECK(named("cuMemcpy3D_v2").is_empty(&block));
  CUDA_MEMCPY3D_PEER peer{};
  CHECK(named("cuMemcpy3DPeerAsync").is_empty(Parameters{address(&peer)}.data()));

  std::array<std::size_t, 3> sizes{0, 0, 4};
  Parameters batch{1, 2, address(sizes.data()), 2};
  CHECK(named("cuMemcpyBatchAsync").is_empty(&batch));
  batch[3] = 3;
  CHECK_FALSE(named("cuMemcpyBatchAsync").is_empty(&batch));
}

TEST_CASE("a copy's direction is in its name") {
  CHECK(named("cuMemcpyHtoDAsync_v2").copy == SignKind::kCopyToDevice);
  CHECK(named("cuMemcpyDtoH_v2").copy == SignKind::kCopyToHost);
  CHECK(named("cuMemcpyDtoD_v2").copy == SignKind::kCopy);
}
