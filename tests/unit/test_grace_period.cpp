// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "libinject/base/grace_period.h"
#include "tests/unit/catch.h"
#include "tests/unit/pid_namespace.h"

namespace inject {
namespace {

constexpr Nanoseconds kLong = 20 * kSecond;

}  // namespace

TEST_CASE("a grace period is over at once for a process of one thread", "[grace_period]") {
  CHECK(wait_grace_period(kLong) == GracePeriod::kOver);
}

TEST_CASE("a thread that sleeps is in no short piece of code", "[grace_period]") {
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false;
  std::thread sleeper([&] {
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return stop; });
  });
  CHECK(wait_grace_period(kLong) == GracePeriod::kOver);
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  wake.notify_one();
  sleeper.join();
}

// With more threads than CPUs, some threads are preempted in the middle of what they do.
TEST_CASE("what a thread was in as a grace period began, it has left as that ends", "[grace_period]") {
  constexpr std::size_t kThreads = 12;
  std::atomic<bool> stop{false};
  std::vector<std::atomic<std::uint64_t>> rounds(kThreads);
  std::vector<std::thread> threads;
  for (auto& count : rounds)
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) count.fetch_add(1, std::memory_order_relaxed);
    });
  for (const auto& count : rounds)
    while (count.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    std::vector<std::uint64_t> before;
    for (const auto& count : rounds) before.push_back(count.load(std::memory_order_relaxed));
    REQUIRE(wait_grace_period(kLong) == GracePeriod::kOver);
    for (std::size_t j = 0; j < kThreads; ++j)
      CHECK(rounds[j].load(std::memory_order_relaxed) > before[j] + 1);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

TEST_CASE("a grace period is given up where threads get no processor", "[grace_period]") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 16 * std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  // If this thread gets no CPU either, all others may have run meanwhile, but not every time.
  bool given_up = false;
  for (int i = 0; i < 100 && !given_up; ++i) given_up = wait_grace_period(0) == GracePeriod::kTooLong;
  CHECK(given_up);
  stop = true;
  for (auto& thread : threads) thread.join();
}

TEST_CASE("a grace period is unknown where /proc has the numbers of another PID namespace",
          "[grace_period]") {
  const std::optional<int> status =
      in_pid_namespace([] { return wait_grace_period(kLong) == GracePeriod::kUnknown ? 0 : 1; });
  if (!status) {
    WARN("not tested: this user may not make PID namespaces");
    return;
  }
  CHECK(*status == 0);
}

}  // namespace inject
