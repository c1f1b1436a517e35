// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/memory_use.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "libinject/base/clock.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

const void* address(std::uintptr_t number) {
  return reinterpret_cast<const void*>(number * 512);
}

constexpr AllocationApi kMalloc = AllocationApi::kMalloc;

MemoryCounts counts_of(MemoryUse& use, std::uint32_t device, std::optional<AllocationApi> api) {
  for (const MemoryRow& row : use.copy().rows) {
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
  // One hundred at a time, one hundred thousand in all.
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
      // Addresses of its own, reused repeatedly.
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
  // All allocations were made by one function.
  CHECK(counts.peak == counts_of(*use, 0, kMalloc).peak);
  CHECK(use->not_held() == 0);
  CHECK(use->unknown_frees() == 0);
}

TEST_CASE("An address goes from thread to thread", "[memory]") {
  // Like the real functions: one allocator, whose addresses become free before the caller knows it.
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
  use->allocated(kMalloc, nullptr, 0, 0);  // cudaMalloc of zero bytes
  use->freeing(nullptr);
  use->freed(nullptr, true);
  use->freeing(address(9));
  use->freed(address(9), false);  // not the device's, as the call reported
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

  const std::vector<MemoryRow> rows = use->copy().rows;
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
  use->resetting(MemoryUse::kUnknownDevice);  // a thread without a context uses the runtime's default
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

namespace {

const MemoryLine* line_of(const MemoryCopy& copy, std::uint32_t device) {
  for (const MemoryLine& line : copy.lines) {
    if (line.device == device) return &line;
  }
  return nullptr;
}

/// Live bytes after each change; nothing else is known.
struct ExactLevel {
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  std::size_t peak_after = 0;  // number of changes

  void change(std::uint64_t bytes, std::size_t changes) {
    live += bytes;
    if (live <= peak) return;
    peak = live;
    peak_after = changes;
  }
};

}  // namespace

TEST_CASE("Peaks, and when they were, of generated allocations", "[memory]") {
  constexpr AllocationApi kApis[] = {AllocationApi::kMalloc, AllocationApi::kMallocManaged,
                                     AllocationApi::kHostAlloc};
  std::mt19937_64 random(20261128);
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    const auto use = std::make_unique<MemoryUse>();
    struct Held {
      std::uintptr_t number;
      std::uint64_t bytes;
      std::uint32_t place;
      std::size_t api;
    };
    std::vector<Held> held;
    std::map<std::uint32_t, ExactLevel> all;
    std::map<std::pair<std::uint32_t, std::size_t>, ExactLevel> by_api;
    std::vector<Nanoseconds> before;  // before each change
    std::vector<Nanoseconds> after;
    const std::size_t changes = 1 + random() % 6'000;
    std::uintptr_t number = 0;
    while (before.size() < changes) {
      const bool frees = !held.empty() && random() % 100 < (held.size() < 50 ? 30 : 55);
      before.push_back(now());
      Held one{};
      if (frees) {
        const std::size_t which = random() % held.size();
        one = held[which];
        held[which] = held.back();
        held.pop_back();
        use->freeing(address(one.number));
        use->freed(address(one.number), true);
      } else {
        const std::size_t api = random() % std::size(kApis);
        const auto device = static_cast<std::uint32_t>(random() % 2);
        const bool host = allocation_kind(kApis[api]) == AllocationKind::kPinnedHost;
        one = {++number, 1 + random() % 1'000'000, host ? MemoryUse::kHost : device, api};
        use->allocated(kApis[api], address(number), one.bytes, device);
        held.push_back(one);
      }
      after.push_back(now());
      const std::uint64_t bytes = frees ? 0 - one.bytes : one.bytes;
      all[one.place].change(bytes, before.size());
      by_api[{one.place, one.api}].change(bytes, before.size());
    }
    const MemoryCopy copy = use->copy();
    const auto check_level = [&](const MemoryCounts& counts, const ExactLevel& level) {
      REQUIRE(counts.live == level.live);
      REQUIRE(counts.peak == level.peak);
      REQUIRE(counts.peak_at >= before[level.peak_after - 1]);
      REQUIRE(counts.peak_at <= after[level.peak_after - 1]);
    };
    for (const auto& [place, level] : all) {
      check_level(counts_of(*use, place, std::nullopt), level);
      const MemoryLine* line = line_of(copy, place);
      REQUIRE(line != nullptr);
      CHECK(line->intervals.size() < MemorySeries::kRoom);
      const auto highest = std::max_element(
          line->intervals.begin(), line->intervals.end(),
          [](const MemoryInterval& one, const MemoryInterval& other) { return one.highest < other.highest; });
      CHECK(highest->highest == level.peak);
      CHECK(highest->highest_at == counts_of(*use, place, std::nullopt).peak_at);
      CHECK(line->intervals.back().last == level.live);
    }
    for (const auto& [key, level] : by_api) check_level(counts_of(*use, key.first, kApis[key.second]), level);
    CHECK(use->not_held() == 0);
  }
}

TEST_CASE("Peaks of threads that allocate at once fit together", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  std::atomic<bool> done{false};
  std::atomic<bool> contradicts{false};
  std::vector<std::thread> threads;
  for (std::uintptr_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&use, thread] {
      const AllocationApi api = thread % 2 == 0 ? AllocationApi::kMalloc : AllocationApi::kMallocManaged;
      for (std::uintptr_t i = 0; i < 20'000; ++i) {
        const void* own = address(1 + thread + 4 * (i % 50));
        if (i >= 50) {
          use->freeing(own);
          use->freed(own, true);
        }
        use->allocated(api, own, 1 + (i * 7919 + thread) % 1000, 0);
      }
    });
  }
  const auto highest_of = [](const MemoryLine& line) {
    std::uint64_t highest = 0;
    for (const MemoryInterval& interval : line.intervals) highest = std::max(highest, interval.highest);
    return highest;
  };
  std::thread reader([&] {
    while (!done) {
      const MemoryCopy copy = use->copy();
      if (copy.rows.empty()) continue;
      const MemoryCounts& all = copy.rows.front().counts;
      const MemoryLine* line = line_of(copy, 0);
      if (all.peak < all.live || (line != nullptr && highest_of(*line) != all.peak)) contradicts = true;
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  reader.join();
  CHECK_FALSE(contradicts);
  const MemoryCopy copy = use->copy();
  const MemoryLine* line = line_of(copy, 0);
  REQUIRE(line != nullptr);
  const MemoryCounts& all = copy.rows.front().counts;
  CHECK(highest_of(*line) == all.peak);
  CHECK(line->intervals.back().last == all.live);
  CHECK(copy.rows.size() == 3);
}

TEST_CASE("What comes while another thread has the turn, or too fast, is in the line as well", "[memory]") {
  // Threads are preempted in the middle of it, so the queue is full at times. Peaks of a single moment must
  // be found nevertheless.
  const auto use = std::make_unique<MemoryUse>();
  std::vector<std::thread> threads;
  for (std::uintptr_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&use, thread] {
      for (std::uintptr_t i = 0; i < 10'000; ++i) {
        const void* own = address(1 + thread);
        use->allocated(kMalloc, own, i % 1000 == 999 ? 1'000'000'000 : 1, 0);
        use->freeing(own);
        use->freed(own, true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MemoryCopy copy = use->copy();
  const MemoryLine* line = line_of(copy, 0);
  REQUIRE(line != nullptr);
  CHECK(line->intervals.back().last == 0);
  std::uint64_t lowest = ~std::uint64_t{0};
  std::uint64_t highest = 0;
  for (const MemoryInterval& interval : line->intervals) {
    lowest = std::min(lowest, interval.lowest);
    highest = std::max(highest, interval.highest);
    CHECK(interval.lowest <= interval.highest);
    CHECK(interval.highest_at >= interval.begin);
    CHECK(interval.highest_at <= interval.last_at);
  }
  CHECK(lowest == 0);
  CHECK(highest == copy.rows.front().counts.peak);
  CHECK(highest >= 1'000'000'000);
}

TEST_CASE("Of changes that find the queue full, the lowest, the highest and the last are kept", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  std::uintptr_t number = 0;
  const auto allocate = [&](std::uint64_t bytes) { use->allocated(kMalloc, address(++number), bytes, 0); };
  const auto free = [&](std::uintptr_t of) {
    use->freeing(address(of));
    use->freed(address(of), true);
  };
  allocate(9'000);  // the peak, so that it does not decide the result
  free(1);
  allocate(100);
  const std::uintptr_t kept = number;
  std::size_t before = 0;
  {
    const MemoryUse::Turn turn(*use);
    REQUIRE(turn);
    for (std::uint64_t i = 0; i < MemoryChanges::kRoom / 2; ++i) {
      allocate(1);
      free(number);
    }
    before = number;
    // There is no room for any of these.
    allocate(5'000);
    free(number);
    free(kept);
    allocate(30);
  }
  CHECK(number == before + 2);
  const MemoryCopy copy = use->copy();
  const MemoryLine* line = line_of(copy, 0);
  REQUIRE(line != nullptr);
  REQUIRE(line->intervals.size() > MemoryChanges::kRoom);
  const MemoryInterval& spilled = line->intervals[line->intervals.size() - 2];
  CHECK(spilled.highest == 5'000 + 100);
  CHECK(spilled.lowest == 0);
  CHECK(line->intervals.back().last == 30);
  CHECK(line->intervals.back().lowest == 30);
  const MemoryCounts all = copy.rows.front().counts;
  CHECK(all.live == 30);
  CHECK(all.peak == 9'000);
  CHECK(all.peak_at == line->intervals.front().begin);
}

TEST_CASE("A place whose first changes find the queue full has its line", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  {
    const MemoryUse::Turn turn(*use);
    REQUIRE(turn);
    for (std::uint64_t i = 0; i < MemoryChanges::kRoom; ++i) use->allocated(kMalloc, address(1 + i), 1000, 0);
    use->allocated(kMalloc, address(10'000), 5'000'000, 1);
    use->allocated(kMalloc, address(10'001), 2'000'000, 1);
    use->allocated(kMalloc, address(20'000), 7'000'000, 2);
    use->freeing(address(20'000));
    use->freed(address(20'000), true);
  }
  for (int round = 0; round < 2; ++round) {
    const MemoryCopy copy = use->copy();
    CHECK(copy.lines_missing == 0);
    CHECK(copy.lines.size() == 3);
    const std::map<std::uint32_t, std::uint64_t> peaks{{1, 7'000'000}, {2, 7'000'000}};
    for (const auto& [device, peak] : peaks) {
      CAPTURE(device);
      const MemoryLine* line = line_of(copy, device);
      REQUIRE(line != nullptr);
      const auto row = std::ranges::find_if(
          copy.rows, [of = device](const MemoryRow& each) { return each.device == of && !each.api; });
      REQUIRE(row != copy.rows.end());
      const MemoryCounts counts = row->counts;
      CHECK(counts.peak == peak);
      CHECK(line->intervals.front().highest == peak);
      CHECK(line->intervals.front().highest_at == counts.peak_at);
      CHECK(line->intervals.back().last == counts.live);
    }
    // Later allocations are not part of these peaks.
    use->allocated(kMalloc, address(30'000 + static_cast<std::uintptr_t>(round)), 1000, 2);
  }
}

TEST_CASE("Without the turn there are counts and no lines", "[memory]") {
  const auto use = std::make_unique<MemoryUse>();
  use->allocated(kMalloc, address(1), 100, 0);
  const MemoryUse::Turn turn(*use);
  use->allocated(kMalloc, address(2), 50, 0);
  CHECK(use->copy().lines_missing == 1);
  const MemoryCopy copy = use->copy();
  CHECK(copy.lines.empty());
  CHECK(copy.rows.front().counts.live == 150);
  CHECK(copy.rows.front().counts.peak == 150);
  CHECK(copy.rows.front().counts.peak_at != 0);
}

TEST_CASE("Changes that wait are taken in their order, and refused while there are too many", "[memory]") {
  const auto changes = std::make_unique<MemoryChanges>();
  MemoryChange taken;
  CHECK_FALSE(changes->any());
  CHECK_FALSE(changes->take(taken));
  std::uint64_t added = 0;
  std::uint64_t next = 0;
  for (int round = 0; round < 5; ++round) {
    while (changes->add({added, 0, 0, 0})) ++added;
    CHECK(added - next == MemoryChanges::kRoom);
    CHECK(changes->any());
    for (std::uint64_t i = 0; i < MemoryChanges::kRoom / 3; ++i) {
      REQUIRE(changes->take(taken));
      REQUIRE(taken.time == next++);
    }
  }
  while (changes->take(taken)) CHECK(taken.time == next++);
  CHECK(next == added);
}
