// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Preloaded into a program: a clock that skips the time for which everybody waits. While a thread runs, time
// passes normally; once all of them wait (in a sleep, on a condition or futex, for another thread's end), the
// clocks step to the earliest time that one of them waits for. Hours of a program that mostly waits pass in
// minutes, consistently for everything in the process, and no time-out expires because a machine is busy, as
// it would with a clock that runs faster: time does not pass there.
//
// Why not libfaketime: the version in distributions (0.9.10) does not know pthread_cond_clockwait, with which
// C++ waits on the steady clock, so each such wait takes its full time; and it makes the clock faster, which
// makes the machine slower.
//
// Skipped: fsync, nanosleep, clock_nanosleep, usleep, sleep, sched_yield (a sleep of kYield), condition
// variables, futex calls by syscall(), pthread_join. Threads that wait elsewhere (mutexes, files, poll) count
// as running. A thread's CPU time is the real one, and so is the CPU's time stamp counter: code that reads it
// (the iteration search) does not agree with the clocks.
//
// Condition variables are implemented in this file: waits and wake-ups agree only on their address. Their
// clock for pthread_cond_timedwait is CLOCK_REALTIME. Threads in them can't be cancelled, nor interrupted by
// signals.
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNever = INT64_MAX;
constexpr std::int64_t kYield = 20'000;
// Interval at which waiting threads check again: a step of the clock wakes those whose time has come, and
// others may have to wait for less than they thought.
constexpr std::int64_t kLook = 20'000'000;

template <typename Function>
Function* real(std::atomic<void*>& slot, const char* name) {
  void* found = slot.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = dlsym(RTLD_NEXT, name);
    slot.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function*>(found);
}
#define REAL(name)                                     \
  ([] {                                                \
    constinit static std::atomic<void*> slot{nullptr}; \
    return real<decltype(::name)>(slot, #name);        \
  }())

constinit std::atomic<std::int64_t> skipped{0};

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * kSecond + time.tv_nsec;
}
timespec to_timespec(std::int64_t time) {
  return {static_cast<time_t>(time / kSecond), static_cast<long>(time % kSecond)};
}

// The clocks that follow the time of day: all of them skip by the same amount.
bool skips(clockid_t clock) {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
    case CLOCK_TAI:
      return true;
    default:
      return false;
  }
}

int read_clock(clockid_t clock, timespec* time) {
  const int status = REAL(clock_gettime)(clock, time);
  if (status == 0 && skips(clock))
    *time = to_timespec(nanoseconds(*time) + skipped.load(std::memory_order_acquire));
  return status;
}
std::int64_t now(clockid_t clock = CLOCK_MONOTONIC) {
  timespec time{};
  read_clock(clock, &time);
  return nanoseconds(time);
}
std::int64_t on_monotonic(clockid_t clock, const timespec& time) {
  return clock == CLOCK_MONOTONIC ? nanoseconds(time) : nanoseconds(time) - now(clock) + now();
}

// A waiting thread; on its stack.
struct Waiter {
  const void* key = nullptr;  // what it waits for, if not only for a time
  std::int64_t deadline = kNever;
  bool in_time = false;
  std::atomic<std::uint32_t> awake{0};
  Waiter* before = nullptr;
  Waiter* after = nullptr;
};

// Everything below requires `mutex`, whose own waits are not skipped.
constinit std::mutex mutex;
constinit int running = 1;
constinit Waiter* first = nullptr;
constinit Waiter* last = nullptr;
constinit std::array<pthread_t, 1024> alive{};
constinit std::size_t alive_count = 0;

// Destructors of thread-local objects run after a thread has been counted out.
thread_local bool counted_out = false;

void add(Waiter& waiter) {
  waiter.before = last;
  (last == nullptr ? first : last->after) = &waiter;
  last = &waiter;
}
void remove(Waiter& waiter) {
  (waiter.before == nullptr ? first : waiter.before->after) = waiter.after;
  (waiter.after == nullptr ? last : waiter.after->before) = waiter.before;
}

