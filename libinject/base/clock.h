// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/types.h>
#include <time.h>

#include <optional>

#include "libinject/base/time.h"

namespace inject {

constexpr Nanoseconds nanoseconds(const timespec& time) noexcept {
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}

/// CLOCK_MONOTONIC through the vDSO: no system call, never steps.
inline Nanoseconds now() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return nanoseconds(t);
}

/// CLOCK_REALTIME: nanoseconds since 1970. Can step.
inline Nanoseconds realtime() noexcept {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return nanoseconds(t);
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
  return nanoseconds(t);
}

/// Nothing if there is no such clock.
inline std::optional<Nanoseconds> read_clock(clockid_t clock) noexcept {
  timespec t;
  if (clock_gettime(clock, &t) != 0) return std::nullopt;
  return nanoseconds(t);
}

/// CPU time of a thread of this process, or of a process; nothing if there is none with this id. The kernel's
/// clock ids: pthread_getcpuclockid() returns the same, but needs a pthread_t.
inline std::optional<Nanoseconds> cpu_time_of_thread(pid_t thread) noexcept {
  return read_clock(static_cast<clockid_t>(~static_cast<unsigned>(thread) << 3 | 6u));
}
inline std::optional<Nanoseconds> cpu_time_of_process(pid_t process) noexcept {
  return read_clock(static_cast<clockid_t>(~static_cast<unsigned>(process) << 3 | 2u));
}

/// False if a signal ended the sleep early.
inline bool sleep_for(Nanoseconds time) noexcept {
  const timespec pause{static_cast<time_t>(time / kSecond), static_cast<long>(time % kSecond)};
  return nanosleep(&pause, nullptr) == 0;
}

}  // namespace inject
