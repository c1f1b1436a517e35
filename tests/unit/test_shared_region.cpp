// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/shared_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
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
        // A full queue is not the subject of this test: it tries again until there is room.
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
        const auto record = slot.as<CallRecord>();
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

  // Records published now are in the mapping.
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
    const std::uint32_t published = block->published.load() / kBlockSteps;
    if (block->thread != 1 && block->thread != 7) continue;
    for (std::uint32_t s = 0; s < published && s < Block::kSlots; ++s) {
      const auto there = block->slots[s].as<CallRecord>();
      found = found || there.correlation == 0xABCD'1234;
    }
  }
  CHECK(found);
  munmap(mapped, kBlocks * sizeof(Block));
  close(file);
}

TEST_CASE("what is taken first is known, before and after the move into a file", "[recovery][native]") {
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  const int file = memfd_create("arena", 0);
  REQUIRE(ftruncate(file, kBytes) == 0);
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REQUIRE(mapped != MAP_FAILED);
  const SharedRegion region{static_cast<std::uint8_t*>(mapped), kBytes};
  const auto inside = [](std::span<std::uint8_t> range, const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const std::uint8_t*>(data);
    return begin >= range.data() && begin + bytes <= range.data() + range.size();
  };
  const bool moves = GENERATE(false, true);
  const bool in_use = GENERATE(false, true);  // while it moves

  BlockPool pool(kBytes);
  Block* const held = in_use ? pool.take() : nullptr;
  if (moves) REQUIRE(pool.move_to(region));
  const std::span<std::uint8_t> blocks = pool.used_first();
  for (std::size_t i = 0; i + 1 < blocks.size() / sizeof(Block); ++i)
    CHECK(inside(blocks, pool.take(), sizeof(Block)));
  if (held != nullptr) pool.give_back(held);

  std::vector<BufferMark> marks(kBytes);
  ActivityBuffers buffers(kBytes);
  ActivityBuffers::Buffer early;
  if (in_use) early = buffers.take(1);
  if (moves) REQUIRE(buffers.move_to(region, marks.data()));
  const std::span<std::uint8_t> first = buffers.used_first();
  for (std::size_t left = first.size();;) {
    const ActivityBuffers::Buffer buffer = buffers.take(1);
    if (buffer.bytes > left || (in_use && buffer.bytes + early.bytes > left)) break;
    left -= buffer.bytes;
    CHECK(inside(first, buffer.data, buffer.bytes));
  }
  munmap(mapped, kBytes);
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
  CHECK(complete() == 1);  // CUPTI held it when the others moved, so it was copied
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

TEST_CASE("CUPTI's buffers that were all in use are kept once they are complete, and follow",
          "[recovery][native]") {
  ActivityBuffers buffers(4 << 20);
  const int file = memfd_create("buffers", 0);
  REQUIRE(ftruncate(file, static_cast<off_t>(buffers.total_bytes())) == 0);
  void* mapped = mmap(nullptr, buffers.total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  REQUIRE(mapped != MAP_FAILED);
  const SharedRegion region{static_cast<std::uint8_t*>(mapped), buffers.total_bytes()};
  std::vector<BufferMark> marks(buffers.units());

  std::vector<ActivityBuffers::Buffer> taken;
  const auto take_all = [&] {
    taken.clear();
    for (auto buffer = buffers.take(1); buffer.data != nullptr; buffer = buffers.take(1))
      taken.push_back(buffer);
  };
  const auto check_kept = [&](int byte) {
    for (const ActivityBuffers::Buffer& buffer : taken) {
      std::memset(buffer.data, byte, 100);
      CHECK(buffers.complete(buffer.data, 100));
      const auto offset = static_cast<std::size_t>(buffer.data - buffers.memory());
      const BufferMark& mark = marks[offset / buffers.unit_bytes()];
      CHECK(mark.sequence.load() != 0);
      CHECK(mark.valid == 100);
      CHECK(
          std::all_of(region.base + offset, region.base + offset + 100, [byte](int b) { return b == byte; }));
    }
  };
  take_all();
  REQUIRE(taken.size() > 16);
  REQUIRE(buffers.move_to(region, marks.data()));
  check_kept(1);
  const auto use = [&](std::uint8_t*, std::size_t, std::uint16_t, std::uint64_t) {};
  buffers.handle(buffers.take_completed(), use);
  for (const BufferMark& mark : marks) CHECK(mark.sequence.load() == 0);

  // Now they are in the mapping themselves, and zero.
  take_all();
  for (const ActivityBuffers::Buffer& buffer : taken) {
    CHECK(std::all_of(buffer.data, buffer.data + buffer.bytes, [](std::uint8_t byte) { return byte == 0; }));
    buffer.data[200] = 3;
    CHECK(region.base[buffer.data + 200 - buffers.memory()] == 3);
  }
  check_kept(2);
  munmap(mapped, region.bytes);
  close(file);
}

TEST_CASE("a small arena has blocks for threads while it moves", "[recovery][native]") {
  constexpr std::uint32_t kBlocks = 64;
  constexpr std::size_t kBytes = kBlocks * sizeof(Block);
  std::uint32_t refused = 0;
  for (int round = 0; round < 50; ++round) {
    BlockPool pool(kBytes);
    const int file = memfd_create("ring", 0);
    REQUIRE(ftruncate(file, kBytes) == 0);
    void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(mapped != MAP_FAILED);
    std::atomic<bool> begun{false};
    std::atomic<bool> moved{false};
    std::thread taker([&] {
      for (std::uint32_t taken = 0; taken < kBlocks / 2 && !moved;) {
        if (pool.take() == nullptr) {
          ++refused;
          break;
        }
        ++taken;
        begun = true;
        std::this_thread::sleep_for(std::chrono::microseconds(1));
      }
    });
    while (!begun) std::this_thread::yield();
    CHECK(pool.move_to({static_cast<std::uint8_t*>(mapped), kBytes}));
    moved = true;
    taker.join();
    munmap(mapped, kBytes);
    close(file);
  }
  CHECK(refused == 0);
}

TEST_CASE("what threads count is in the file from the moment that it is asked for", "[recovery][native]") {
  BlockPool pool(4 * sizeof(Block));
  RecordQueue queue;
  RecordCounts kept{};
  std::atomic<bool> stop{false};
  std::uint64_t published = 0;
  std::uint64_t dropped = 0;
  std::atomic<std::uint64_t> pushed{0};
  std::thread producer([&] {
    CallRecord record;
    record.window = 1;
    while (!stop) {
      ++(queue.push(pool, record, 1) ? published : dropped);
      ++pushed;
    }
    record.window = 0;  // not in a window, so it is not missing
    queue.push(pool, record, 1);
  });
  const auto wait_for_more = [&](std::uint64_t more) {
    for (const std::uint64_t until = pushed + more; pushed < until;) {
      queue.drain(pool, [](const Slot&) {});
      std::this_thread::yield();
    }
  };
  wait_for_more(5000);
  queue.keep_counts(kept);
  wait_for_more(5000);
  stop = true;
  producer.join();
  const unsigned calls = kind_index(RecordKind::kCall);
  CHECK(kept.published[calls].load() == published);
  // The last one may have found no room, whatever its window.
  CHECK(kept.dropped[calls].load() >= dropped);
  CHECK(kept.dropped[calls].load() <= dropped + 1);
  CHECK(kept.dropped[calls].load() == queue.dropped(RecordKind::kCall));
}
