// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/gate.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "libinject/record/control.h"

namespace inject {

namespace {

constinit std::atomic<std::uint64_t> held_launches{0};
constinit std::atomic<Nanoseconds> hold_time{0};
constinit std::atomic<Nanoseconds> gate_deadline{0};

// std::atomic<uint32_t> is a plain 32-bit word on every platform with a futex.
static_assert(sizeof(control_word) == sizeof(std::uint32_t));

void release() noexcept {
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlGate), std::memory_order_seq_cst);
  syscall(SYS_futex, &control_word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

LaunchGate::LaunchGate(bool close) noexcept : closed_(close) {
  if (!closed_) return;
  gate_deadline.store(now() + kInFlight + kMaxHold, std::memory_order_relaxed);
  control_word.fetch_or(kControlGate, std::memory_order_seq_cst);
  // Hooks outside a window count nothing, so the number of calls past the gate is unknown: give them time.
  sleep_for(kInFlight);
}

LaunchGate::~LaunchGate() {
  if (closed_) release();
}

void LaunchGate::wait() noexcept {
  const int saved_errno = errno;
  held_launches.fetch_add(1, std::memory_order_relaxed);
  const Nanoseconds since = now();
  for (;;) {
    const std::uint32_t value = control_word.load(std::memory_order_acquire);
    if ((value & kControlGate) == 0) break;
    // Of the gate that is closed now: another one may have followed the one that this launch met.
    const Nanoseconds deadline = gate_deadline.load(std::memory_order_relaxed);
    const Nanoseconds time = now();
    if (time >= deadline) {
      release();
      break;
    }
    const timespec left{0, static_cast<long>(deadline - time)};
    syscall(SYS_futex, &control_word, FUTEX_WAIT_PRIVATE, value, &left, nullptr, 0);
  }
  hold_time.fetch_add(now() - since, std::memory_order_relaxed);
  errno = saved_errno;
}

std::uint64_t LaunchGate::holds() noexcept {
  return held_launches.load(std::memory_order_relaxed);
}
Nanoseconds LaunchGate::held_for() noexcept {
  return hold_time.load(std::memory_order_relaxed);
}

}  // namespace inject
