// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/torch/loader_fetch.h"

#include "libinject/base/caller_state.h"
#include "libinject/base/clock.h"
#include "libinject/capture/torch/loader_batch.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

FetchThread kind_of(const ThreadState& thread) noexcept {
  if (thread.has_stepped) return FetchThread::kSteps;
  return iteration_watch.stepped.load(std::memory_order_relaxed) ? FetchThread::kOther : FetchThread::kAny;
}

/// `end` is 0 for a fetch that has just begun.
void publish(ThreadState& thread, Nanoseconds end) noexcept {
  const std::uint32_t window = current_window.load(std::memory_order_acquire);
  if (window == 0) return;
  FetchRecord record;
  record.fetch = thread.fetch_kind;
  record.by = kind_of(thread);
  record.window = window;
  record.begin = thread.fetch_begin;
  record.end = end;
  ThreadRegistry::push(thread, record);
}

}  // namespace

void fetch_begins(const void* function, FetchKind kind) noexcept {
  if (ThreadRegistry::this_thread_is_ignored()) return;
  const CallerState caller;
  ThreadState* thread = ThreadRegistry::current();
  if (thread == nullptr || thread->fetch != nullptr) return;
  thread->fetch = function;
  thread->fetch_kind = kind;
  thread->fetch_begin = now();
  const Core* core = Core::get_if_any();
  if (core != nullptr && kind == FetchKind::kWaiting && kind_of(*thread) != FetchThread::kOther)
    fetching_thread.store(core->threads.tid(thread->index), std::memory_order_relaxed);
  // A window may close before the fetch ends.
  publish(*thread, 0);
}

void fetch_ends(const void* function) noexcept {
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr || thread->fetch != function) return;
  const CallerState caller;
  thread->fetch = nullptr;
  if (thread->fetch_kind == FetchKind::kWaiting) fetching_thread.store(0, std::memory_order_relaxed);
  publish(*thread, now());
  // What other threads fetch may reach the training thread at any time.
  const Core* core = Core::get_if_any();
  if (core != nullptr && core->configuration.options.unit_source() == UnitSource::kLoader &&
      kind_of(*thread) != FetchThread::kOther)
    say_batch();
}

}  // namespace inject
