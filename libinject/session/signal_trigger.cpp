// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/signal_trigger.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "libinject/base/log.h"
#include "libinject/config/window_spec.h"
#include "libinject/record/internal_thread.h"

namespace inject {

namespace {

// What the handler reads is constant-initialised and written before the handler is installed.
constinit std::atomic<std::uint32_t> arrivals{0};  // a futex
constinit struct sigaction previous {};
constinit std::atomic<bool> call_previous{false};
constinit std::atomic<int> armed_signal{0};  // set once our handler is installed
constinit pid_t armed_process = 0;           // a child made by vfork has our memory, too
constinit SignalTrigger::Listener the_listener = nullptr;
constinit std::atomic<bool> replaced{false};

static_assert(sizeof(arrivals) == sizeof(std::uint32_t) && std::atomic<std::uint32_t>::is_always_lock_free);

constexpr std::time_t kLookAgain = 1;  // seconds

bool is_handler(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (getpid() == armed_process) {
    arrivals.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &arrivals, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  errno = saved_errno;
  if (!call_previous.load(std::memory_order_acquire)) return;
  // A handler with SA_RESETHAND is called only once.
  if ((static_cast<unsigned>(previous.sa_flags) & SA_RESETHAND) != 0 &&
      !call_previous.exchange(false, std::memory_order_acq_rel))
    return;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else {
    previous.sa_handler(signal);
  }
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &on_signal;
}

void* wait_for_signals(void*) noexcept {
  enter_internal_thread();
  for (std::uint32_t seen = 0;;) {
    const std::uint32_t now = arrivals.load(std::memory_order_acquire);
    if (seen == now) {
      const timespec interval{kLookAgain, 0};
      const bool look = !replaced.load(std::memory_order_relaxed);
      syscall(SYS_futex, &arrivals, FUTEX_WAIT_PRIVATE, now, look ? &interval : nullptr, nullptr, 0);
      if (look) SignalTrigger::look();
      continue;
    }
    ++seen;
    the_listener();
  }
}

// Returns 0 or errno.
int install(int signal) noexcept {
  if (sigaction(signal, nullptr, &previous) != 0) return errno;
  call_previous.store(is_handler(previous), std::memory_order_release);
  struct sigaction ours {};
  ours.sa_sigaction = &on_signal;
  if (is_handler(previous)) {
    // Our handler runs with the program's settings: its stack, its blocked signals, and calls restarted or
    // not.
    ours.sa_mask = previous.sa_mask;
    ours.sa_flags = SA_SIGINFO | (previous.sa_flags & (SA_RESTART | SA_NODEFER | SA_ONSTACK));
  } else {
    sigemptyset(&ours.sa_mask);
    ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  }
  return sigaction(signal, &ours, nullptr) != 0 ? errno : 0;
}

}  // namespace

bool SignalTrigger::arm(int signal, Listener listener) noexcept {
  the_listener = listener;
  armed_process = getpid();
  try {
    int failed = start_internal_thread(&wait_for_signals, nullptr);
    if (failed == 0) failed = install(signal);
    if (failed != 0) {
      Log::error(signal_name(signal) + " can open no window: " + std::strerror(failed));
      return false;
    }
    armed_signal.store(signal, std::memory_order_release);
    if (is_handler(previous))
      Log::info(signal_name(signal) + " already has a handler of the program's, which is still called");
    return true;
  } catch (...) {
    return false;  // out of memory
  }
}

void SignalTrigger::look() noexcept {
  const int signal = armed_signal.load(std::memory_order_acquire);
  struct sigaction now {};
  if (signal == 0 || sigaction(signal, nullptr, &now) != 0 || is_ours(now)) return;
  // If the default action is set, no other handler has replaced ours: an interpreter that shuts down restores
  // it.
  if ((!is_handler(now) && now.sa_handler != SIG_IGN) || replaced.exchange(true)) return;
  try {
    Log::warn("the program has replaced libinject's handler of " + signal_name(signal) +
              " with its own: unless that handler forwards the signal, it no longer opens or closes windows");
  } catch (...) {
    // Out of memory for a message.
  }
}

std::string SignalTrigger::why_none() {
  const int signal = armed_signal.load(std::memory_order_acquire);
  if (signal == 0) return {};
  if (arrivals.load(std::memory_order_acquire) != 0) return ": " + signal_name(signal) + " came too late";
  return ": no " + signal_name(signal) + " came" + (replaced ? " to libinject's handler" : "");
}

void SignalTrigger::leave_child() noexcept {
  const int signal = armed_signal.load(std::memory_order_acquire);
  struct sigaction now {};
  if (signal == 0 || sigaction(signal, nullptr, &now) != 0 || !is_ours(now)) return;
  struct sigaction before = previous;
  if (is_handler(previous) && !call_previous.load(std::memory_order_acquire)) {
    before.sa_flags = 0;
    before.sa_handler = SIG_DFL;
  }
  sigaction(signal, &before, nullptr);
}

}  // namespace inject
