// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/shared_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "libinject/record/block_pool.h"
#include "libinject/record/buffers.h"
#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("an arena that moves into a file loses nothing, and is there from then on", "[recovery][native]") {
  constexpr std::size_t kBlocks = 400;
  constexpr std::uint32_t kEach = 40'000;
  BlockPool pool(kBlocks * sizeof(Block));
  const int file = memfd_create("ring", 0);
  REQUIRE(ftruncate(file, kBlocks * sizeof(Block)) == 0);
  void* mapped = mmap(nullptr, kBlocks * sizeof(Block), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REQUIRE(mapped != MAP_FAILED);
  const SharedRegion region{static_cast<std::uint8_t*>(mapped), kBlocks * sizeof(Block)};

  std::vector<RecordQueue> queues(3);
  std::atomic<std::size_t> done{0};
  std::vector<std::thread> threads;
  for (RecordQueue& queue : queues) {
    threads.emplace_back([&] {
      for (std::uint32_t i = 0; i < kEach;) {
        CallRecord record;
        record.correlation = i;
        // Full is not what this is about: the next one is tried until there is room.
        if (queue.push(pool, record, 1)) ++i;
      }
      ++done;
    });
  }
  std::vector<std::uint32_t> expected(queues.size(), 0);
  bool in_order = true;
  const auto take_all = [&] {
    for (std::size_t q = 0; q < queues.size(); ++q) {
      queues[q].drain(pool, [&](const Slot& slot) {
        CallRecord record;
        std::memcpy(&record, slot.bytes, sizeof record);
        in_order = in_order && record.correlation == expected[q]++;
      });
    }
  };
  take_all();
  REQUIRE(pool.move_to(region));
  CHECK_FALSE(pool.move_to(region));
  while (done != queues.size()) take_all();
  for (std::thread& thread : threads) thread.join();
  take_all();
  CHECK(in_order);
  for (const std::uint32_t count : expected) CHECK(count == kEach);

  // What is published now is in the mapping.
  CallRecord record;
  record.correlation = 0xABCD'1234;
  for (int i = 0; i < 2; ++i) {
    queues[0].push(pool, record, 7);
    take_all();
  }
  queues[0].push(pool, record, 7);
  bool found = false;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const auto* block = reinterpret_cast<const Block*>(region.base + i * sizeof(Block));
    const std::uint32_t published = block->published.load();
    if (block->thread != 1 && block->thread != 7) continue;
    for (std::uint32_t s = 0; s < published && s < Block::kSlots; ++s) {
      CallRecord there;
      std::memcpy(&there, block->slots[s].bytes, sizeof there);
      found = found || there.correlation == 0xABCD'1234;
    }
  }
  CHECK(found);
  munmap(mapped, kBlocks * sizeof(Block));
  close(file);
}

TEST_CASE("CUPTI's buffers that move into a file are marked once they are complete", "[recovery][native]") {
  ActivityBuffers buffers(4 << 20);
  const int file = memfd_create("buffers", 0);
  REQUIRE(ftruncate(file, static_cast<off_t>(buffers.total_bytes())) == 0);
  void* mapped = mmap(nullptr, buffers.total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REQUIRE(mapped != MAP_FAILED);
  const SharedRegion region{static_cast<std::uint8_t*>(mapped), buffers.total_bytes()};
  std::vector<BufferMark> marks(buffers.units());
  const auto complete = [&] {
    std::size_t count = 0;
    for (const BufferMark& mark : marks) count += mark.sequence.load() != 0;
    return count;
  };

  const ActivityBuffers::Buffer before = buffers.take(1);
  REQUIRE(buffers.move_to(region, marks.data()));
  std::memset(before.data, 1, 100);
  CHECK(buffers.complete(before.data, 100));
  CHECK(complete() == 0);  // CUPTI had it when the others moved
  std::size_t handled = 0;
  const auto use = [&](std::uint8_t*, std::size_t, std::uint16_t, std::uint64_t) { ++handled; };
  buffers.handle(buffers.take_completed(), use);

  std::vector<ActivityBuffers::Buffer> taken;
  for (auto buffer = buffers.take(2); buffer.data != nullptr; buffer = buffers.take(2))
    taken.push_back(buffer);
  for (const ActivityBuffers::Buffer& buffer : taken) {
    CHECK(std::all_of(buffer.data, buffer.data + buffer.bytes, [](std::uint8_t byte) { return byte == 0; }));
    std::memset(buffer.data, 2, 50);
    CHECK(buffers.complete(buffer.data, 50));
  }
  CHECK(complete() == taken.size());
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i].sequence.load() == 0) continue;
    CHECK(marks[i].valid == 50);
    CHECK(marks[i].generation == 2);
    CHECK(region.base[i * buffers.unit_bytes()] == 2);
  }
  buffers.handle(buffers.take_completed(), use);
  CHECK(handled == 1 + taken.size());
  CHECK(complete() == 0);
  munmap(mapped, region.bytes);
  close(file);
}
