// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/internal_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include <cstddef>

#include "libinject/base/floating_point.h"
#include "libinject/record/thread_registry.h"

// Of glibc: what threads' stacks have to have besides, such as the thread-local storage of libraries. Missing
// before 2.34 where the program has no libpthread, and in other C libraries.
extern "C" std::size_t __pthread_get_minstack(const pthread_attr_t*) __attribute__((weak));

namespace inject {

namespace {

constexpr std::size_t kStackBytes = std::size_t{1} << 20;

// Real-time priority is for the program's own threads. Lowering it needs no privilege; as an attribute of
// pthread_create, a sandbox that forbids it would prevent the thread. CPUs and nice value stay those of the
// thread that has started this one.
void leave_real_time() noexcept {
  const int policy = sched_getscheduler(0);
  if (policy != SCHED_FIFO && policy != SCHED_RR) return;
  const sched_param none{};
  sched_setscheduler(0, SCHED_OTHER, &none);
}

}  // namespace

int start_internal_thread(void* (*run)(void*) noexcept, void* argument) noexcept {
  pthread_attr_t attributes;
  if (const int failed = pthread_attr_init(&attributes); failed != 0) return failed;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const std::size_t besides = __pthread_get_minstack != nullptr ? __pthread_get_minstack(&attributes) : 0;
  pthread_attr_setstacksize(&attributes, kStackBytes + besides);
  sigset_t all;
  sigset_t previous;
  sigfillset(&all);
  // The program's signals are for its own threads.
  int failed = pthread_sigmask(SIG_SETMASK, &all, &previous);
  if (failed != 0) {
    pthread_attr_destroy(&attributes);
    return failed;
  }
  // As are the floating-point exceptions that it traps: the thread inherits these settings.
  const FloatingPointDefaults floating_point;
  pthread_t thread;
  failed = pthread_create(&thread, &attributes, run, argument);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return failed;
}

void enter_internal_thread() noexcept {
  ThreadRegistry::ignore_this_thread();
  prctl(PR_SET_NAME, "libinject");
  leave_real_time();
}

}  // namespace inject
