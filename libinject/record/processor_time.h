// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/resource.h>

#include <cstdint>

#include "libinject/record/clock.h"
#include "libinject/record/thread_registry.h"

namespace inject {

/// Between two calls, or in one, a thread may have computed or waited: from this long on it is asked for.
inline constexpr Nanoseconds kProcessorTimeApart = 100'000;

/// Reads and publishes the calling thread's processor time, and how often it has waited: one that wants to
/// run and gets no processor does not. Returns the time of the reading, or `time` where that is given. The
/// only system calls that a hook makes: some 0.5 us, never between calls in quick succession, but for a
/// thread's first in a window.
[[gnu::cold, gnu::noinline]] inline Nanoseconds publish_processor_time(ThreadState& thread,
                                                                       std::uint32_t window,
                                                                       Nanoseconds time = 0) noexcept {
  ProcessorTimeRecord record;
  record.processor = thread_cpu_time();
  rusage usage;
  if (getrusage(RUSAGE_THREAD, &usage) == 0) record.waits = static_cast<std::uint64_t>(usage.ru_nvcsw);
  record.window = window;
  record.time = time == 0 ? now() : time;
  thread.processor_time_window = window;
  ThreadRegistry::push(thread, record);
  return record.time;
}

/// An outermost call of an open window begins on the calling thread: returns when, after what has to be read.
inline Nanoseconds outermost_call_begins(ThreadState& thread, std::uint32_t window,
                                         Nanoseconds begin) noexcept {
  if (begin - thread.last_call_end < kProcessorTimeApart && thread.processor_time_window == window)
    return begin;
  return publish_processor_time(thread, window);
}

/// It is over.
inline void outermost_call_ended(ThreadState& thread, std::uint32_t window, Nanoseconds begin,
                                 Nanoseconds end) noexcept {
  thread.last_call_end = end;
  if (end - begin >= kProcessorTimeApart) publish_processor_time(thread, window, end);
}

}  // namespace inject
