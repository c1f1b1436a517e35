// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/dynamic_loader_guard.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "libinject/base/clock.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constinit pid_t loader_child = 0;
alignas(DynamicLoaderGuard) unsigned char storage[sizeof(DynamicLoaderGuard)];

/// In a function of its own, because the child's calls may overwrite values that the compiler keeps for the
/// caller.
__attribute__((noinline)) void end_child_amid_a_use() {
  loader_child = vfork();
  if (loader_child == 0) {
    ::new (storage) DynamicLoaderGuard;  // no destructor runs, as in a process that is killed here
    _exit(0);
  }
}

/// Returns how long a fork would wait. Measured in a thread of its own: the child that ended during a use
/// shared this thread's memory, including its own count.
Nanoseconds wait_before_fork() {
  Nanoseconds waited = 0;
  std::thread([&waited] {
    const Nanoseconds begin = now();
    DynamicLoaderGuard::before_fork();
    waited = now() - begin;
    DynamicLoaderGuard::after_fork();
  }).join();
  return waited;
}

/// Forks while another thread uses the loader. Returns whether the fork waited until the use ended.
bool fork_waits_for_a_use() {
  std::atomic<bool> using_it{false};
  std::atomic<bool> forking{false};
  std::atomic<bool> over{false};
  std::thread user([&] {
    const DynamicLoaderGuard guard;
    using_it = true;
    while (!forking) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    over = true;
  });
  while (!using_it) std::this_thread::yield();
  forking = true;
  DynamicLoaderGuard::before_fork();
  const bool waited = over;
  DynamicLoaderGuard::after_fork();
  user.join();
  return waited;
}

constinit std::atomic<bool> cancelled_thread_waits{false};
constinit std::atomic<bool> cancelled_thread_went_on{false};
/// Waits for a fork although a request to cancel it is pending.
void* use_while_cancelled(void*) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  pthread_cancel(pthread_self());
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
  cancelled_thread_waits = true;
  { const DynamicLoaderGuard guard; }
  cancelled_thread_went_on = true;
  return nullptr;
}

constexpr Nanoseconds kSoon = 1'500'000'000;  // two seconds are waited for a use that goes on

}  // namespace

TEST_CASE("a child made by vfork that ends amid the loader's work holds no later fork up", "[native]") {
  DynamicLoaderGuard::count_in_this_process();
  end_child_amid_a_use();
  REQUIRE(loader_child > 0);
  REQUIRE(waitpid(loader_child, nullptr, 0) == loader_child);
  CHECK(wait_before_fork() < kSoon);
}

// In a process in which nothing has been counted.
TEST_CASE("a child made by vfork that is the first to use the loader leaves its parent's uses counted",
          "[native]") {
  const pid_t process = fork();
  REQUIRE(process >= 0);
  if (process == 0) {
    end_child_amid_a_use();
    waitpid(loader_child, nullptr, 0);
    DynamicLoaderGuard::count_in_this_process();
    _exit(wait_before_fork() >= kSoon ? 1 : fork_waits_for_a_use() ? 0 : 2);
  }
  int status = 0;
  REQUIRE(waitpid(process, &status, 0) == process);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a wait for a fork is no place to be cancelled at", "[native]") {
  DynamicLoaderGuard::count_in_this_process();
  DynamicLoaderGuard::before_fork();
  pthread_t thread{};
  REQUIRE(pthread_create(&thread, nullptr, &use_while_cancelled, nullptr) == 0);
  while (!cancelled_thread_waits) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  DynamicLoaderGuard::after_fork();
  REQUIRE(pthread_join(thread, nullptr) == 0);
  CHECK(cancelled_thread_went_on);
}

// The last one here: from then on, no fork of this process waits for as long.
TEST_CASE("after a fork that waited in vain, others wait for a short time only", "[native]") {
  DynamicLoaderGuard::count_in_this_process();
  std::atomic<bool> using_it{false};
  std::atomic<bool> over{false};
  std::thread user([&] {
    const DynamicLoaderGuard guard;
    using_it = true;
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!using_it) std::this_thread::yield();
  wait_before_fork();
  const Nanoseconds again = wait_before_fork();
  over = true;
  user.join();
  CHECK(again < kSoon);
}
