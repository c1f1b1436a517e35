// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/memory_use.h"

#include <cerrno>
#include <memory>
#include <thread>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

const void* address(std::uintptr_t number) {
  return reinterpret_cast<const void*>(number * 512);
}

constexpr AllocationApi kMalloc = AllocationApi::kMalloc;

MemoryCounts counts_of(const MemoryUse& use, std::uint32_t device, std::optional<AllocationApi> api) {
  for (const MemoryRow& row : use.rows()) {
    if (row.device == device && row.api == api) return row.counts;
  }
  return {};
}

}  // namespace

TEST_CASE("The table of allocations finds what it was given", "[memory]") {
  AllocationTable table(256);
  Allocation found;
  CHECK_FALSE(table.begin_free(address(1), found));
  CHECK_FALSE(table.end_free(address(1), true, found));
  const Allocation given{(std::uint64_t{1} << 40) + 7, 3, AllocationApi::kHostAlloc};
  REQUIRE(table.add(address(1), given, found) == AllocationTable::Added::kYes);
  REQUIRE(table.begin_free(address(1), found));
  CHECK(found.bytes == given.bytes);
  CHECK(found.device == given.device);
  CHECK(found.api == given.api);

  SECTION("a second free of the same address finds nothing") {
    CHECK_FALSE(table.begin_free(address(1), found));
    CHECK(table.end_free(address(1), true, found));
    CHECK_FALSE(table.begin_free(address(1), found));
    CHECK_FALSE(table.end_free(address(1), true, found));
  }
  SECTION("a free that fails leaves it") {
    CHECK(table.end_free(address(1), false, found));
    CHECK(found.bytes == given.bytes);
    CHECK(table.begin_free(address(1), found));
  }
  SECTION("the address is given again before the call that freed it has returned") {
    CHECK(table.add(address(1), {5, 0, kMalloc}, found) == AllocationTable::Added::kYes);
    CHECK(table.end_free(address(1), true, found));
    REQUIRE(table.begin_free(address(1), found));
    CHECK(found.bytes == 5);
  }
}

TEST_CASE("An address that is given once more was freed past the hooks", "[memory]") {
  AllocationTable table(256);
  Allocation found;
  CHECK(table.add(address(1), {10, 2, kMalloc}, found) == AllocationTable::Added::kYes);
  CHECK(table.add(address(1), {20, 1, kMalloc}, found) == AllocationTable::Added::kReplaced);
  CHECK(found.bytes == 10);
  CHECK(found.device == 2);
  REQUIRE(table.begin_free(address(1), found));
  CHECK(found.bytes == 20);
}

TEST_CASE("Addresses that no device gives are not held", "[memory]") {
  AllocationTable table(256);
  Allocation found;
  for (const std::uintptr_t odd : {0u, 1u, 2u, 4u, 8u, 513u}) {
    const auto* pointer = reinterpret_cast<const void*>(odd);
    CHECK(table.add(pointer, {1, 0, kMalloc}, found) == AllocationTable::Added::kNoRoom);
    CHECK_FALSE(table.begin_free(pointer, found));
  }
}

TEST_CASE("Places are used again, for as long as a program runs", "[memory]") {
  AllocationTable table(256);
  Allocation found;
  // A hundred at once, a hundred thousand in all.
  for (std::uintptr_t i = 1; i <= 100'000; ++i) {
    REQUIRE(table.add(address(i), {i, 0, kMalloc}, found) == AllocationTable::Added::kYes);
    if (i <= 100) continue;
    REQUIRE(table.begin_free(address(i - 100), found));
    REQUIRE(found.bytes == i - 100);
    REQUIRE(table.end_free(address(i - 100), true, found));
  }
}

TEST_CASE("A full table refuses, and takes again once there is room", "[memory]") {
  AllocationTable table(64);
  Allocation found;
  for (std::uintptr_t i = 1; i <= 64; ++i)
    REQUIRE(table.add(address(i), {i, 0, kMalloc}, found) == AllocationTable::Added::kYes);
  CHECK(table.add(address(65), {65, 0, kMalloc}, found) == AllocationTable::Added::kNoRoom);
  CHECK_FALSE(table.begin_free(address(65), found));
  REQUIRE(table.begin_free(address(7), found));
  CHECK(table.add(address(65), {65, 0, kMalloc}, found) == AllocationTable::Added::kNoRoom);
  REQUIRE(table.end_free(address(7), true, found));
  CHECK(table.add(address(65), {65, 0, kMalloc}, found) == AllocationTable::Added::kYes);
  REQUIRE(table.begin_free(address(65), found));
  CHECK(found.bytes == 65);
}

