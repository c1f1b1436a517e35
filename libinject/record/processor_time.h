// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "libinject/base/clock.h"
#include "libinject/base/ticks.h"
#include "libinject/record/control.h"
#include "libinject/record/thread_registry.h"

namespace inject {

inline constinit std::atomic<bool> processor_times_refused{false};

/// Reads and publishes the calling thread's CPU time, and how often it has blocked (being preempted does not
/// count). Returns the time of the reading, or `time` if that is given. Makes the only system calls of a
/// hook: some 0.5 us, never between calls in quick succession, except for a thread's first in a window.
[[gnu::cold, gnu::noinline]] inline Nanoseconds publish_processor_time(ThreadState& thread,
                                                                       std::uint32_t window,
                                                                       Nanoseconds time = 0) noexcept {
  ProcessorTimeRecord record;
  record.window = window;
  thread.processor_time_window = window;
  // A sandbox may refuse the call: it is then not made again, and threads count as computing.
  if (!processor_times_refused.load(std::memory_order_relaxed)) {
    const int error = errno;
    timespec used;
    rusage usage;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0 && getrusage(RUSAGE_THREAD, &usage) == 0) {
      record.processor = nanoseconds(used);
      record.waits = static_cast<std::uint64_t>(usage.ru_nvcsw);
      record.time = time == 0 ? now() : time;
      ThreadRegistry::push(thread, record);
    } else {
      processor_times_refused.store(true, std::memory_order_relaxed);
    }
    errno = error;
  }
  return record.time != 0 ? record.time : time == 0 ? now() : time;
}

/// True if the thread's last short call ended less than kProcessorTimeApart ago.
inline bool is_just_after_short_call(const ThreadState& thread) noexcept {
  return thread.last_short_end != 0 && tick_period.known() &&
         tick_period.between(thread.last_short_end, ticks()) < kProcessorTimeApart;
}

/// An outermost call in an open window begins on the calling thread: reads the CPU time if it is due, and
/// returns the time.
inline Nanoseconds outermost_call_begins(ThreadState& thread, std::uint32_t window,
                                         Nanoseconds begin) noexcept {
  if (thread.processor_time_window == window &&
      (begin - thread.last_call_end < kProcessorTimeApart || is_just_after_short_call(thread)))
    return begin;
  return publish_processor_time(thread, window);
}

/// That call has ended.
inline void outermost_call_ended(ThreadState& thread, std::uint32_t window, Nanoseconds begin,
                                 Nanoseconds end) noexcept {
  thread.last_call_end = end;
  if (end - begin >= kProcessorTimeApart) publish_processor_time(thread, window, end);
}

}  // namespace inject
