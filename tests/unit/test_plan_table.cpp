// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/plan_table.h"

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

const void* plan_at(std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

TEST_CASE("Plans: entered, told what they compute, removed, entered anew") {
  const auto table = std::make_unique<PlanTable>();
  const void* plan = plan_at(0x7F12'3456'7890);
  CHECK_FALSE(table->find(plan).has_value());
  CHECK(table->set(plan, 0));
  CHECK(table->find(plan) == 0u);
  CHECK(table->set(plan, 17));
  CHECK(table->find(plan) == 17u);
  CHECK_FALSE(table->find(plan_at(0x7F12'3456'7898)).has_value());
  table->remove(plan);
  CHECK_FALSE(table->find(plan).has_value());
  table->remove(plan);
  CHECK(table->set(plan, 5));
  CHECK(table->find(plan) == 5u);
}

TEST_CASE("Plans: what can't be one") {
  const auto table = std::make_unique<PlanTable>();
  CHECK_FALSE(table->set(nullptr, 1));
  CHECK_FALSE(table->set(plan_at(0x7F12'3456'7891), 1));
  CHECK_FALSE(table->set(plan_at(std::uintptr_t{1} << 50), 1));
  CHECK_FALSE(table->set(plan_at(0x1000), PlanTable::kShapeEnd));
  CHECK(table->set(plan_at(0x1000), PlanTable::kShapeEnd - 1));
  CHECK(table->find(plan_at(0x1000)) == PlanTable::kShapeEnd - 1);
  CHECK_FALSE(table->find(nullptr).has_value());
}

TEST_CASE("Plans: as a map does, also when many come and go") {
  const auto table = std::make_unique<PlanTable>();
  std::unordered_map<std::uintptr_t, std::uint32_t> truth;
  std::mt19937_64 random(3);
  std::vector<std::uintptr_t> addresses(8000);
  for (std::uintptr_t& address : addresses) address = 0x7F00'0000'0000 + random() % (1 << 26) * 16;
  for (int step = 0; step < 400'000; ++step) {
    const std::uintptr_t address = addresses[random() % addresses.size()];
    const auto shape = static_cast<std::uint32_t>(random() % 1000);
    if (random() % 2 == 0) {
      REQUIRE(table->set(plan_at(address), shape));
      truth[address] = shape;
    } else {
      table->remove(plan_at(address));
      truth.erase(address);
    }
  }
  for (const std::uintptr_t address : addresses) {
    const auto known = truth.find(address);
    const auto found = table->find(plan_at(address));
    CHECK(found.has_value() == (known != truth.end()));
    if (found.has_value()) CHECK(*found == known->second);
  }
}

TEST_CASE("Plans: a full table turns away and keeps what it has") {
  const auto table = std::make_unique<PlanTable>();
  std::size_t kept = 0;
  for (std::uintptr_t i = 1; i <= 2 * PlanTable::kSlots; ++i) kept += table->set(plan_at(i * 64), 9) ? 1 : 0;
  CHECK(kept <= PlanTable::kSlots);
  CHECK(kept > PlanTable::kSlots * 9 / 10);
  std::size_t found = 0;
  for (std::uintptr_t i = 1; i <= 2 * PlanTable::kSlots; ++i)
    found += table->find(plan_at(i * 64)) == 9u ? 1 : 0;
  CHECK(found == kept);
}

TEST_CASE("Plans: threads do not see each other's") {
  const auto table = std::make_unique<PlanTable>();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uintptr_t round = 0; round < 20'000; ++round) {
        const void* plan = plan_at((round % 500 * 4 + t) * 256);
        if (!table->set(plan, t)) ++wrong;
        if (table->find(plan) != t) ++wrong;
        table->remove(plan);
        if (table->find(plan).has_value()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
