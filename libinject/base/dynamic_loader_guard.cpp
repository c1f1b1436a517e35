// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/dynamic_loader_guard.h"

#include <unistd.h>

#include <atomic>

#include "libinject/base/caller_state.h"
#include "libinject/base/clock.h"

namespace inject {

namespace {

// Loading CUPTI takes some 10 ms from a warm disk, its libraries for hardware metrics up to 300 ms.
constexpr Nanoseconds kMaxWait = 2 * kSecond;
// For a fork, once a fork has waited in vain: the use may be waiting for an allocator's lock, which the
// forking thread holds if the allocator's handlers were registered after ours.
constexpr Nanoseconds kMaxWaitAgain = 400 * kMillisecond;

constinit std::atomic<unsigned> uses{0};
constinit std::atomic<unsigned> forks{0};
// This thread's nesting depth: if a fork waits for the outer use, the inner one must not wait for the fork.
constinit thread_local unsigned depth = 0;
constinit std::atomic<pid_t> counting_process{0};
constinit std::atomic<bool> fork_timed_out{false};

// A child made by vfork() shares this memory, and may be killed at any moment: its counts would stay.
bool counts_here() noexcept {
  return counting_process.load(std::memory_order_acquire) == getpid();
}

/// False if that took too long.
template <typename Done>
bool wait_until(Nanoseconds most, Done done) noexcept {
  const CallerState caller;
  const Nanoseconds deadline = now() + most;
  while (!done()) {
    if (now() >= deadline) return false;
    sleep_for(50 * kMicrosecond);
  }
  return true;
}

}  // namespace

DynamicLoaderGuard::DynamicLoaderGuard() noexcept : counted_(counts_here()) {
  if (!counted_ || depth++ != 0) return;
  // Either the forking thread sees this use, or this thread sees the fork.
  uses.fetch_add(1, std::memory_order_seq_cst);
  if (forks.load(std::memory_order_seq_cst) == 0) [[likely]]
    return;
  uses.fetch_sub(1, std::memory_order_seq_cst);
  wait_until(kMaxWait, [] { return forks.load(std::memory_order_seq_cst) == 0; });
  uses.fetch_add(1, std::memory_order_seq_cst);
}

DynamicLoaderGuard::~DynamicLoaderGuard() {
  if (!counted_ || --depth != 0) return;
  uses.fetch_sub(1, std::memory_order_release);
}

void DynamicLoaderGuard::count_in_this_process() noexcept {
  if (counts_here()) return;
  // The current count is that of the process from which this one was forked.
  uses.store(depth != 0 ? 1 : 0, std::memory_order_relaxed);
  counting_process.store(getpid(), std::memory_order_release);
}

void DynamicLoaderGuard::before_fork() noexcept {
  forks.fetch_add(1, std::memory_order_seq_cst);
  // A signal handler that forks may have interrupted a use by this thread.
  const Nanoseconds most = fork_timed_out.load(std::memory_order_relaxed) ? kMaxWaitAgain : kMaxWait;
  if (!wait_until(most, [] { return uses.load(std::memory_order_seq_cst) <= (depth != 0 ? 1u : 0u); }))
    fork_timed_out.store(true, std::memory_order_relaxed);
}

void DynamicLoaderGuard::after_fork() noexcept {
  forks.fetch_sub(1, std::memory_order_release);
}

void DynamicLoaderGuard::after_fork_in_child() noexcept {
  counting_process.store(getpid(), std::memory_order_relaxed);
  forks.store(0, std::memory_order_relaxed);
  uses.store(depth != 0 ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace inject