// From here on it counts as running, however long the machine takes to schedule it.
void wake(Waiter& waiter, bool in_time) {
  remove(waiter);
  ++running;
  waiter.in_time = in_time;
  std::atomic<std::uint32_t>* const word = &waiter.awake;
  word->store(1, std::memory_order_release);
  REAL(syscall)(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

int wake_all(const void* key, int most) {
  int woken = 0;
  for (Waiter* waiter = first; waiter != nullptr && woken < most;) {
    Waiter* const next = waiter->after;
    if (waiter->key == key) {
      wake(*waiter, true);
      ++woken;
    }
    waiter = next;
  }
  return woken;
}

void stop_running() {
  if (--running != 0) return;
  std::int64_t earliest = kNever;
  for (Waiter* waiter = first; waiter != nullptr; waiter = waiter->after)
    earliest = std::min(earliest, waiter->deadline);
  if (earliest == kNever) return;  // they wait for something outside of the process
  const std::int64_t time = now();
  if (earliest > time) skipped.fetch_add(earliest - time, std::memory_order_release);
  for (Waiter* waiter = first; waiter != nullptr;) {
    Waiter* const next = waiter->after;
    if (waiter->deadline <= earliest) wake(*waiter, false);
    waiter = next;
  }
}

// Waits until another thread wakes `waiter` (true) or its time has come; takes `lock` and releases it.
bool wait(Waiter& waiter, std::unique_lock<std::mutex>& lock) {
  if (counted_out) ++running;
  add(waiter);
  stop_running();
  lock.unlock();
  while (waiter.awake.load(std::memory_order_acquire) == 0) {
    const std::int64_t left = waiter.deadline - now();
    if (left > 0) {
      const timespec most = to_timespec(std::min(left, kLook));
      REAL(syscall)(SYS_futex, &waiter.awake, FUTEX_WAIT_PRIVATE, 0, &most, nullptr, 0);
      continue;
    }
    lock.lock();
    if (waiter.awake.load(std::memory_order_relaxed) == 0) wake(waiter, false);
    lock.unlock();
  }
  if (counted_out) {
    lock.lock();
    stop_running();
    lock.unlock();
  }
  return waiter.in_time;
}

void sleep_until(std::int64_t deadline) {
  Waiter waiter;
  waiter.deadline = deadline;
  std::unique_lock lock(mutex);
  const int error = errno;
  wait(waiter, lock);
  errno = error;
}

int wait_for_condition(pthread_cond_t* condition, pthread_mutex_t* held, std::int64_t deadline) {
  Waiter waiter;
  waiter.key = condition;
  waiter.deadline = deadline;
  std::unique_lock lock(mutex);
  const int error = errno;
  pthread_mutex_unlock(held);
  const bool in_time = wait(waiter, lock);
  pthread_mutex_lock(held);
  errno = error;
  return in_time ? 0 : ETIMEDOUT;
}

struct Start {
  void* (*function)(void*);
  void* argument;
};

// Counts a thread out, including one that ends by pthread_exit.
class Life {
 public:
  Life() = default;
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;
  ~Life() {
    const std::lock_guard lock(mutex);
    const pthread_t self = pthread_self();
    auto* const end = alive.begin() + alive_count;
    auto* const found = std::find(alive.begin(), end, self);
    if (found != end) {
      *found = *(end - 1);
      --alive_count;
    }
    wake_all(reinterpret_cast<const void*>(self), INT_MAX);
    counted_out = true;
    stop_running();
  }
};

void* run_thread(void* start) {
  const Start given = *static_cast<Start*>(start);
  delete static_cast<Start*>(start);
  const Life life;
  return given.function(given.argument);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  return read_clock(clock, time);
}

time_t time(time_t* result) noexcept {
  const auto seconds = static_cast<time_t>(now(CLOCK_REALTIME) / kSecond);
  if (result != nullptr) *result = seconds;
  return seconds;
}

int gettimeofday(timeval* time, void*) noexcept {
  const std::int64_t at = now(CLOCK_REALTIME);
  *time = {static_cast<time_t>(at / kSecond), static_cast<suseconds_t>(at % kSecond / 1000)};
  return 0;
}

int nanosleep(const timespec* time, timespec*) {
  sleep_until(now() + nanoseconds(*time));
  return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec*) {
  sleep_until((flags & TIMER_ABSTIME) != 0 ? on_monotonic(clock, *time) : now() + nanoseconds(*time));
  return 0;
}

int usleep(useconds_t time) {
  sleep_until(now() + std::int64_t{time} * 1000);
  return 0;
}

unsigned int sleep(unsigned int seconds) {
  sleep_until(now() + seconds * kSecond);
  return 0;
}

// The duration of disk writes is irrelevant here, and would be most of a run.
int fsync(int) {
  return 0;
}

int sched_yield() noexcept {
  sleep_until(now() + kYield);
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* held) {
  return wait_for_condition(condition, held, kNever);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* held, const timespec* deadline) {
  return wait_for_condition(condition, held, on_monotonic(CLOCK_REALTIME, *deadline));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* held, clockid_t clock,
                           const timespec* deadline) {
  return wait_for_condition(condition, held, on_monotonic(clock, *deadline));
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  const std::lock_guard lock(mutex);
  wake_all(condition, 1);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  const std::lock_guard lock(mutex);
  wake_all(condition, INT_MAX);
  return 0;
}

long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  std::array<long, 6> given{};
  for (long& one : given) one = va_arg(list, long);
  va_end(list);

  const long operation = given[1] & ~static_cast<long>(FUTEX_PRIVATE_FLAG);
  auto* const word = reinterpret_cast<std::atomic<std::uint32_t>*>(given[0]);
  if (number == SYS_futex && operation == FUTEX_WAIT) {
    const auto* const most = reinterpret_cast<const timespec*>(given[3]);
    Waiter waiter;
    waiter.key = word;
    if (most != nullptr) waiter.deadline = now() + nanoseconds(*most);
    std::unique_lock lock(mutex);
    if (word->load() != static_cast<std::uint32_t>(given[2])) {
      errno = EAGAIN;
      return -1;
    }
    if (wait(waiter, lock)) return 0;
    errno = ETIMEDOUT;
    return -1;
  }
  if (number == SYS_futex && operation == FUTEX_WAKE) {
    const std::lock_guard lock(mutex);
    return wake_all(word, static_cast<int>(given[2]));
  }
  return REAL(syscall)(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) noexcept {
  auto* const start = new Start{function, argument};
  const std::lock_guard lock(mutex);
  if (alive_count == alive.size()) {
    delete start;
    return EAGAIN;
  }
  const int status = REAL(pthread_create)(thread, attributes, run_thread, start);
  if (status != 0) {
    delete start;
    return status;
  }
  // It can't have ended before, because it needs the lock for that.
  alive[alive_count++] = *thread;
  ++running;
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  {
    std::unique_lock lock(mutex);
    const auto* const end = alive.begin() + alive_count;
    if (std::find(alive.cbegin(), end, thread) != end) {
      Waiter waiter;
      waiter.key = reinterpret_cast<const void*>(thread);
      wait(waiter, lock);
    }
  }
  return REAL(pthread_join)(thread, result);
}

}  // extern "C"
