// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/context_creation.h"

#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "libinject/base/clock.h"
#include "libinject/capture/driver.h"

namespace inject {

namespace {

constinit std::atomic<std::uint32_t> holds{0};
/// The current subscription, an even number if there is none, and the number of threads in such a call. In
/// one word, so that a late edge is not counted in the next subscription: subscription << 32 | threads.
constinit std::atomic<std::uint64_t> creating{0};

/// For a thread: the nesting depth of such calls, and the subscription that has seen them begin.
struct Calls {
  std::uint32_t subscription;
  std::uint32_t depth;
};
constinit thread_local Calls own_calls{0, 0};
/// CUPTI's own calls while activity is switched are not held.
constinit thread_local std::uint32_t own_holds = 0;

static_assert(sizeof(holds) == sizeof(std::uint32_t));  // a futex word

std::uint32_t subscription_of(std::uint64_t state) noexcept {
  return static_cast<std::uint32_t>(state >> 32);
}

bool calls_back(std::uint32_t subscription) noexcept {
  return subscription % 2 != 0;
}

void next_subscription(bool callbacks) noexcept {
  std::uint32_t next = subscription_of(creating.load(std::memory_order_seq_cst)) + 1;
  if (calls_back(next) != callbacks) ++next;
  creating.store(std::uint64_t{next} << 32, std::memory_order_seq_cst);
}

long times_slept() noexcept {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

bool any_creating() noexcept {
  return static_cast<std::uint32_t>(creating.load(std::memory_order_seq_cst)) != 0;
}

// False if the subscription has ended since.
bool count(std::uint32_t subscription, std::uint64_t change) noexcept {
  std::uint64_t state = creating.load(std::memory_order_seq_cst);
  while (subscription_of(state) == subscription) {
    if (creating.compare_exchange_weak(state, state + change, std::memory_order_seq_cst)) return true;
  }
  return false;
}

void enter(std::uint32_t subscription) noexcept {
  if (own_holds != 0) return;
  const Nanoseconds deadline = now() + ContextHold::kMaxHold;
  for (;;) {
    // Counted before `holds` is read: the holding thread reads the count afterwards.
    if (!count(subscription, 1)) return;
    const std::uint32_t held = holds.load(std::memory_order_seq_cst);
    const Nanoseconds time = held == 0 ? 0 : now();
    if (held == 0 || time >= deadline) return;
    count(subscription, ~std::uint64_t{0});
    const Nanoseconds left = deadline - time;
    const timespec most{static_cast<time_t>(left / kSecond), static_cast<long>(left % kSecond)};
    syscall(SYS_futex, &holds, FUTEX_WAIT_PRIVATE, held, &most, nullptr, 0);
  }
}

}  // namespace

ContextHold::ContextHold(ContextWait contexts) noexcept {
  // First wait without holding any thread, because a creation takes long.
  if (contexts == ContextWait::kMay) wait_for_creations();
  ++own_holds;
  holds.fetch_add(1, std::memory_order_seq_cst);
  if (contexts == ContextWait::kMay) wait_for_creations();
}

ContextHold::~ContextHold() {
  --own_holds;
  holds.fetch_sub(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &holds, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void ContextHold::on_call(bool enter_edge) noexcept {
  const std::uint32_t subscription = subscription_of(creating.load(std::memory_order_seq_cst));
  if (own_calls.subscription != subscription) own_calls = {subscription, 0};
  if (!calls_back(subscription)) return;
  const int saved_errno = errno;
  if (enter_edge) {
    if (own_calls.depth++ == 0) enter(subscription);
  } else if (own_calls.depth != 0 && --own_calls.depth == 0 && own_holds == 0) {
    count(subscription, ~std::uint64_t{0});
  }
  errno = saved_errno;
}

void ContextHold::begin_callbacks() noexcept {
  next_subscription(true);
}

void ContextHold::end_callbacks() noexcept {
  next_subscription(false);
}

void ContextHold::forget() noexcept {
  end_callbacks();
  holds.store(0, std::memory_order_relaxed);
  own_holds = 0;
}

// The driver reports creations that began before the callbacks were enabled, the callbacks report those of
// non-primary contexts. After waiting, gives the thread time to leave CUPTI.
bool ContextHold::wait_for_creations() noexcept {
  constexpr Nanoseconds kPause = 200 * kMicrosecond;
  constexpr Nanoseconds kAfterCreation = 50 * kMillisecond;
  constexpr Nanoseconds kAtOnce = kMillisecond;
  const Nanoseconds deadline = now() + kMaxWait;
  constexpr int kMostCreations = 16;  // devices are set up one after the other
  // Done first, so that waiting for the dynamic loader is not taken for waiting for a creation.
  find_device_functions();
  for (int i = 0; i < kMostCreations; ++i) {
    const Nanoseconds asked = now();
    const long slept = times_slept();
    bool waited = false;
    for (; any_creating() && now() < deadline; waited = true) sleep_for(kPause);
    wait_for_driver();
    const Nanoseconds answered = now();
    // A busy machine by itself does not put the thread to sleep.
    waited = waited || (answered - asked >= kAtOnce && times_slept() != slept);
    if (!waited) return i != 0;
    if (answered > deadline) return true;
    sleep_for(kAfterCreation);
  }
  return true;
}

}  // namespace inject
