// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/lock_within.h"

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "libinject/session/session_state.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

/// The thread's voluntary context switches.
long waits() {
  rusage use{};
  getrusage(RUSAGE_THREAD, &use);
  return use.ru_nvcsw;
}

bool had_session_lock() INJECT_NO_THREAD_ANALYSIS {
  const bool locked = lock_session(false);
  if (locked) session_mutex.unlock();
  return locked;
}

}  // namespace

TEST_CASE("a bounded wait for a lock is made of few pauses", "[lock]") {
  std::mutex mutex;
  const std::lock_guard held(mutex);
  bool locked = true;
  long pauses = 0;
  std::thread([&] {
    const long before = waits();
    locked = lock_within(mutex, kSecond / 2).owns_lock();
    pauses = waits() - before;
  }).join();
  CHECK_FALSE(locked);
  // Each pause takes longer than requested; with 5,000 pauses of 100 us the wait would take nearly twice as
  // long.
  CHECK(pauses >= 50);
  CHECK(pauses < 500);
}

TEST_CASE("after a wait in vain for the session's lock, a call still gets past a moment without it",
          "[lock]") {
  session_mutex.lock();
  bool in_vain = false;
  std::thread([&] { in_vain = !had_session_lock(); }).join();
  session_mutex.unlock();
  REQUIRE(in_vain);

  // The lock is released as soon as the call has begun to wait. If the machine is too busy for that within
  // the call's time limit, a later round may succeed.
  bool locked = false;
  for (int round = 0; round < 50 && !locked; ++round) {
    std::atomic<bool> called{false};
    std::atomic<bool> returned{false};
    session_mutex.lock();
    std::thread caller([&] {
      called.store(true);
      locked = had_session_lock();
      returned.store(true);
    });
    while (!called.load()) std::this_thread::yield();
    // A call that does not wait returns in this time.
    for (int i = 0; i < 20 && !returned.load(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    session_mutex.unlock();
    caller.join();
  }
  CHECK(locked);
  CHECK(had_session_lock());
}
