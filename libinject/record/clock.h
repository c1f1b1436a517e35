// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <time.h>

#include "libinject/record/records.h"

namespace inject {

/// CLOCK_MONOTONIC by way of the vDSO: no system call, never steps.
inline Nanoseconds now() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<Nanoseconds>(t.tv_sec) * 1'000'000'000u + static_cast<Nanoseconds>(t.tv_nsec);
}

/// CPU time of the calling thread.
inline Nanoseconds thread_cpu_time() noexcept {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<Nanoseconds>(t.tv_sec) * 1'000'000'000u + static_cast<Nanoseconds>(t.tv_nsec);
}

}  // namespace inject
