// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "libinject/pipeline/decode.h"
#include "libinject/record/buffers.h"
#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("kernel records are read field by field") {
  CUpti_ActivityKernel10 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.start = 100;
  record.end = 250;
  record.deviceId = 3;
  record.contextId = 4;
  record.streamId = 5;
  record.correlationId = 6;
  record.gridX = 7;
  record.gridY = 8;
  record.gridZ = 9;
  record.blockX = 10;
  record.blockY = 11;
  record.blockZ = 12;
  record.registersPerThread = 128;
  record.staticSharedMemory = 1024;
  record.dynamicSharedMemory = 2048;
  record.localMemoryPerThread = 16;
  record.name = "kernel";
  record.graphId = 21;
  record.graphNodeId = 22;
  const auto& generic = reinterpret_cast<const CUpti_Activity&>(record);
  REQUIRE(activity_kind(generic) == ActivityKind::kKernel);
  const KernelActivity kernel = decode_kernel(generic);
  CHECK(std::string(kernel.name) == "kernel");
  CHECK(kernel.event.start == 100);
  CHECK(kernel.event.end == 250);
  CHECK(kernel.event.device == 3);
  CHECK(kernel.event.context == 4);
  CHECK(kernel.event.stream == 5);
  CHECK(kernel.event.correlation == 6);
  CHECK(kernel.event.grid == std::array<std::int32_t, 3>{7, 8, 9});
  CHECK(kernel.event.block == std::array<std::int32_t, 3>{10, 11, 12});
  CHECK(kernel.event.registers_per_thread == 128);
  CHECK(kernel.event.static_shared_bytes == 1024);
  CHECK(kernel.event.dynamic_shared_bytes == 2048);
  CHECK(kernel.event.local_bytes_per_thread == 16);
  CHECK(kernel.event.graph == 21);
  CHECK(kernel.event.graph_node == 22);
}

TEST_CASE("copies and memsets are read field by field") {
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  copy.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  copy.bytes = 4096;
  copy.start = 1;
  copy.end = 2;
  copy.streamId = 7;
  copy.correlationId = 9;
  TransferEvent event = decode_transfer(reinterpret_cast<const CUpti_Activity&>(copy));
  CHECK_FALSE(event.memset);
  CHECK_FALSE(event.peer);
  CHECK(event.copy_kind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
  CHECK(event.source_memory == CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
  CHECK(event.bytes == 4096);
  CHECK(event.correlation == 9);
  CHECK(event.stream == 7);

  CUpti_ActivityMemcpyPtoP4 peer{};
  peer.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  peer.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  peer.bytes = 10;
  peer.deviceId = 1;
  peer.srcDeviceId = 3;
  peer.dstDeviceId = 2;
  peer.correlationId = 11;
  event = decode_transfer(reinterpret_cast<const CUpti_Activity&>(peer));
  CHECK(event.peer);
  CHECK(event.device == 1);
  CHECK(event.source_device == 3);
  CHECK(event.target_device == 2);
  CHECK(event.correlation == 11);

  CUpti_ActivityMemset4 set{};
  set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  set.bytes = 77;
  set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  set.correlationId = 12;
  event = decode_transfer(reinterpret_cast<const CUpti_Activity&>(set));
  CHECK(event.memset);
  CHECK(event.bytes == 77);
  CHECK(event.target_memory == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
  CHECK(event.correlation == 12);
}

TEST_CASE("records without usable times are recognised") {
  CHECK(times_valid(1, 1));
  CHECK_FALSE(times_valid(0, 0));
  CHECK_FALSE(times_valid(0, 5));
  CHECK_FALSE(times_valid(5, 4));
}

TEST_CASE("activity buffers are handed out, completed, zeroed and handed out again") {
  ActivityBuffers buffers(4 << 20);
  std::vector<ActivityBuffers::Buffer> taken;
  std::size_t bytes = 0;
  for (auto buffer = buffers.take(3); buffer.data != nullptr; buffer = buffers.take(3)) {
    taken.push_back(buffer);
    bytes += buffer.bytes;
  }
  CHECK(bytes == 4 << 20);
  CHECK(buffers.count() == 16);
  CHECK(buffers.outstanding() == 16);
  // Beyond a quarter of the memory, in steps of a quarter.
  CHECK(taken.size() == 4 + 12 * 4);
  CHECK(taken.front().bytes == 4 * taken.back().bytes);
  CHECK(buffers.refusals() == 1);

  std::memset(taken[0].data, 0xFF, taken[0].bytes);
  CHECK(buffers.complete(taken[0].data, 100));
  CHECK(buffers.complete(taken[1].data, 200));
  CHECK_FALSE(buffers.complete(taken[1].data, 200));                      // twice
  CHECK_FALSE(buffers.complete(reinterpret_cast<std::uint8_t*>(16), 1));  // not ours
  std::vector<std::size_t> sizes;
  buffers.handle(buffers.take_completed(),
                 [&](std::uint8_t*, std::size_t valid, std::uint16_t generation, std::uint64_t) {
                   sizes.push_back(valid);
                   CHECK(generation == 3);
                 });
  CHECK(sizes == std::vector<std::size_t>{100, 200});
  CHECK(buffers.handled() == 2);
  for (int i = 0; i < 2; ++i) {
    const ActivityBuffers::Buffer again = buffers.take(4);
    REQUIRE(again.data != nullptr);
    CHECK(std::all_of(again.data, again.data + again.bytes, [](std::uint8_t byte) { return byte == 0; }));
  }
  buffers.reclaim_outstanding();
  CHECK(buffers.outstanding() == 0);
  bytes = 0;
  for (auto buffer = buffers.take(5); buffer.data != nullptr; buffer = buffers.take(5)) bytes += buffer.bytes;
  CHECK(bytes == 4 << 20);
}