TEST_CASE("Threads that allocate and free at the same time lose nothing", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  constexpr std::uintptr_t kThreads = 4;
  constexpr std::uintptr_t kRounds = 20'000;
  constexpr std::uintptr_t kHeld = 50;
  std::vector<std::thread> threads;
  for (std::uintptr_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&use, thread] {
      // Addresses of its own, used again and again.
      const auto own = [thread](std::uintptr_t i) { return address(1 + thread + kThreads * (i % 777)); };
      for (std::uintptr_t i = 0; i < kRounds; ++i) {
        use->allocated(kMalloc, own(i), 100 + thread, 0);
        if (i < kHeld) continue;
        use->freeing(own(i - kHeld));
        use->freed(own(i - kHeld), true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MemoryCounts counts = counts_of(*use, 0, std::nullopt);
  CHECK(counts.allocations == kThreads * kRounds);
  CHECK(counts.frees == kThreads * (kRounds - kHeld));
  CHECK(counts.live == kHeld * (100 + 101 + 102 + 103));
  CHECK(counts.peak >= counts.live);
  CHECK(counts.peak <= (kHeld + 1) * (100 + 101 + 102 + 103));
  // One function is all of them.
  CHECK(counts.peak == counts_of(*use, 0, kMalloc).peak);
  CHECK(use->not_held() == 0);
  CHECK(use->unknown_frees() == 0);
}

TEST_CASE("An address goes from thread to thread", "[memory]") {
  // As the real functions give it: one allocator, whose addresses are free before its caller knows.
  const auto use = std::make_unique<MemoryUse>();
  std::array<std::atomic<bool>, 8> taken{};
  std::array<std::thread, 4> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (int round = 0; round < 20'000; ++round) {
        for (std::size_t i = 0; i < taken.size(); ++i) {
          if (taken[i].exchange(true)) continue;
          use->allocated(kMalloc, address(i + 1), 10, 0);
          use->freeing(address(i + 1));
          taken[i] = false;
          use->freed(address(i + 1), true);
          break;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MemoryCounts counts = counts_of(*use, 0, kMalloc);
  CHECK(counts.allocations == counts.frees);
  CHECK(counts.live == 0);
  CHECK(counts.peak <= 40);
  CHECK(use->unknown_frees() == 0);
}

TEST_CASE("Counts by function and device, peaks of each and of the sum", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  errno = 5;
  use->allocated(kMalloc, address(1), 100, 0);
  use->allocated(kMalloc, address(2), 50, 0);
  use->freeing(address(1));
  use->freed(address(1), true);
  use->allocated(AllocationApi::kMallocManaged, address(3), 70, 0);
  use->allocated(kMalloc, address(4), 1000, 1);
  use->allocated(AllocationApi::kMallocHost, address(5), 30, 0);
  use->allocated(AllocationApi::kHostAlloc, address(6), 40, 1);
  use->allocated(kMalloc, nullptr, 0, 0);  // cudaMalloc of nothing
  use->freeing(nullptr);
  use->freed(nullptr, true);
  use->freeing(address(9));
  use->freed(address(9), false);  // not the device's, as the call said
  CHECK(use->unknown_frees() == 0);
  use->freeing(address(9));
  use->freed(address(9), true);
  CHECK(use->unknown_frees() == 1);
  CHECK(errno == 5);

  const MemoryCounts malloc0 = counts_of(*use, 0, kMalloc);
  CHECK(malloc0.allocations == 2);
  CHECK(malloc0.frees == 1);
  CHECK(malloc0.allocated == 150);
  CHECK(malloc0.live == 50);
  CHECK(malloc0.peak == 150);
  CHECK(malloc0.largest == 100);
  const MemoryCounts all0 = counts_of(*use, 0, std::nullopt);
  CHECK(all0.allocations == 3);
  CHECK(all0.live == 120);
  CHECK(all0.peak == 150);  // not the sum of the peaks, which is 220
  CHECK(counts_of(*use, 1, std::nullopt).peak == 1000);
  const MemoryCounts host = counts_of(*use, MemoryUse::kHost, std::nullopt);
  CHECK(host.live == 70);
  CHECK(host.allocations == 2);

  const std::vector<MemoryRow> rows = use->rows();
  REQUIRE(rows.size() == 8);
  CHECK_FALSE(rows[0].api);
  CHECK(rows[1].api == kMalloc);
  CHECK(rows[2].api == AllocationApi::kMallocManaged);
  CHECK(rows[5].device == MemoryUse::kHost);
  CHECK(rows[6].api == AllocationApi::kHostAlloc);
}

TEST_CASE("Failed allocations are counted with their sizes", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  use->failed(kMalloc, 5000, 1);
  use->failed(kMalloc, 7000, 1);
  use->failed(AllocationApi::kMallocManaged, 600, 1);
  const MemoryCounts counts = counts_of(*use, 1, kMalloc);
  CHECK(counts.allocations == 0);
  CHECK(counts.failed == 2);
  CHECK(counts.failed_bytes == 12'000);
  CHECK(counts.largest_failed == 7000);
  CHECK(counts.last_failed == 7000);
  const MemoryCounts all = counts_of(*use, 1, std::nullopt);
  CHECK(all.failed == 3);
  CHECK(all.failed_bytes == 12'600);
  CHECK(all.largest_failed == 7000);
  CHECK(all.last_failed == 600);
}

TEST_CASE("A free that fails changes nothing", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  use->allocated(kMalloc, address(1), 100, 0);
  use->freeing(address(1));
  use->freed(address(1), false);
  CHECK(counts_of(*use, 0, kMalloc).frees == 0);
  CHECK(counts_of(*use, 0, kMalloc).live == 100);
  CHECK(counts_of(*use, 0, std::nullopt).live == 100);
  CHECK(counts_of(*use, 0, std::nullopt).peak == 100);
}

TEST_CASE("A device's reset frees what its context had, pinned memory as well", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  for (std::uint32_t device = 0; device < 2; ++device) {
    use->allocated(kMalloc, address(10 + device), 100, device);
    use->allocated(AllocationApi::kMallocHost, address(20 + device), 10, device);
  }
  use->resetting(1);
  use->reset(false);
  CHECK(counts_of(*use, 1, kMalloc).live == 100);
  use->resetting(1);
  use->reset(true);
  CHECK(counts_of(*use, 0, kMalloc).live == 100);
  CHECK(counts_of(*use, 1, kMalloc).live == 0);
  CHECK(counts_of(*use, 1, kMalloc).frees == 1);
  CHECK(counts_of(*use, 1, kMalloc).peak == 100);
  CHECK(counts_of(*use, MemoryUse::kHost, AllocationApi::kMallocHost).live == 10);
  use->resetting(MemoryUse::kUnknownDevice);  // a thread without a context: the runtime's default
  use->reset(true);
  CHECK(counts_of(*use, 0, kMalloc).live == 0);
  use->freeing(address(10));
  use->freed(address(10), false);
  CHECK(counts_of(*use, 0, kMalloc).frees == 1);
}

TEST_CASE("More allocations than the table holds are counted, and not live", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  constexpr std::uintptr_t kMany = 70'000;
  for (std::uintptr_t i = 1; i <= kMany; ++i) use->allocated(kMalloc, address(i), 1, 0);
  const MemoryCounts counts = counts_of(*use, 0, kMalloc);
  CHECK(counts.allocations == kMany);
  CHECK(counts.allocated == kMany);
  CHECK(use->not_held() >= kMany - 65'536);
  CHECK(counts.live == kMany - use->not_held());
  CHECK(counts.peak == counts.live);
}

TEST_CASE("Every function has its name", "[memory]") {
  for (std::size_t i = 0; i < kAllocationApis; ++i)
    CHECK(!allocation_name(static_cast<AllocationApi>(i)).empty());
  CHECK(allocation_name(AllocationApi::kMalloc3DArray) == "cudaMalloc3DArray");
  CHECK(allocation_name(AllocationApi::kHostAlloc) == "cudaHostAlloc");
  CHECK(allocation_kind(AllocationApi::kHostAlloc) == AllocationKind::kPinnedHost);
  CHECK(allocation_kind(AllocationApi::kMallocMipmappedArray) == AllocationKind::kDevice);
}
