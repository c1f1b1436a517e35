// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <time.h>

#include "libinject/base/time.h"

namespace inject {

/// CLOCK_MONOTONIC through the vDSO: no system call, never steps.
inline Nanoseconds now() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<Nanoseconds>(t.tv_sec) * 1'000'000'000u + static_cast<Nanoseconds>(t.tv_nsec);
}

/// CLOCK_REALTIME: nanoseconds since 1970. Can step.
inline Nanoseconds realtime() noexcept {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<Nanoseconds>(t.tv_sec) * 1'000'000'000u + static_cast<Nanoseconds>(t.tv_nsec);
}

/// How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, from the fastest of a few readings, because the thread
/// may be preempted in the middle of one.
inline Nanoseconds realtime_ahead() noexcept {
  Nanoseconds ahead = 0;
  Nanoseconds quickest = ~Nanoseconds{0};
  for (int i = 0; i < 5; ++i) {
    const Nanoseconds before = now();
    const Nanoseconds time = realtime();
    const Nanoseconds took = now() - before;
    if (took >= quickest) continue;
    quickest = took;
    ahead = time - before;
  }
  return ahead;
}

/// CPU time of the calling thread.
inline Nanoseconds thread_cpu_time() noexcept {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<Nanoseconds>(t.tv_sec) * 1'000'000'000u + static_cast<Nanoseconds>(t.tv_nsec);
}

}  // namespace inject
