// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Activity records: exact counts, durations, order.
#include <algorithm>

#include "tests/sim/client.h"
#include "tests/sim/cudasim.h"
#include "tests/unit/catch.h"

using namespace inject::sim;

TEST_CASE("kernel records carry exact durations in stream order") {
  Client client;
  client.trace();
  cudasim_set_kernel_duration("exact_long", 70'000);
  cudasim_set_kernel_duration("exact_short", 3'000);
  cudaKernel_t longer = test_kernel("_Z10exact_longv");
  cudaKernel_t shorter = test_kernel("_Z11exact_shortv");
  for (int i = 0; i < 100; ++i) {
    REQUIRE(launch(longer, nullptr, 7, 64) == cudaSuccess);
    REQUIRE(launch(shorter) == cudaSuccess);
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  client.flush();

  REQUIRE(client.kernels.size() == 200);
  CHECK(client.dropped == 0);
  std::uint64_t previous_end = 0;
  std::uint32_t previous_correlation = 0;
  for (std::size_t i = 0; i < client.kernels.size(); ++i) {
    const KernelRecord& kernel = client.kernels[i];
    bool is_long = i % 2 == 0;
    CHECK(kernel.name == (is_long ? "_Z10exact_longv" : "_Z11exact_shortv"));
    CHECK(kernel.end - kernel.start == (is_long ? 70'000u : 3'000u));
    CHECK(kernel.grid_x == (is_long ? 7 : 1));
    CHECK(kernel.block_x == (is_long ? 64 : 32));
    CHECK(kernel.start >= previous_end);
    CHECK(kernel.correlation > previous_correlation);
    previous_end = kernel.end;
    previous_correlation = kernel.correlation;
  }
}

TEST_CASE("copies and memsets take bytes over rate") {
  Client client;
  client.trace();
  constexpr std::size_t kBytes = 1'000'000;
  void* device = nullptr;
  REQUIRE(cudaMalloc(&device, kBytes) == cudaSuccess);
  std::vector<unsigned char> host(kBytes, 7);
  REQUIRE(cudaMemcpy(device, host.data(), kBytes, cudaMemcpyHostToDevice) == cudaSuccess);
  REQUIRE(cudaMemset(device, 9, kBytes / 2) == cudaSuccess);
  REQUIRE(cudaMemcpy(host.data(), device, kBytes, cudaMemcpyDeviceToHost) == cudaSuccess);
  client.flush();

  CHECK(host[0] == 9);
  CHECK(host[kBytes - 1] == 7);
  REQUIRE(client.transfers.size() == 3);
  const TransferRecord& in = client.transfers[0];
  CHECK(in.copy_kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  CHECK(in.source == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
  CHECK(in.target == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
  CHECK(in.bytes == kBytes);
  CHECK(in.end - in.start == 100'000);  // 10,000 bytes a microsecond
  CHECK(client.transfers[1].kind == CUPTI_ACTIVITY_KIND_MEMSET);
  CHECK(client.transfers[1].end - client.transfers[1].start == 500);
  CHECK(client.transfers[2].copy_kind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
  REQUIRE(cudaFree(device) == cudaSuccess);
}
