// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/spare_blocks.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("Spare blocks are given out once each, and again when they are back", "[base]") {
  constinit static SpareBlocks<48, 128> spare;
  std::set<void*> taken;
  for (int i = 0; i < 128; ++i) {
    void* block = spare.take();
    REQUIRE(block != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % alignof(std::max_align_t) == 0);
    std::memset(block, 0xff, 48);
    taken.insert(block);
  }
  CHECK(taken.size() == 128);
  // Blocks are not adjacent.
  const void* before = nullptr;
  for (const void* block : taken) {
    if (before != nullptr) CHECK(static_cast<const char*>(block) - static_cast<const char*>(before) == 48);
    before = block;
  }
  CHECK(spare.take() == nullptr);
  void* last = *taken.rbegin();
  CHECK(spare.give_back(last));
  CHECK(spare.take() == last);
  CHECK(spare.take() == nullptr);
  for (void* block : taken) CHECK(spare.give_back(block));
}

TEST_CASE("Other memory is not taken for a spare block", "[base]") {
  struct Neighbours {
    char before = 0;
    SpareBlocks<16, 64> spare;
    char after = 0;
  };
  constinit static Neighbours neighbours;
  CHECK_FALSE(neighbours.spare.give_back(&neighbours.before));
  CHECK_FALSE(neighbours.spare.give_back(&neighbours.after));
  CHECK_FALSE(neighbours.spare.give_back(nullptr));
}

TEST_CASE("No two threads get the same spare block", "[base]") {
  constinit static SpareBlocks<16, 64> spare;
  std::atomic<int> twice{0};
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 1; i <= 8; ++i) {
    threads.emplace_back([i, &twice] {
      for (int round = 0; round < 2000; ++round) {
        auto* block = static_cast<int*>(spare.take());
        if (block == nullptr) continue;
        *block = i;
        std::this_thread::yield();
        if (*block != i) ++twice;
        spare.give_back(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(twice == 0);
  int free = 0;
  while (spare.take() != nullptr) ++free;
  CHECK(free == 64);
}
