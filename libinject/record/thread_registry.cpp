// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/thread_registry.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "libinject/base/host_io.h"
#include "libinject/base/mapping.h"
#include "libinject/record/control.h"

namespace inject {

namespace {

constinit std::atomic<ThreadRegistry*> published_registry{nullptr};
constinit std::atomic<std::uint64_t> exited_threads{0};

}  // namespace

constinit thread_local ThreadState* this_thread_state = nullptr;
constinit thread_local bool this_thread_ignored = false;
constinit thread_local bool this_thread_starts_profiler = false;

ThreadRegistry::ThreadRegistry(BlockPool& pool) noexcept : pool_(pool) {
  states_ = static_cast<ThreadState*>(map_memory(kMaxAtOnce * sizeof(ThreadState)));
  identities_ = static_cast<Identity*>(map_memory(kMaxEver * sizeof(Identity)));
  usable_ = states_ != nullptr && identities_ != nullptr && pthread_key_create(&key_, &on_thread_exit) == 0;
}

ThreadRegistry::~ThreadRegistry() {
  if (usable_) pthread_key_delete(key_);
  unmap_memory(states_, kMaxAtOnce * sizeof(ThreadState));
  unmap_memory(identities_, kMaxEver * sizeof(Identity));
}

void ThreadRegistry::publish(ThreadRegistry* registry) noexcept {
  published_pool.store(registry == nullptr ? nullptr : &registry->pool_, std::memory_order_release);
  published_registry.store(registry, std::memory_order_release);
}

ThreadState* ThreadRegistry::first_of_this_thread() noexcept {
  if (this_thread_ignored) return nullptr;
  ThreadRegistry* registry = published_registry.load(std::memory_order_acquire);
  return registry == nullptr ? nullptr : registry->acquire();
}

void ThreadRegistry::ignore_this_thread() noexcept {
  this_thread_ignored = true;
}

ThreadState* ThreadRegistry::acquire() noexcept {
  if (!usable_ || next_index_.load(std::memory_order_relaxed) >= kMaxEver) return refuse();
  for (std::uint32_t i = 0; i < kMaxAtOnce; ++i) {
    ThreadState& state = states_[i];
    std::uint32_t expected = ThreadState::kFree;
    if (state.life.load(std::memory_order_relaxed) != ThreadState::kFree ||
        !state.life.compare_exchange_strong(expected, ThreadState::kClaimed, std::memory_order_acq_rel)) {
      continue;
    }
    state.reset();
    state.index = std::min(next_index_.fetch_add(1, std::memory_order_relaxed), kMaxEver - 1);
    Identity& identity = identities_[state.index];
    prctl(PR_GET_NAME, identity.name);
    identity.tid.store(static_cast<pid_t>(syscall(SYS_gettid)), std::memory_order_release);
    // A value for the key makes on_thread_exit run; if there is no memory for it, the thread's state stays
    // taken after the thread has gone, which only costs its room.
    pthread_setspecific(key_, &state);
    state.life.store(ThreadState::kLive, std::memory_order_release);
    std::uint32_t high = high_water_.load(std::memory_order_relaxed);
    while (high < i + 1 && !high_water_.compare_exchange_weak(high, i + 1, std::memory_order_seq_cst)) {
    }
    // After that: either keep_counts() finds this thread, or this thread finds its lines.
    if (RecordCounts* lines = count_lines_.load(std::memory_order_seq_cst); lines != nullptr)
      state.queue.keep_counts(lines[i]);
    this_thread_state = &state;
    return &state;
  }
  return refuse();
}

ThreadState* ThreadRegistry::refuse() noexcept {
  if (current_window.load(std::memory_order_relaxed) == 0) return nullptr;
  refused_.fetch_add(1, std::memory_order_seq_cst);
  keep_refused();
  return nullptr;
}

void ThreadRegistry::keep_refused() noexcept {
  if (RecordCounts* lines = count_lines_.load(std::memory_order_seq_cst); lines != nullptr)
    copy_count(refused_, lines[kMaxAtOnce].dropped[kind_index(RecordKind::kCall)]);
}

void ThreadRegistry::keep_counts(RecordCounts* lines) noexcept {
  count_lines_.store(lines, std::memory_order_seq_cst);
  keep_refused();
  const std::uint32_t most = high_water_.load(std::memory_order_seq_cst);
  const auto copy_all = [&] {
    for (std::uint32_t i = 0; i < most; ++i) states_[i].queue.keep_counts(lines[i]);
  };
  copy_all();
  // A thread that counted without having seen its line has finished doing so.
  wait_for_stores();
  copy_all();
}

void ThreadRegistry::on_thread_exit(void* pointer) noexcept {
  auto* state = static_cast<ThreadState*>(pointer);
  ThreadRegistry* registry = published_registry.load(std::memory_order_acquire);
  if (this_thread_state != state || registry == nullptr) return;
  prctl(PR_GET_NAME, registry->identities_[state->index].name);
  this_thread_state = nullptr;
  // Release: a drain thread that sees kDead sees the thread's last records.
  state->life.store(ThreadState::kDead, std::memory_order_release);
  exited_threads.fetch_add(1, std::memory_order_release);
}

std::uint64_t ThreadRegistry::exited() noexcept {
  return exited_threads.load(std::memory_order_acquire);
}

void ThreadRegistry::recycle(ThreadState& state) noexcept {
  state.queue.retire(pool_);
  gone_.fetch_add(1, std::memory_order_relaxed);
  state.life.store(ThreadState::kFree, std::memory_order_release);
}

void ThreadRegistry::register_barrier() noexcept {
  syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

// A barrier in every thread of the process, so that no thread needs its own. If the kernel lacks the call, a
// millisecond drains any store buffer.
void ThreadRegistry::wait_for_stores() noexcept {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

bool ThreadRegistry::any_launching() const noexcept {
  // Either a launching thread sees the window closed, or we see it launching.
  wait_for_stores();
  const std::uint32_t most = high_water_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < most; ++i) {
    if (states_[i].life.load(std::memory_order_acquire) == ThreadState::kLive &&
        states_[i].launching.load(std::memory_order_acquire) != 0) {
      return true;
    }
  }
  return false;
}

std::uint32_t ThreadRegistry::threads_seen() const noexcept {
  return std::min(next_index_.load(std::memory_order_acquire), kMaxEver);
}

pid_t ThreadRegistry::tid(std::uint32_t index) const noexcept {
  return index < kMaxEver && identities_ != nullptr ? identities_[index].tid.load(std::memory_order_acquire)
                                                    : 0;
}

std::string ThreadRegistry::thread_name(std::uint32_t index) const {
  const pid_t id = tid(index);
  if (id == 0) return {};
  // The kernel's own record comes first: threads are often named after their first call.
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/comm", static_cast<int>(id));
  const int file = open_file(path, O_RDONLY);
  if (file >= 0) {
    char text[32];
    const ssize_t n = read(file, text, sizeof text);
    close(file);
    if (n > 0) return {text, static_cast<std::size_t>(text[n - 1] == '\n' ? n - 1 : n)};
  }
  const char* name = identities_[index].name;
  return {name, strnlen(name, sizeof identities_[index].name)};
}

std::uint64_t ThreadRegistry::dropped(RecordKind kind) const noexcept {
  // Each queue counts for all its threads, so the sum never falls.
  std::uint64_t sum = 0;
  const std::uint32_t most = high_water_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < most; ++i) sum += states_[i].queue.dropped(kind);
  return sum;
}

}  // namespace inject
